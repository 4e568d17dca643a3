//! The numbers by which the kernel knows names and open files.
//!
//! The number of a file stands for one version of its contents or, if they change through this
//! mount, for all that follow. When another mount has replaced the file, the next lookup gives
//! another number: so the kernel never mixes pages of the two, and who has the file open goes on
//! reading the old one.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex};

use fuser::Errno;

use crate::entry::{Kind, Names};
use crate::file::FileState;
use crate::keys;

/// The number of the root.
pub(crate) const ROOT: u64 = 1;

/// A file that is open, as several handles share it.
pub(crate) type OpenFile = Arc<Mutex<FileState>>;

/// A name that the kernel knows.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) path: Vec<u8>,
    pub(crate) kind: Kind,
    /// The version of a file that is not open.
    pub(crate) version: u64,
    /// The name is another file's by now, or nobody's.
    pub(crate) is_detached: bool,
    pub(crate) open: Option<OpenFile>,
    pub(crate) writers: u32,
    handles: u32,
    lookups: u64,
}

struct Handle {
    node: u64,
    is_writer: bool,
    file: OpenFile,
}

/// All names and handles of a mount.
pub(crate) struct Table {
    nodes: BTreeMap<u64, Node>,
    by_path: BTreeMap<Vec<u8>, u64>,
    handles: BTreeMap<u64, Handle>,
    directories: BTreeMap<u64, Arc<Names>>,
    next: u64,
}

impl Table {
    pub(crate) fn new() -> Self {
        let mut table = Self {
            nodes: BTreeMap::new(),
            by_path: BTreeMap::new(),
            handles: BTreeMap::new(),
            directories: BTreeMap::new(),
            next: ROOT,
        };
        table.place(b"", Kind::Directory, 0);
        table
    }

    pub(crate) fn node(&self, node: u64) -> Result<&Node, Errno> {
        self.nodes.get(&node).ok_or(Errno::ESTALE)
    }

    /// The path of a name in a directory.
    pub(crate) fn path_in(&self, directory: u64, name: &[u8]) -> Result<Vec<u8>, Errno> {
        let directory = self.node(directory)?;
        match directory.is_detached {
            true => Err(Errno::ENOENT),
            false => Ok(keys::join(&directory.path, name)),
        }
    }

    /// The name at a path, if the kernel knows it.
    pub(crate) fn at(&self, path: &[u8]) -> Option<(u64, &Node)> {
        let number = *self.by_path.get(path)?;
        Some((number, self.nodes.get(&number)?))
    }

    /// The number of what is at a path, for one more lookup of the kernel.
    pub(crate) fn place(&mut self, path: &[u8], kind: Kind, version: u64) -> u64 {
        let known = self.at(path).filter(|(_, node)| {
            let is_same = node.version == version || kind == Kind::Directory;
            node.kind == kind && is_same
        });
        if let Some(number) = known.map(|(number, _)| number) {
            if let Some(node) = self.nodes.get_mut(&number) {
                node.lookups += 1;
                node.version = version;
            }
            return number;
        }
        self.detach(path);
        let number = self.number();
        self.by_path.insert(path.to_vec(), number);
        let node = Node {
            path: path.to_vec(),
            kind,
            version,
            is_detached: false,
            open: None,
            writers: 0,
            handles: 0,
            lookups: 1,
        };
        self.nodes.insert(number, node);
        number
    }

    /// One more lookup of a name whose file is open.
    pub(crate) fn looked_up(&mut self, number: u64) {
        if let Some(node) = self.nodes.get_mut(&number) {
            node.lookups += 1;
        }
    }

    /// A path is nobody's, or will be that of another file.
    pub(crate) fn detach(&mut self, path: &[u8]) {
        let Some(number) = self.by_path.remove(path) else {
            return;
        };
        if let Some(node) = self.nodes.get_mut(&number) {
            node.is_detached = true;
        }
        self.drop_unused(number);
    }

    /// A file has another path.
    pub(crate) fn renamed(&mut self, from: &[u8], to: &[u8], version: u64) {
        self.detach(to);
        let Some(number) = self.by_path.remove(from) else {
            return;
        };
        self.by_path.insert(to.to_vec(), number);
        if let Some(node) = self.nodes.get_mut(&number) {
            node.path = to.to_vec();
            node.version = version;
        }
    }

