//! Long histories of a file system, made up from a seed: the records that its metadata targets
//! would write, and beside them the paths that each event had in truth.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use super::fid::Fid;
use super::nid::Nid;
use super::places::FidLink;
use super::record::{ChangelogRecord, record_time};
use super::record_type::RecordType;
use super::standin::{StandInLog, StandInPaths};
use crate::event::ObjectId;

/// Time of the first event, in ns since the epoch.
pub const START_NS: i64 = 1_700_000_000_000_000_000;
/// Most time between two events, in ns.
const STEP_NS_MAX: u64 = 20_000;
/// Most directories above one that is made.
const DEPTH_MAX: usize = 10;
const SEQUENCE: u64 = 0x2_0000_0400;

/// What is true of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Truth {
    /// Type of the record.
    pub record_type: RecordType,
    /// The file or directory of the event.
    pub target: ObjectId,
    /// The paths that are right: one for each name if the record tells no name, and none if the
    /// file has no name any more.
    pub paths: BTreeSet<Vec<u8>>,
    /// The path before a rename or migration.
    pub old_path: Vec<u8>,
}

#[derive(Clone, Debug)]
struct Node {
    is_directory: bool,
    target: usize,
    /// Its names; a directory has one, and a file that is removed while open has none.
    links: Vec<(Fid, Vec<u8>)>,
}

/// A file system that changes at random, with a log for each metadata target.
#[derive(Debug)]
pub struct History {
    random: u64,
    logs: Vec<StandInLog>,
    paths: StandInPaths,
    nodes: BTreeMap<Fid, Node>,
    /// Names in use, by directory.
    names: BTreeMap<Fid, BTreeMap<Vec<u8>, Fid>>,
    directories: Vec<Fid>,
    files: Vec<Fid>,
    made: u32,
    now_ns: i64,
    truths: BTreeMap<(usize, u64), Truth>,
}

/// What a record tells beside its names.
#[derive(Clone, Copy)]
struct Told<'a> {
    of: RecordType,
    flags: u16,
    target: Fid,
    parent: Fid,
    name: &'a [u8],
    source: Option<(Fid, Fid)>,
    old_name: &'a [u8],
}

impl History {
    /// A file system of one empty directory, whose logs are stand-ins in `directory`.
    ///
    /// # Errors
    ///
    /// The directory cannot be written.
    pub fn new(seed: u64, targets: usize, directory: &Path) -> io::Result<Self> {
        let log = |at: usize| StandInLog::open(directory.join(format!("MDT{at:04}")));
        let mut history = Self {
            random: seed,
            logs: (0..targets.max(1)).map(log).collect::<io::Result<_>>()?,
            paths: StandInPaths::default(),
            nodes: BTreeMap::new(),
            names: BTreeMap::new(),
            directories: vec![Fid::ROOT],
            files: Vec::new(),
            made: 0,
            now_ns: START_NS,
            truths: BTreeMap::new(),
        };
        let root = Node {
            is_directory: true,
            target: 0,
            links: Vec::new(),
        };
        history.nodes.insert(Fid::ROOT, root);
        Ok(history)
    }

    /// What tells the places of files now.
    pub fn paths(&self) -> StandInPaths {
        self.paths.clone()
    }

    /// The log of a metadata target.
    pub fn log(&mut self, target: usize) -> &mut StandInLog {
        &mut self.logs[target]
    }

    /// Time of the last event, in ns since the epoch.
    pub fn now_ns(&self) -> i64 {
        self.now_ns
    }

    /// What is true of each event, by metadata target and index.
    pub fn truths(&self) -> &BTreeMap<(usize, u64), Truth> {
        &self.truths
    }

    /// Lets about this many events happen, and writes their records.
    ///
    /// # Errors
    ///
    /// A log cannot be written.
    pub fn run(&mut self, events: usize) -> io::Result<()> {
        for _ in 0..events {
            self.step();
        }
        self.logs.iter_mut().try_for_each(StandInLog::flush)
    }

