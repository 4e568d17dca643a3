//! The identities of objects by their names: those that the events of a fanotify group have.
//!
//! They come from the text that the kernel shows of an inotify instance, which has the file handle
//! of each watched object. The watches exist only for the moment of reading.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::Stat;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;

use crate::event::ObjectId;
use crate::fanotify::parse::{FileHandle, HANDLE_BYTES_MAX};
use crate::scan::Identify;

/// Most watches at once.
const WATCHES_MAX: usize = 512;

/// What was found for a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Identity {
    /// The identity of the object, and the low half of its inode number if it is known.
    Known(ObjectId, Option<u32>),
    /// There is no such name, or it is on another file system.
    Gone,
    /// This process may not read the object, or it has no handle.
    Refused,
}

impl Identity {
    /// The identity; [`ObjectId::NONE`] if it is not known.
    pub(super) fn id(self) -> ObjectId {
        match self {
            Self::Known(id, _) => id,
            Self::Gone | Self::Refused => ObjectId::NONE,
        }
    }

    /// Whether these attributes, which were read at another time, are of the same object.
    pub(super) fn is_of(self, stat: &Stat) -> bool {
        matches!(self, Self::Known(_, inode) if inode.is_none_or(|of| of == stat.st_ino as u32))
    }
}

/// A reader of identities in one file system.
#[derive(Debug)]
pub(super) struct HandleReader {
    inotify: OwnedFd,
    fsid: u64,
    /// The device of the file system as the kernel shows it.
    device: Vec<u8>,
    /// Words of handles that were the inode number for all objects so far, as bits. File systems
    /// have it at one place.
    inode_words: Cell<u32>,
    /// Whether the inode numbers that the kernel shows are those of `stat`.
    shows_inode: bool,
}

impl HandleReader {
    /// A reader for the file system of `base`, and the identity of `base`.
    pub(super) fn open(base: BorrowedFd<'_>) -> io::Result<(Self, ObjectId)> {
        let mut reader = Self {
            inotify: inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?,
            fsid: rustix::fs::fstatvfs(base)?.f_fsid,
            device: Vec::new(),
            inode_words: Cell::new(u32::MAX),
            shows_inode: false,
        };
        let path = format!("/proc/self/fd/{}/.", base.as_raw_fd());
        let watch = inotify::add_watch(&reader.inotify, path, WatchFlags::DELETE_SELF)?;
        let text = reader.text();
        reader.forget(&[Some(watch)]);
        let text = text?;
        let shown = text
            .split(|byte| *byte == b'\n')
            .find_map(ShownWatch::parse);
        let shown = shown.ok_or_else(|| {
            io::Error::other("the kernel shows no file handle in /proc/self/fdinfo")
        })?;
        reader.device = shown.device.to_vec();
        let id = shown.id(reader.fsid);
        reader.learn_inode_words(&shown);
        reader.shows_inode = rustix::fs::fstat(base)?.st_ino as u32 == shown.inode;
        Ok((reader, id))
    }

    /// The identities of names in a directory, or of absolute paths; symbolic links are not
    /// followed.
    ///
    /// # Errors
    ///
    /// There is no room for a watch now.
    pub(super) fn identities(
        &self,
        directory: BorrowedFd<'_>,
        names: &[Vec<u8>],
    ) -> io::Result<Vec<Identity>> {
        let mut found = Vec::with_capacity(names.len());
        while found.len() < names.len() {
            let end = names.len().min(found.len() + WATCHES_MAX);
            self.some(directory, &names[found.len()..end], &mut found)?;
        }
        Ok(found)
    }

    /// The low half of the inode number of an object, from its handle; `None` if the file system
    /// does not have it there.
    pub(super) fn inode(&self, handle: &[u8]) -> Option<u32> {
        let at = self.inode_words.get().trailing_zeros() as usize;
        words(handle).nth(at)
    }

    fn learn_inode_words(&self, shown: &ShownWatch<'_>) {
        let are_inode = words(&shown.handle).map(|word| word == shown.inode);
        let bits = are_inode.enumerate().filter(|(_, is_inode)| *is_inode);
        let bits = bits.fold(0, |bits, (at, _)| bits | 1 << at);
        self.inode_words.set(self.inode_words.get() & bits);
    }