    /// A file that is open has been stored as this version.
    pub(crate) fn stored(&mut self, path: &[u8], version: u64) {
        if let Some(number) = self.by_path.get(path)
            && let Some(node) = self.nodes.get_mut(number)
        {
            node.version = version;
        }
    }

    pub(crate) fn forget(&mut self, number: u64, lookups: u64) {
        if let Some(node) = self.nodes.get_mut(&number) {
            node.lookups = node.lookups.saturating_sub(lookups);
        }
        self.drop_unused(number);
    }

    fn drop_unused(&mut self, number: u64) {
        let is_unused = |node: &Node| node.lookups == 0 && node.handles == 0;
        if number == ROOT || !self.nodes.get(&number).is_some_and(is_unused) {
            return;
        }
        let path = self.nodes.remove(&number).map(|node| node.path);
        if let Some(path) = path.filter(|path| self.by_path.get(path) == Some(&number)) {
            self.by_path.remove(&path);
        }
    }

    /// A handle of a file. If it is open already, `file` is not used.
    pub(crate) fn open(
        &mut self,
        number: u64,
        is_writer: bool,
        file: OpenFile,
    ) -> Result<u64, Errno> {
        let node = self.nodes.get_mut(&number).ok_or(Errno::ESTALE)?;
        let file = Arc::clone(node.open.get_or_insert(file));
        node.handles += 1;
        node.writers += u32::from(is_writer);
        let handle = self.number();
        let is_of = Handle {
            node: number,
            is_writer,
            file,
        };
        self.handles.insert(handle, is_of);
        Ok(handle)
    }

    pub(crate) fn file(&self, handle: u64) -> Result<OpenFile, Errno> {
        let handle = self.handles.get(&handle).ok_or(Errno::EBADF)?;
        Ok(Arc::clone(&handle.file))
    }

    /// The file of a handle by which it may be written.
    pub(crate) fn written(&self, handle: u64) -> Option<OpenFile> {
        let handle = self.handles.get(&handle).filter(|it| it.is_writer)?;
        Some(Arc::clone(&handle.file))
    }

    /// Ends a handle. Returns the file if it was the last one.
    pub(crate) fn close(&mut self, handle: u64) -> Option<OpenFile> {
        let Handle {
            node: number,
            is_writer,
            file,
        } = self.handles.remove(&handle)?;
        let node = self.nodes.get_mut(&number)?;
        node.handles -= 1;
        node.writers -= u32::from(is_writer);
        if node.handles > 0 {
            return None;
        }
        node.open = None;
        self.drop_unused(number);
        Some(file)
    }

    /// All handles.
    pub(crate) fn open_handles(&self) -> Vec<u64> {
        self.handles.keys().copied().collect()
    }

    /// All files that are open.
    pub(crate) fn open_files(&self) -> Vec<OpenFile> {
        let nodes = self.nodes.values();
        nodes.filter_map(|node| node.open.clone()).collect()
    }

    /// The names in a directory whose files are open.
    pub(crate) fn open_in(&self, directory: &[u8]) -> Vec<(Vec<u8>, OpenFile)> {
        let from = match directory.is_empty() {
            true => Vec::new(),
            false => [directory, b"/"].concat(),
        };
        let known = self
            .by_path
            .range::<[u8], _>((Bound::Included(&*from), Bound::Unbounded));
        known
            .take_while(|(path, _)| path.starts_with(&from))
            .filter(|(path, _)| !path[from.len()..].contains(&b'/'))
            .filter_map(|(path, number)| {
                let open = self.nodes.get(number)?.open.clone()?;
                Some((path[from.len()..].to_vec(), open))
            })
            .collect()
    }

    pub(crate) fn open_directory(&mut self, names: Names) -> u64 {
        let handle = self.number();
        self.directories.insert(handle, Arc::new(names));
        handle
    }

    pub(crate) fn directory(&self, handle: u64) -> Result<Arc<Names>, Errno> {
        self.directories.get(&handle).cloned().ok_or(Errno::EBADF)
    }

    pub(crate) fn close_directory(&mut self, handle: u64) {
        self.directories.remove(&handle);
    }

    fn number(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        number
    }
}