    fn step(&mut self) {
        match self.below(100) {
            0..=24 => self.make(RecordType::Create),
            25..=34 => self.make(RecordType::Mkdir),
            35..=36 => self.make(RecordType::SoftLink),
            37..=56 => self.touch(),
            57..=61 => self.link(),
            62..=74 => self.unlink(),
            75..=78 => self.rmdir(),
            79..=89 => self.rename_file(),
            90..=96 => self.rename_directory(),
            _ => self.migrate(),
        }
    }

    fn make(&mut self, of: RecordType) {
        let is_directory = of == RecordType::Mkdir;
        let parent = self.any_directory();
        if is_directory && self.depth(parent) >= DEPTH_MAX {
            return;
        }
        let name = self.new_name(parent);
        self.made += 1;
        let fid = Fid::new(SEQUENCE + u64::from(self.made % 7), self.made, 0);
        let target = match is_directory {
            true => self.below(self.logs.len()),
            false => self.nodes[&parent].target,
        };
        let node = Node {
            is_directory,
            target,
            links: Vec::new(),
        };
        self.nodes.insert(fid, node);
        match is_directory {
            true => self.directories.push(fid),
            false => self.files.push(fid),
        }
        self.add_name(fid, parent, &name);
        self.tell_name(of, 0, fid, parent, &name);
    }

    /// An event that tells no name.
    fn touch(&mut self) {
        let types = [
            (RecordType::Close, 0x42),
            (RecordType::SetAttribute, 0x14),
            (RecordType::Xattr, 0),
            (RecordType::Truncate, 0xe),
            (RecordType::Open, 0x1),
        ];
        let (of, flags) = types[self.below(types.len())];
        let fid = match self.below(5) {
            0 => self.any_directory(),
            _ => match self.any_file() {
                Some(fid) => fid,
                None => return,
            },
        };
        let paths = self.paths_of(fid);
        let told = Told {
            of,
            flags,
            target: fid,
            parent: Fid::NONE,
            name: b"",
            source: None,
            old_name: b"",
        };
        let target = self.nodes[&fid].target;
        self.tell(target, told, fid, paths, Vec::new());
    }

    fn link(&mut self) {
        let Some(fid) = self.any_file() else { return };
        if self.nodes[&fid].links.is_empty() {
            return;
        }
        let parent = self.any_directory();
        let name = self.new_name(parent);
        self.add_name(fid, parent, &name);
        self.tell_name(RecordType::HardLink, 0, fid, parent, &name);
    }

    fn unlink(&mut self) {
        let Some(fid) = self.any_file() else { return };
        let links = self.nodes[&fid].links.len();
        if links == 0 {
            self.forget(fid);
            return;
        }
        let at = self.below(links);
        let (parent, name) = self.nodes[&fid].links[at].clone();
        let paths = BTreeSet::from([self.path_in(parent, &name)]);
        self.take_name(fid, parent, &name);
        let flags = u16::from(links == 1);
        self.tell_paths(RecordType::Unlink, flags, fid, parent, &name, paths);
    }

    fn rmdir(&mut self) {
        let fid = self.any_directory();
        let is_empty = self.names.get(&fid).is_none_or(BTreeMap::is_empty);
        if fid == Fid::ROOT || !is_empty {
            return;
        }
        let (parent, name) = self.nodes[&fid].links[0].clone();
        let paths = BTreeSet::from([self.path_in(parent, &name)]);
        self.take_name(fid, parent, &name);
        self.directories.retain(|of| *of != fid);
        self.tell_paths(RecordType::Rmdir, 1, fid, parent, &name, paths);
        self.nodes.remove(&fid);
    }

    fn rename_file(&mut self) {
        let Some(fid) = self.any_file() else { return };
        let links = self.nodes[&fid].links.len();
        if links == 0 {
            return;
        }
        let at = self.below(links);
        let old = self.nodes[&fid].links[at].clone();
        let parent = self.any_directory();
        // A third of the renames replaces a file.
        let replaced = self.names.get(&parent).and_then(|names| {
            let mut names = names.iter();
            names.find(|(_, of)| **of != fid && !self.nodes[of].is_directory)
        });
        let replaced = replaced.map(|(name, of)| (name.clone(), *of));
        let replaced = replaced.filter(|_| self.below(3) == 0);
        self.rename(fid, old, parent, replaced);
    }