    /// The identities of the first names, of one at least.
    fn some(
        &self,
        directory: BorrowedFd<'_>,
        names: &[Vec<u8>],
        found: &mut Vec<Identity>,
    ) -> io::Result<()> {
        let mut watches = Vec::with_capacity(names.len());
        let start = found.len();
        for name in names {
            let mut path = match name.first() {
                Some(b'/') => Vec::new(),
                _ => format!("/proc/self/fd/{}/", directory.as_raw_fd()).into_bytes(),
            };
            path.extend(name);
            let flags = WatchFlags::DELETE_SELF | WatchFlags::DONT_FOLLOW;
            match inotify::add_watch(&self.inotify, &path[..], flags) {
                Ok(watch) => {
                    watches.push(Some(watch));
                    found.push(Identity::Gone);
                }
                Err(Errno::NOSPC | Errno::NOMEM | Errno::MFILE | Errno::NFILE)
                    if !watches.is_empty() =>
                {
                    break;
                }
                Err(errno @ (Errno::NOSPC | Errno::NOMEM | Errno::MFILE | Errno::NFILE)) => {
                    return Err(errno.into());
                }
                Err(errno) => {
                    watches.push(None);
                    found.push(match errno {
                        Errno::ACCESS | Errno::PERM => Identity::Refused,
                        _ => Identity::Gone,
                    });
                }
            }
        }
        let text = match watches.iter().any(Option::is_some) {
            true => self.text(),
            false => Ok(Vec::new()),
        };
        self.forget(&watches);
        let text = text?;
        for shown in text
            .split(|byte| *byte == b'\n')
            .filter_map(ShownWatch::parse)
        {
            let at = watches.iter().enumerate();
            // Two names of one object share a watch.
            for (at, _) in at.filter(|(_, watch)| **watch == Some(shown.watch)) {
                if shown.device == self.device {
                    self.learn_inode_words(&shown);
                    let inode = self.shows_inode.then_some(shown.inode);
                    found[start + at] = Identity::Known(shown.id(self.fsid), inode);
                }
            }
        }
        Ok(())
    }

    fn text(&self) -> io::Result<Vec<u8>> {
        std::fs::read(format!("/proc/self/fdinfo/{}", self.inotify.as_raw_fd()))
    }

    /// Removes watches, and reads what the kernel says about their removal.
    fn forget(&self, watches: &[Option<i32>]) {
        for watch in watches.iter().flatten() {
            // Of two names of one object, the first has removed the watch.
            let _ = inotify::remove_watch(&self.inotify, *watch);
        }
        let mut bytes = [0; 4096];
        while rustix::io::read(&self.inotify, &mut bytes).is_ok_and(|count| count > 0) {}
    }
}

/// Whether an error passes by itself.
pub(super) fn is_passing(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN
    )
}

impl Identify for HandleReader {
    fn identity(
        &self,
        directory: BorrowedFd<'_>,
        name: &[u8],
        inode: u64,
    ) -> rustix::io::Result<ObjectId> {
        let found = self.identities(directory, &[name.to_vec()]);
        // There is no room for a watch now.
        let found = found.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::NOMEM))?;
        match found[..] {
            [Identity::Known(id, seen)] if seen.is_none_or(|seen| seen == inode as u32) => Ok(id),
            [Identity::Refused] => Err(Errno::ACCESS),
            _ => Err(Errno::STALE),
        }
    }
}

/// The words of a handle, which has 32 at most.
fn words(handle: &[u8]) -> impl Iterator<Item = u32> {
    let (words, _) = handle.as_chunks::<4>();
    words.iter().map(|word| u32::from_ne_bytes(*word))
}

/// A line about a watch.
struct ShownWatch<'a> {
    watch: i32,
    /// The low half of the inode number.
    inode: u32,
    device: &'a [u8],
    kind: i32,
    handle: Vec<u8>,
}

