//! Paths at the time of an event, from the records themselves as far as they tell.
//!
//! The resolver applies the records of all logs of a file system in the order of their times. It
//! knows parent and name of each directory ([`DirectoryTable`]) and of the files that were seen
//! last, so that most paths need no question. What is unknown is looked for in the records that
//! were read ahead: the first one that moves or removes a name tells that it was there before. Only
//! then is the file system asked, for many FIDs at once, and for each one once in a batch of
//! records. Its answers are names of *now*; a name that a record read ahead has given is not taken.
//!
//! What cannot be known: if a directory is unknown here, and was renamed after the last record that
//! has been read, the answer is its new name already, and paths of events before have the new name.
//! After a start the backlog is surveyed for such names. So it happens
//!
//! * if the backlog is longer than what is surveyed, and with files of several names;
//! * later, if a directory that is still unknown is renamed behind what is read ahead, and in the
//!   moment between reading and asking;
//! * after a start with several logs whose common position was lost, or had to be given up
//!   ([`super::positions`]): a rename that is cleared in one log is not known to events before it
//!   that another log tells again.
//!
//! A directory that was removed after the last record read has no name any more: paths below it are
//! marked as incomplete.

use std::collections::HashSet;
use std::io;

use super::fid::{Fid, FidHash};
use super::item::{LogContent, LogItem};
use super::places::{FidLink, GoneFids, LinkTable};
use super::record::ChangelogRecord;
use super::record_type::RecordType;
use super::survey::FirstNames;
use super::window::{NameChanges, has_others, is_name};
use crate::directories::{DirectoryTable, PathFault, PathOf};

/// Most links of a file that are kept.
const LINKS_MAX: usize = 16;
/// Most directories above one that are looked for.
const DEPTH_MAX: usize = 256;

/// What the file system answers for a FID.
#[derive(Debug)]
pub enum FidPlace {
    /// Its names now, each with its directory. A directory has one.
    Links(Vec<FidLink>),
    /// It exists no more.
    Gone,
    /// The question failed; it is asked again when it is needed again.
    Refused(io::Error),
}

/// Something that knows the places of files now, such as the client's mount.
///
/// It gives parents and names rather than whole paths, since a path goes stale with each rename of
/// a directory above, while a parent and a name go into the table of directories.
pub trait FidPaths: Send {
    /// The places of these FIDs, in their order.
    fn places(&mut self, fids: &[Fid]) -> Vec<FidPlace>;
}

/// How paths are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolverOptions {
    /// Path of the file system's root, such as its mount point.
    pub root: Vec<u8>,
    /// Most directories whose places are known.
    pub directories_max: usize,
    /// Most files whose names are known.
    pub files_max: usize,
    /// Most FIDs that are known to be gone.
    pub gone_max: usize,
    /// Most FIDs that are asked for in one batch of records. What is beyond has incomplete paths.
    pub asked_max: usize,
}

impl Default for ResolverOptions {
    fn default() -> Self {
        Self {
            root: b"/".to_vec(),
            directories_max: 4_000_000,
            files_max: 200_000,
            gone_max: 65_536,
            asked_max: 8_192,
        }
    }
}

/// The paths of a record's event.
#[derive(Debug, Default)]
pub(crate) struct RecordPaths {
    pub(crate) path: Vec<u8>,
    pub(crate) is_whole: bool,
    pub(crate) old_path: Vec<u8>,
    pub(crate) is_old_whole: bool,
    /// The directory, if the record does not tell it.
    pub(crate) parent: Fid,
    pub(crate) is_directory: bool,
}

/// The places of directories and files of one file system.
pub(crate) struct Resolver {
    table: DirectoryTable,
    links: LinkTable,
    gone: GoneFids,
    /// Names of the future that surveys have found.
    first_names: FirstNames,
    paths: Box<dyn FidPaths>,
    options: ResolverOptions,
    /// FIDs that were asked for so far.
    pub(crate) asked: u64,
    /// Why the last question failed; empty after one that did not.
    pub(crate) refusal: String,
    /// Whether a directory found no room in the table.
    pub(crate) is_full: bool,
}

/// The FIDs that a batch needs and that are unknown, each with whether it is a directory.
#[derive(Default)]
struct Wanted {
    list: Vec<(Fid, bool)>,
    /// Those of the list so far, and those whose way to the root is known.
    seen: HashSet<Fid, FidHash>,
    /// Those that come to be within the batch.
    made: HashSet<Fid, FidHash>,
}