    fn rename_directory(&mut self) {
        let (fid, parent) = (self.any_directory(), self.any_directory());
        let is_deep = self.depth(parent) > self.depth(fid).max(DEPTH_MAX / 2);
        if fid == Fid::ROOT || is_deep || self.is_below(parent, fid) {
            return;
        }
        let old = self.nodes[&fid].links[0].clone();
        self.rename(fid, old, parent, None);
    }

    fn rename(
        &mut self,
        fid: Fid,
        (old_parent, old_name): (Fid, Vec<u8>),
        parent: Fid,
        replaced: Option<(Vec<u8>, Fid)>,
    ) {
        let old_path = self.path_in(old_parent, &old_name);
        let (name, target, flags) = match replaced {
            Some((name, of)) => {
                self.take_name(of, parent, &name);
                let is_last = self.nodes[&of].links.is_empty();
                (name, of, u16::from(is_last))
            }
            None => (self.new_name(parent), Fid::NONE, 0),
        };
        self.take_name(fid, old_parent, &old_name);
        self.add_name(fid, parent, &name);
        let told = Told {
            of: RecordType::Rename,
            flags,
            target,
            parent,
            name: &name,
            source: Some((fid, old_parent)),
            old_name: &old_name,
        };
        let paths = BTreeSet::from([self.path_in(parent, &name)]);
        // The log of the new directory's target alone has the record.
        let log = self.nodes[&parent].target;
        self.tell(log, told, fid, paths, old_path);
    }

    /// Moves an empty directory to another target, under another FID.
    fn migrate(&mut self) {
        let old = self.any_directory();
        let is_empty = self.names.get(&old).is_none_or(BTreeMap::is_empty);
        if old == Fid::ROOT || !is_empty {
            return;
        }
        let (parent, name) = self.nodes[&old].links[0].clone();
        self.take_name(old, parent, &name);
        self.nodes.remove(&old);
        self.made += 1;
        let new = Fid::new(SEQUENCE, self.made, 0);
        let node = Node {
            is_directory: true,
            target: self.below(self.logs.len()),
            links: Vec::new(),
        };
        self.nodes.insert(new, node);
        self.directories.retain(|of| *of != old);
        self.directories.push(new);
        self.add_name(new, parent, &name);
        let told = Told {
            of: RecordType::Migrate,
            flags: 0,
            target: new,
            parent,
            name: &name,
            source: Some((old, parent)),
            old_name: &name,
        };
        let path = self.path_in(parent, &name);
        let log = self.nodes[&parent].target;
        self.tell(log, told, new, BTreeSet::from([path.clone()]), path);
    }

    fn tell_name(&mut self, of: RecordType, flags: u16, fid: Fid, parent: Fid, name: &[u8]) {
        let paths = BTreeSet::from([self.path_in(parent, name)]);
        self.tell_paths(of, flags, fid, parent, name, paths);
    }

    fn tell_paths(
        &mut self,
        of: RecordType,
        flags: u16,
        fid: Fid,
        parent: Fid,
        name: &[u8],
        paths: BTreeSet<Vec<u8>>,
    ) {
        let told = Told {
            of,
            flags,
            target: fid,
            parent,
            name,
            source: None,
            old_name: b"",
        };
        let log = self.nodes[&parent].target;
        self.tell(log, told, fid, paths, Vec::new());
    }

    fn tell(
        &mut self,
        log: usize,
        told: Told<'_>,
        fid: Fid,
        paths: BTreeSet<Vec<u8>>,
        old_path: Vec<u8>,
    ) {
        self.now_ns += 1 + (self.random() % STEP_NS_MAX) as i64;
        let record = ChangelogRecord {
            type_number: told.of as u32,
            flags: told.flags,
            time: record_time(self.now_ns),
            target: told.target,
            parent: told.parent,
            source: told.source,
            job: b"history.1",
            user: Some((500, 100)),
            nid: Some(Nid::Small(2 << 48 | 0x0a00_0001)),
            name: told.name,
            old_name: told.old_name,
            ..ChangelogRecord::default()
        };
        let index = self.logs[log].append(&record);
        let truth = Truth {
            record_type: told.of,
            target: fid.id(),
            paths,
            old_path,
        };
        self.truths.insert((log, index), truth);
    }