impl<'a> ShownWatch<'a> {
    /// Reads a line such as `inotify wd:1 ino:5 sdev:1b mask:400 ignored_mask:0 fhandle-bytes:8
    /// fhandle-type:1 f_handle:d741120025`; all numbers are hexadecimal.
    fn parse(line: &'a [u8]) -> Option<Self> {
        let rest = line.strip_prefix(b"inotify ")?;
        let field = |key: &str| {
            let mut words = rest.split(|byte| *byte == b' ');
            words.find_map(|word| word.strip_prefix(key.as_bytes())?.strip_prefix(b":"))
        };
        let number = |key: &str| {
            let text = std::str::from_utf8(field(key)?).ok()?;
            u32::from_str_radix(text, 16).ok()
        };
        let inode = std::str::from_utf8(field("ino")?).ok()?;
        let digits = field("f_handle")?;
        let length = number("fhandle-bytes")? as usize;
        if length > HANDLE_BYTES_MAX || digits.len() != 2 * length {
            return None;
        }
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let pairs = digits.chunks_exact(2);
        let bytes = pairs.map(|pair| Some((digit(pair[0])? << 4 | digit(pair[1])?) as u8));
        Some(Self {
            watch: number("wd")?.cast_signed(),
            inode: u64::from_str_radix(inode, 16).ok()? as u32,
            device: field("sdev")?,
            kind: number("fhandle-type")?.cast_signed(),
            handle: bytes.collect::<Option<_>>()?,
        })
    }

    fn id(&self, fsid: u64) -> ObjectId {
        let (kind, bytes) = (self.kind, &self.handle[..]);
        FileHandle { kind, bytes }.id(fsid)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line() {
        let line = b"inotify wd:a ino:1241d7 sdev:fe00000 mask:400 ignored_mask:0 \
            fhandle-bytes:8 fhandle-type:1 f_handle:d7411200258d71e7";
        let shown = ShownWatch::parse(line).unwrap();
        assert_eq!(
            (shown.watch, shown.device, shown.kind),
            (10, &b"fe00000"[..], 1)
        );
        assert_eq!(shown.id(9), ObjectId::of(9, 0xd741_1200_258d_71e7));
        for (from, to) in [
            ("wd:a", "wd:x"),
            ("bytes:8", "bytes:7"),
            ("handle:d7", "handle:g7"),
            ("sdev", "s"),
        ] {
            let changed = String::from_utf8(line.to_vec()).unwrap().replace(from, to);
            assert!(ShownWatch::parse(changed.as_bytes()).is_none(), "{changed}");
        }
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_refused(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(ShownWatch::parse(&line).is_none());
            ShownWatch::parse(&[b"inotify f_handle:ff ", &line[..]].concat());
        }
    }

    #[test]
    fn names_of_one_object_have_one_identity_and_others_have_others() {
        let dir = tempfile::tempdir().unwrap();
        let mut names: Vec<Vec<u8>> = (0..700).map(|n| format!("d{n}").into_bytes()).collect();
        for name in &names {
            std::fs::create_dir(dir.path().join(std::str::from_utf8(name).unwrap())).unwrap();
        }
        std::fs::write(dir.path().join("f"), "").unwrap();
        std::fs::hard_link(dir.path().join("f"), dir.path().join("g")).unwrap();
        std::os::unix::fs::symlink("f", dir.path().join("l")).unwrap();
        names.extend([
            b"f".to_vec(),
            b"g".to_vec(),
            b"l".to_vec(),
            b"gone".to_vec(),
        ]);
        let file = std::fs::File::open(dir.path()).unwrap();
        let (reader, id) = HandleReader::open(file.as_fd()).unwrap();
        let found = reader.identities(file.as_fd(), &names).unwrap();
        assert_eq!(found.len(), 704);
        assert_eq!((found[700], found[703]), (found[701], Identity::Gone));
        assert_ne!(found[700], found[702]);
        let known = found
            .iter()
            .filter(|found| matches!(found, Identity::Known(..)));
        assert_eq!(known.count(), 703);
        let is_directory = |found: &Identity| matches!(found, Identity::Known(of, _) if *of == id);
        assert!(!found.iter().any(is_directory));
        let itself = reader.identities(file.as_fd(), &[b".".to_vec()]).unwrap();
        assert!(itself.len() == 1 && is_directory(&itself[0]), "{itself:?}");
        // Both ext4 and tmpfs have the inode number in their handles.
        assert_eq!(reader.inode_words.get().count_ones(), 1);
        let mut different: Vec<_> = found.iter().map(|found| format!("{found:?}")).collect();
        different.sort();
        different.dedup();
        assert_eq!(different.len(), 703);
        // None of the watches has stayed.
        assert!(!reader.text().unwrap().windows(3).any(|part| part == b"wd:"));
    }
}