impl Resolver {
    pub(crate) fn new(options: ResolverOptions, paths: Box<dyn FidPaths>) -> Self {
        let mut resolver = Self {
            table: DirectoryTable::new(options.directories_max.max(1)),
            links: LinkTable::new(options.files_max),
            gone: GoneFids::new(options.gone_max),
            first_names: FirstNames::default(),
            paths,
            options,
            asked: 0,
            refusal: String::new(),
            is_full: false,
        };
        resolver.insert_root();
        resolver
    }

    pub(crate) fn directories(&self) -> usize {
        self.table.len()
    }

    /// Forgets all places, since records that moved directories may be lost.
    pub(crate) fn forget(&mut self) {
        self.table = DirectoryTable::new(self.options.directories_max.max(1));
        self.links.clear();
        self.gone.clear();
        self.is_full = false;
        self.insert_root();
    }

    /// Takes in what the survey of a log has found.
    pub(crate) fn learn(&mut self, names: FirstNames) {
        self.first_names.merge(names);
    }

    fn insert_root(&mut self) {
        // It fails only if the path is longer than any can be: all paths are incomplete then.
        let placed = self.table.insert_root(Fid::ROOT.id(), &self.options.root);
        self.is_full |= placed.is_err();
    }

    /// Finds what the records of a batch need. `ahead` gives the batch and all records that were
    /// read after it.
    pub(crate) fn prepare<'a, I>(
        &mut self,
        batch: impl Iterator<Item = &'a LogItem>,
        ahead: impl Fn() -> I,
    ) where
        I: Iterator<Item = &'a LogItem>,
    {
        let mut wanted = Wanted::default();
        for item in batch {
            if let LogContent::Record(bytes) = &item.content
                && let Ok((record, _)) = ChangelogRecord::parse(bytes)
            {
                self.want_for(&record, &mut wanted);
            }
        }
        let mut left = self.options.asked_max;
        for _ in 0..DEPTH_MAX {
            let list = std::mem::take(&mut wanted.list);
            if list.is_empty() {
                break;
            }
            let mut changes = NameChanges::of(list.iter().map(|(fid, _)| *fid), ahead());
            let mut found = Vec::with_capacity(list.len());
            for (fid, _) in &list {
                let mut before = changes.names_before(*fid);
                if let Some(link) = self.first_names.get(*fid).filter(|_| before.is_unclear()) {
                    before.links.push(link.clone());
                    before.is_to_ask = false;
                }
                found.push(before);
            }
            let gone = &self.gone;
            let to_ask = (0..list.len()).filter(|at| {
                let is_gone = gone.has(list[*at].0);
                found[*at].is_to_ask && !is_gone
            });
            let asked: Vec<usize> = to_ask.take(left).collect();
            left -= asked.len();
            let fids: Vec<Fid> = asked.iter().map(|at| list[*at].0).collect();
            for (at, place) in asked.into_iter().zip(self.ask(&fids)) {
                match place {
                    FidPlace::Links(links) => {
                        let before = &mut found[at];
                        let old = links
                            .into_iter()
                            .filter(|link| !before.gained.contains(link));
                        let old: Vec<_> = old.filter(|link| !before.links.contains(link)).collect();
                        before.links.extend(old);
                    }
                    FidPlace::Gone if found[at].links.is_empty() => self.gone.insert(list[at].0),
                    FidPlace::Gone | FidPlace::Refused(_) => {}
                }
            }
            for ((fid, is_directory), before) in list.into_iter().zip(found) {
                self.take_links(fid, is_directory, before.links, &mut wanted);
            }
        }
    }

    fn ask(&mut self, fids: &[Fid]) -> Vec<FidPlace> {
        if fids.is_empty() {
            return Vec::new();
        }
        self.asked += fids.len() as u64;
        let places = self.paths.places(fids);
        let refusal = places.iter().find_map(|place| match place {
            FidPlace::Refused(error) => Some(error.to_string()),
            FidPlace::Links(_) | FidPlace::Gone => None,
        });
        self.refusal = refusal.unwrap_or_default();
        places
    }

    /// Notes what a record needs.
    fn want_for(&mut self, record: &ChangelogRecord<'_>, wanted: &mut Wanted) {
        let Some(of) = record.record_type().filter(|of| *of != RecordType::Mark) else {
            return;
        };
        if is_name(record.name) {
            self.want(record.parent, true, wanted);
        } else if record.name.is_empty() && !record.target.is_none() {
            self.want(record.target, false, wanted);
        }
        if let Some((_, parent)) = record.source.filter(|_| is_name(record.old_name)) {
            self.want(parent, true, wanted);
        }
        let is_made = of.kind().makes_name() && of != RecordType::HardLink;
        if is_made || of == RecordType::Migrate {
            wanted.made.insert(record.target);
        }
        // A file that loses the only name that is known here has others.
        if of == RecordType::Unlink && has_others(record) {
            let known = self.links.get(record.target);
            let is_only = known.len() == 1 && known[0].is(record.parent, record.name);
            if is_only && wanted.seen.insert(record.target) {
                wanted.list.push((record.target, false));
            }
        }
    }

    /// Notes that a place is needed, or the one above it that is unknown.
    fn want(&mut self, fid: Fid, is_directory: bool, wanted: &mut Wanted) {
        let (mut fid, mut is_directory) = (fid, is_directory);
        for _ in 0..DEPTH_MAX {
            let is_known = fid.is_none() || fid == Fid::ROOT;
            if is_known || wanted.made.contains(&fid) || !wanted.seen.insert(fid) {
                return;
            }
            if is_directory {
                self.promote(fid);
            }
            let above = match self.table.get(fid.id()) {
                Some((parent, _)) => parent.map(Fid::from_id),
                None => self.links.get(fid).first().map(|link| link.parent),
            };
            let Some(above) = above else {
                wanted.list.push((fid, is_directory));
                return;
            };
            (fid, is_directory) = (above, true);
        }
    }

    /// Takes in the names that a file or directory had before the batch.
    fn take_links(
        &mut self,
        fid: Fid,
        is_directory: bool,
        links: Vec<FidLink>,
        wanted: &mut Wanted,
    ) {
        let mut known = self.links.remove(fid);
        for mut link in links {
            if is_shard_name(&link.name) {
                link.name = Box::default();
            }
            if !known.contains(&link) {
                known.push(link);
            }
        }
        known.truncate(LINKS_MAX);
        for link in &known {
            self.want(link.parent, true, wanted);
        }
        self.links.set(fid, known);
        if is_directory {
            self.promote(fid);
        }
    }

    /// Moves a directory of which only the links are known into the table, and tells whether it
    /// did.
    fn promote(&mut self, fid: Fid) -> bool {
        if self.links.get(fid).is_empty() || self.table.has(fid.id()) {
            return false;
        }
        let link = self.links.remove(fid).into_iter().next();
        link.is_some_and(|link| self.place(fid, link.parent, &link.name))
    }

    fn place(&mut self, fid: Fid, parent: Fid, name: &[u8]) -> bool {
        if fid == parent || fid == Fid::ROOT {
            return false;
        }
        let placed = self.table.insert(fid.id(), parent.id(), name);
        self.is_full |= placed == Err(PathFault::Full);
        placed.is_ok()
    }

    /// The paths of a record's event, before the record is applied.
    pub(crate) fn paths_of(&mut self, record: &ChangelogRecord<'_>) -> RecordPaths {
        let mut paths = RecordPaths {
            parent: record.parent,
            is_whole: true,
            is_old_whole: true,
            ..RecordPaths::default()
        };
        match record.record_type() {
            None | Some(RecordType::Mark) => return paths,
            Some(of) => {
                let id = record
                    .source
                    .map_or(record.target, |(source, _)| source)
                    .id();
                paths.is_directory =
                    matches!(of, RecordType::Mkdir | RecordType::Rmdir) || self.table.has(id);
            }
        }
        if record.name.is_empty() {
            let (path, is_whole, parent) = self.path_of_object(record.target, record.parent);
            (paths.path, paths.is_whole, paths.parent) = (path, is_whole, parent);
        } else {
            (paths.path, paths.is_whole) = self.path_in(record.parent, record.name);
        }
        if let Some((_, old_parent)) = record.source {
            (paths.old_path, paths.is_old_whole) = self.path_in(old_parent, record.old_name);
            paths.is_old_whole &= !record.old_name.is_empty();
        }
        paths
    }

    /// The path of a name, and whether it is whole.
    fn path_in(&mut self, parent: Fid, name: &[u8]) -> (Vec<u8>, bool) {
        if name.contains(&b'/') {
            // Some services write the path from the root on in place of the name.
            let name = name.strip_prefix(b"/").unwrap_or(name);
            return self.whole(|table| table.path_in(Fid::ROOT.id(), name));
        }
        self.whole(|table| table.path_in(parent.id(), name))
    }

    /// The path that the table gives, and whether it is whole. Directories above of which only the
    /// links are known are taken into the table.
    fn whole(&mut self, path: impl Fn(&DirectoryTable) -> PathOf) -> (Vec<u8>, bool) {
        for _ in 0..DEPTH_MAX {
            match path(&self.table) {
                PathOf::Whole(path) => return (path, true),
                PathOf::From(unknown, _) if self.promote(Fid::from_id(unknown)) => {}
                PathOf::From(_, path) => return (path, false),
            }
        }
        (Vec::new(), false)
    }

    /// A path of a file or directory, whether it is whole, and its directory. A file of several
    /// names has the one in `parent`, if there is one.
    fn path_of_object(&mut self, fid: Fid, parent: Fid) -> (Vec<u8>, bool, Fid) {
        if let Some((above, _)) = self.table.get(fid.id()) {
            let above = above.map_or(Fid::NONE, Fid::from_id);
            let (mut path, is_whole) = self.whole(|table| table.path(fid.id()));
            if path.len() > self.options.root.len() && path.last() == Some(&b'/') {
                // A part of a striped directory has no name of its own.
                path.pop();
            }
            return (path, is_whole, above);
        }
        self.links.touch(fid);
        let mut best = (Vec::new(), false, parent);
        let links: Vec<FidLink> = self.links.get(fid).to_vec();
        for link in &links {
            let (path, is_whole) = self.path_in(link.parent, &link.name);
            let is_better = is_whole && (!best.1 || link.parent == parent);
            if is_better || best.0.is_empty() {
                best = (path, is_whole, link.parent);
            }
        }
        best
    }

    /// Applies what a record changes.
    pub(crate) fn apply(&mut self, record: &ChangelogRecord<'_>) {
        self.first_names.pass(record);
        let (target, parent, name) = (record.target, record.parent, record.name);
        match record.record_type() {
            Some(RecordType::Mkdir) if is_name(name) => {
                self.links.remove(target);
                self.place(target, parent, name);
            }
            Some(
                RecordType::Create
                | RecordType::SoftLink
                | RecordType::Mknod
                | RecordType::HardLink,
            ) if is_name(name) => {
                let link = FidLink::new(parent, name);
                self.links.add(target, link, LINKS_MAX);
            }
            Some(RecordType::Unlink | RecordType::Rmdir) => self.remove(record),
            Some(RecordType::Rename) => {
                if let Some((source, old_parent)) = record.source {
                    if !target.is_none() && target != source {
                        self.remove(record);
                    }
                    self.rename(source, old_parent, record);
                }
            }
            Some(RecordType::Migrate) => {
                if let Some((source, _)) = record.source {
                    self.migrate(source, record);
                }
            }
            _ => {}
        }
    }

    /// Takes a name from the target.
    fn remove(&mut self, record: &ChangelogRecord<'_>) {
        let target = record.target;
        let is_last = record.record_type() == Some(RecordType::Rmdir) || !has_others(record);
        if is_last || !is_name(record.name) {
            self.links.remove(target);
            self.table.remove(target.id());
            return;
        }
        if self.links.get(target).is_empty() {
            self.table.remove(target.id());
            return;
        }
        let mut links = self.links.remove(target);
        links.retain(|link| !link.is(record.parent, record.name));
        self.links.set(target, links);
    }

    fn rename(&mut self, source: Fid, old_parent: Fid, record: &ChangelogRecord<'_>) {
        if !is_name(record.name) {
            self.links.remove(source);
            self.table.remove(source.id());
        } else if self.table.has(source.id()) {
            self.place(source, record.parent, record.name);
        } else {
            let mut links = self.links.remove(source);
            if is_name(record.old_name) {
                links.retain(|link| !link.is(old_parent, record.old_name));
            } else {
                links.clear();
            }
            self.links.set(source, links);
            let link = FidLink::new(record.parent, record.name);
            self.links.add(source, link, LINKS_MAX);
        }
    }

    fn migrate(&mut self, source: Fid, record: &ChangelogRecord<'_>) {
        let (target, parent, name) = (record.target, record.parent, record.name);
        if self.table.has(source.id()) {
            if is_name(name) {
                self.place(target, parent, name);
                // What is in the directory names the old FID until it is migrated as well.
                self.place(source, target, b"");
            }
            return;
        }
        self.links.remove(source);
        if is_name(name) {
            self.links
                .add(target, FidLink::new(parent, name), LINKS_MAX);
        }
    }
}

/// Whether a name is that of a part of a striped directory within it: `[FID]:number`, with or
/// without brackets.
fn is_shard_name(name: &[u8]) -> bool {
    let Some(colon) = name.iter().rposition(|byte| *byte == b':') else {
        return false;
    };
    let (fid, number) = (&name[..colon], &name[colon + 1..]);
    let is_number = !number.is_empty() && number.iter().all(u8::is_ascii_digit);
    is_number && fid.starts_with(b"[0x") && Fid::parse(fid).is_some()
}