    fn add_name(&mut self, fid: Fid, parent: Fid, name: &[u8]) {
        self.names
            .entry(parent)
            .or_default()
            .insert(name.to_vec(), fid);
        if let Some(node) = self.nodes.get_mut(&fid) {
            node.links.push((parent, name.to_vec()));
        }
        self.show(fid);
    }

    fn take_name(&mut self, fid: Fid, parent: Fid, name: &[u8]) {
        if let Some(names) = self.names.get_mut(&parent) {
            names.remove(name);
        }
        if let Some(node) = self.nodes.get_mut(&fid) {
            node.links
                .retain(|(of, known)| *of != parent || known != name);
        }
        self.show(fid);
    }

    /// Has the stand-in of the file system tell the links of a file as they are.
    fn show(&self, fid: Fid) {
        let links = self.nodes[&fid].links.iter();
        let links = links.map(|(parent, name)| FidLink::new(*parent, name));
        self.paths.set(fid, links.collect());
    }

    fn forget(&mut self, fid: Fid) {
        self.files.retain(|of| *of != fid);
        self.nodes.remove(&fid);
    }

    fn paths_of(&self, fid: Fid) -> BTreeSet<Vec<u8>> {
        if fid == Fid::ROOT {
            return BTreeSet::from([b"/".to_vec()]);
        }
        let links = self.nodes[&fid].links.iter();
        links
            .map(|(parent, name)| self.path_in(*parent, name))
            .collect()
    }

    fn path_in(&self, parent: Fid, name: &[u8]) -> Vec<u8> {
        let (mut parts, mut at) = (vec![name.to_vec()], parent);
        while let Some((above, name)) = self.nodes[&at].links.first() {
            parts.push(name.clone());
            at = *above;
        }
        parts.push(Vec::new());
        parts.reverse();
        parts.join(&b'/')
    }

    fn is_below(&self, fid: Fid, top: Fid) -> bool {
        let mut at = Some(fid);
        while let Some(fid) = at {
            if fid == top {
                return true;
            }
            at = self.nodes[&fid].links.first().map(|(parent, _)| *parent);
        }
        false
    }

    fn depth(&self, fid: Fid) -> usize {
        let (mut depth, mut at) = (0, fid);
        while let Some((parent, _)) = self.nodes[&at].links.first() {
            (depth, at) = (depth + 1, *parent);
        }
        depth
    }

    fn any_directory(&mut self) -> Fid {
        let at = self.below(self.directories.len());
        self.directories[at]
    }

    /// A file; every other one is among the youngest.
    fn any_file(&mut self) -> Option<Fid> {
        let count = self.files.len();
        let among = if self.random().is_multiple_of(2) {
            count
        } else {
            count.min(20)
        };
        let back = self.below(among);
        let at = count.checked_sub(1 + back)?;
        self.files.get(at).copied()
    }

    /// A name that the directory does not have, of any bytes that a name can have.
    fn new_name(&mut self, parent: Fid) -> Vec<u8> {
        loop {
            let length = if self.below(200) == 0 {
                255
            } else {
                1 + self.below(9)
            };
            let byte = |history: &mut Self| match history.below(255) as u8 + 1 {
                b'/' => b'x',
                byte => byte,
            };
            let name: Vec<u8> = (0..length).map(|_| byte(self)).collect();
            let is_used = self
                .names
                .get(&parent)
                .is_some_and(|names| names.contains_key(&name));
            if !is_used && name != b"." && name != b".." {
                return name;
            }
        }
    }

    fn below(&mut self, count: usize) -> usize {
        (self.random() % count.max(1) as u64) as usize
    }

    /// The next number of SplitMix64.
    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = self.random;
        let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }
}
