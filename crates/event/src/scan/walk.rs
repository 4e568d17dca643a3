//! Walking a tree in steps, and telling what differs from what is known.
//!
//! One directory is read at a time, and everything that is found there is told before the next
//! event of another source is. An object that has moved is found in one place and missed in
//! another: files that are found and names that are missed are held until all is read.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::BorrowedFd;

use rustix::fs::Dir;
use rustix::io::Errno;

use super::ahead::LookAhead;
use super::config::Mounts;
use super::names::Names;
use super::place::{Seen, open_to_read};
use super::tree::{Name, Tree};
use crate::directories::PathOf;
use crate::event::{EventFlags, EventKind, ObjectId};
use crate::snapshot::TreeEntry;

mod held;
mod new;

pub(crate) use new::{forget, is_within};

/// Names that are looked at before others have their turn.
const NAMES_AT_ONCE: usize = 256;

/// What is told of directories before and after they are read.
pub(crate) trait Watcher {
    /// A piece of work is about to be done that may take long, such as looking at a name.
    fn before_work(&mut self) {}
    /// A directory is about to be read.
    fn watch(&mut self, dir: ObjectId, fd: BorrowedFd<'_>);
    /// These are the names that were told of a directory when all of it was read.
    fn was_read(&mut self, dir: ObjectId, names: Names);
    /// A directory was not read in this mode, because it is not where it is known to be: it, or a
    /// directory above it, was moved or removed.
    fn was_missed(&mut self, dir: ObjectId, mode: Mode) {
        let _ = (dir, mode);
    }
    /// A directory is not part of the tree any more.
    fn forget(&mut self, dir: ObjectId);
}

/// How what is read is told.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mode {
    /// Nothing is told: it was there before the first start.
    Baseline,
    /// It is told as new, with these flags; what is found in it is reconciled beside them, since
    /// nobody saw how it came there.
    Found(EventFlags),
    /// What differs is told as reconciled. A deep comparing goes into directories that are known.
    Compare { is_deep: bool },
}

impl Mode {
    fn flags(self) -> EventFlags {
        match self {
            Self::Baseline => EventFlags::default(),
            Self::Found(flags) => flags,
            Self::Compare { .. } => EventFlags::RECONCILED,
        }
    }

    /// The mode of a directory that is found.
    fn below(self) -> Self {
        match self {
            Self::Baseline => Self::Baseline,
            Self::Found(flags) => Self::Found(flags.with(EventFlags::RECONCILED)),
            Self::Compare { .. } => Self::Compare { is_deep: true },
        }
    }
}

#[derive(Debug)]
enum Task {
    Root(usize, Mode),
    Directory(ObjectId, Mode),
}

#[derive(Debug)]
enum Action {
    /// A known name is not there any more, or belongs to another object.
    Drop(Name, TreeEntry),
    /// The names of a directory that is gone are gone.
    DropNames(ObjectId, Option<Box<[u8]>>),
    /// A directory is gone, and its names are told.
    Gone(Name, TreeEntry),
    Found(Name, Seen, Mode),
    /// A file was held that has not come from anywhere.
    Made(Name, TreeEntry),
}

/// The directory that is being read.
struct Reading {
    dir: ObjectId,
    mode: Mode,
    stream: Option<Dir>,
    names: Names,
    /// The last known name that was looked for among those that are there.
    after: Option<Box<[u8]>>,
}

/// A walk with a beginning and an end.
#[derive(Debug)]
struct Pass {
    /// Whether there was a gap, so that its end is told in any case.
    is_announced: bool,
    reconciled: u64,
}

/// Outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Walked {
    /// Nothing is left to do.
    All,
    /// There is more to do.
    More,
    /// The operating system lacks something that it will have later.
    Later,
}

/// A walk in steps.
pub(crate) struct Walk {
    pub(crate) roots: Vec<Box<[u8]>>,
    /// Roots that are not there.
    pub(crate) missing: BTreeSet<usize>,
    mounts: Mounts,
    held_max: usize,
    stack: Vec<Task>,
    reading: Option<Reading>,
    actions: VecDeque<Action>,
    lost: BTreeMap<ObjectId, Name>,
    found: BTreeMap<ObjectId, (Name, Seen)>,
    pass: Option<Pass>,
    is_again: bool,
    /// Whether something was seen that cannot be told now, so that the tree has to be compared with
    /// what is known of it when nothing else is to be told.
    pub(crate) is_unsure: bool,
    /// The error for which something has to be done later.
    pub(crate) obstacle: Option<Errno>,
    /// The threads that look ahead, if there are any.
    pub(crate) ahead: Option<LookAhead>,
}

impl Walk {
    pub(crate) fn new(roots: Vec<Box<[u8]>>, mounts: Mounts, held_max: usize) -> Self {
        Self {
            roots,
            missing: BTreeSet::new(),
            mounts,
            held_max,
            stack: Vec::new(),
            reading: None,
            actions: VecDeque::new(),
            lost: BTreeMap::new(),
            found: BTreeMap::new(),
            pass: None,
            is_again: false,
            is_unsure: false,
            obstacle: None,
            ahead: None,
        }
    }

    /// Whether there is something to do.
    pub(crate) fn is_busy(&self) -> bool {
        self.is_within() || !self.stack.is_empty() || self.pass.is_some()
    }

    /// Whether a directory is partly told.
    pub(crate) fn is_within(&self) -> bool {
        self.reading.is_some() || !self.actions.is_empty()
    }

    /// Whether a walk of the whole tree, or a comparing, is under way.
    pub(crate) fn is_passing(&self) -> bool {
        self.pass.is_some()
    }

    /// Begins a walk of all roots. Where a comparing is under way, another one follows it.
    pub(crate) fn begin(&mut self, tree: &mut Tree, mode: Mode, gap: Option<&str>) {
        if let Some(detail) = gap {
            tree.tell_mark(EventKind::Gap, detail);
            tree.pause();
        }
        if let Some(pass) = &mut self.pass {
            pass.is_announced |= gap.is_some();
            self.is_again = true;
            return;
        }
        if let Some(ahead) = &mut self.ahead {
            ahead.begin();
        }
        self.open_pass(tree, gap.is_some());
        self.stack.extend(
            (0..self.roots.len())
                .rev()
                .map(|root| Task::Root(root, mode)),
        );
    }

    /// Looks at a root again.
    pub(crate) fn check_root(&mut self, root: usize) {
        let mode = Mode::Found(EventFlags::default());
        self.stack.push(Task::Root(root, mode));
    }

    /// Reads a directory.
    pub(crate) fn read(&mut self, tree: &Tree, dir: ObjectId, mode: Mode) {
        if let Mode::Compare { .. } = mode {
            self.open_pass(tree, false);
        }
        self.stack.push(Task::Directory(dir, mode));
    }

    /// Tells what is held of a name, since something has happened to it.
    pub(crate) fn release(&mut self, tree: &mut Tree, dir: ObjectId, name: &[u8], id: ObjectId) {
        let held = self.found.get(&id);
        if held.is_some_and(|(held, _)| held.dir == dir && *held.name == *name)
            && let Some((_, seen)) = self.found.remove(&id)
        {
            tree.tell_made(dir, name, Some(&seen), EventFlags::RECONCILED);
        }
    }

    /// Does what there is to do, and takes what it has looked at from the budget.
    pub(crate) fn step(
        &mut self,
        tree: &mut Tree,
        watcher: &mut dyn Watcher,
        budget: &mut usize,
    ) -> Walked {
        while *budget > 0 {
            watcher.before_work();
            if let Some(action) = self.actions.pop_front() {
                *budget -= 1;
                self.act(tree, watcher, action);
            } else if let Some(reading) = self.reading.take() {
                let looked_at = self.go_on(tree, watcher, reading, *budget);
                *budget = budget.saturating_sub(1 + looked_at);
            } else if let Some(task) = self.stack.pop() {
                *budget -= 1;
                if let Err(task) = self.start(tree, watcher, task) {
                    self.stack.push(task);
                    return Walked::Later;
                }
            } else if !self.end(tree) {
                return Walked::All;
            }
            if !self.is_within() {
                return Walked::More;
            }
        }
        Walked::More
    }

    fn open_pass(&mut self, tree: &Tree, is_announced: bool) {
        let reconciled = tree.counts.reconciled;
        self.pass.get_or_insert(Pass {
            is_announced,
            reconciled,
        });
    }

    /// Begins with a task; it comes back if it cannot be done now.
    fn start(
        &mut self,
        tree: &mut Tree,
        watcher: &mut dyn Watcher,
        task: Task,
    ) -> Result<(), Task> {
        self.obstacle = None;
        match task {
            Task::Root(root, mode) => self.start_root(tree, watcher, root, mode),
            Task::Directory(dir, mode) => {
                self.look_ahead(tree, dir);
                let opened = tree.handles.get(&tree.table, dir).and_then(open_to_read);
                let stream = opened.and_then(|fd| {
                    watcher.watch(dir, std::os::fd::AsFd::as_fd(&fd));
                    Dir::new(fd)
                });
                match stream {
                    Ok(stream) => {
                        let (names, after) = (Names::default(), None);
                        let stream = Some(stream);
                        self.reading = Some(Reading {
                            dir,
                            mode,
                            stream,
                            names,
                            after,
                        });
                    }
                    Err(error) if is_passing(error) => {
                        self.obstacle = Some(error);
                        return Err(task);
                    }
                    // It has been removed or moved since, which is told by another event.
                    Err(Errno::NOENT | Errno::NOTDIR | Errno::STALE | Errno::LOOP) => {
                        watcher.was_missed(dir, mode);
                    }
                    Err(_) => tree.counts.unreadable += 1,
                }
            }
        }
        Ok(())
    }

    /// Names this directory, and those that come next, to the threads that look ahead.
    fn look_ahead(&mut self, tree: &Tree, dir: ObjectId) {
        let Some(ahead) = &mut self.ahead else { return };
        let next = self.stack.iter().rev().filter_map(|task| match task {
            Task::Directory(dir, _) => Some(*dir),
            Task::Root(..) => None,
        });
        // The last one that is named is looked at first.
        let next: Vec<ObjectId> = next.take(ahead.wanted()).collect();
        for dir in next.into_iter().rev().chain([dir]) {
            ahead.name(dir, || match tree.table.path(dir) {
                PathOf::Whole(path) => Some(path),
                PathOf::From(..) => None,
            });
        }
    }

    fn start_root(&mut self, tree: &mut Tree, watcher: &mut dyn Watcher, root: usize, mode: Mode) {
        let name = Name::new(ObjectId::NONE, &self.roots[root]);
        match tree.look(name.dir, &name.name) {
            Ok(seen) if seen.entry.is_directory() => {
                self.missing.remove(&root);
                self.classify(tree, watcher, name, seen, mode);
            }
            _ => {
                self.missing.insert(root);
                if let Some(old) = tree.known.get(name.dir, &name.name) {
                    self.actions.push_back(Action::Drop(name, old));
                }
            }
        }
    }

    /// Reads some more of a directory, or looks for known names that are not there. It returns the
    /// number of names that it has looked at.
    fn go_on(
        &mut self,
        tree: &mut Tree,
        watcher: &mut dyn Watcher,
        mut reading: Reading,
        most: usize,
    ) -> usize {
        let Some(mut stream) = reading.stream.take() else {
            self.miss(tree, watcher, reading);
            return 0;
        };
        let mut looked_at = 0;
        while looked_at < NAMES_AT_ONCE.min(most) {
            let entry = match stream.read() {
                Some(Ok(entry)) => entry,
                // What was read of a directory that is gone now is all there is.
                Some(Err(_)) | None => {
                    self.reading = Some(reading);
                    return looked_at;
                }
            };
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            looked_at += 1;
            watcher.before_work();
            let seen = stream.fd().and_then(|fd| tree.handles.look(fd, name));
            if let Ok(seen) = seen {
                if !matches!(reading.mode, Mode::Baseline) {
                    reading.names.insert(name, seen.entry.id);
                }
                let name = Name::new(reading.dir, name);
                self.classify(tree, watcher, name, seen, reading.mode);
            }
            if !self.actions.is_empty() {
                break;
            }
        }
        reading.stream = Some(stream);
        self.reading = Some(reading);
        looked_at
    }

    /// Tells what is to be told of a name that is there.
    fn classify(
        &mut self,
        tree: &mut Tree,
        watcher: &mut dyn Watcher,
        name: Name,
        seen: Seen,
        mode: Mode,
    ) {
        if let Mode::Baseline = mode {
            if seen.entry.is_directory() && tree.is_told_elsewhere(seen.entry.id, &name) {
                return;
            }
            tree.known.put(name.dir, &name.name, seen.entry);
            if seen.entry.is_directory() {
                self.go_below(tree, &name, &seen, mode);
            }
            return;
        }
        match tree.known.get(name.dir, &name.name) {
            Some(old) if old.is_same(&seen.entry) => {
                tree.tell_differences(name.dir, &name.name, &old, &seen, mode.flags());
                let is_deep = !matches!(mode, Mode::Compare { is_deep: false });
                if seen.entry.is_directory() && is_deep {
                    self.go_below(tree, &name, &seen, mode);
                }
            }
            Some(old) => {
                self.actions.push_back(Action::Drop(name.clone(), old));
                self.actions.push_back(Action::Found(name, seen, mode));
            }
            None => self.found(tree, watcher, name, seen, mode),
        }
    }

    /// Looks for known names of the directory that were not there when it was read.
    fn miss(&mut self, tree: &mut Tree, watcher: &mut dyn Watcher, mut reading: Reading) {
        let mut is_done = true;
        if !matches!(reading.mode, Mode::Baseline) {
            let after = reading.after.take();
            let (known, next) = tree
                .known
                .names(reading.dir, after.as_deref(), NAMES_AT_ONCE);
            for (name, entry) in known {
                if reading.names.get(&name).is_none() {
                    self.miss_one(
                        tree,
                        Name {
                            dir: reading.dir,
                            name,
                        },
                        entry,
                        reading.mode,
                    );
                }
            }
            is_done = next.is_none();
            reading.after = next;
        }
        match (is_done, reading.mode) {
            (false, _) => self.reading = Some(reading),
            // What is told of these names from now on has happened since they are watched.
            (true, Mode::Baseline) => {}
            (true, _) => watcher.was_read(reading.dir, reading.names),
        }
    }

    fn miss_one(&mut self, tree: &mut Tree, name: Name, entry: TreeEntry, mode: Mode) {
        let is_held = matches!(mode, Mode::Compare { .. }) && !self.lost.contains_key(&entry.id);
        if !is_held {
            self.actions.push_back(Action::Drop(name, entry));
        } else if !self.match_found(tree, &name, &entry) {
            self.lost.insert(entry.id, name);
            self.bound();
        }
    }

    /// A name that is there and was not known.
    fn found(
        &mut self,
        tree: &mut Tree,
        watcher: &mut dyn Watcher,
        name: Name,
        seen: Seen,
        mode: Mode,
    ) {
        let id = seen.entry.id;
        let is_compared = matches!(mode, Mode::Compare { .. });
        if seen.entry.is_directory() {
            let old = tree.table.get(id);
            let old = old.map(|(dir, at)| Name::new(dir.unwrap_or(ObjectId::NONE), at));
            match old.filter(|_| is_compared) {
                Some(ref old) if *old != name && self.moves(tree, old, &name, &seen) => {
                    self.lost.remove(&id);
                    self.go_below(tree, &name, &seen, mode.below());
                }
                // Its number was that of another directory, whose names are told as removed first,
                // because paths below it would be wrong afterwards.
                Some(ref old) if *old != name && self.drop_former(tree, old, id) => {
                    self.actions.push_back(Action::Found(name, seen, mode));
                }
                _ => self.take_in(tree, watcher, &name, &seen, mode),
            }
        } else if !is_compared {
            tree.tell_made(name.dir, &name.name, Some(&seen), mode.flags());
        } else if let Some(old) = self.lost.remove(&id) {
            if !self.moves(tree, &old, &name, &seen) {
                self.hold(tree, name, seen);
            }
        } else {
            self.hold(tree, name, seen);
        }
    }

    fn act(&mut self, tree: &mut Tree, watcher: &mut dyn Watcher, action: Action) {
        match action {
            Action::Drop(name, lost) => {
                let entry = tree.known.get(name.dir, &name.name);
                let Some(entry) = entry.filter(|entry| entry.id == lost.id) else {
                    return;
                };
                if entry.is_directory() && tree.is_at(entry.id, name.dir, &name.name) {
                    self.actions.push_front(Action::Gone(name, entry));
                    self.actions.push_front(Action::DropNames(entry.id, None));
                } else if entry.is_directory() || !self.match_found(tree, &name, &entry) {
                    tree.tell_removed(name.dir, &name.name, EventFlags::RECONCILED);
                }
            }
            Action::DropNames(dir, after) => {
                let (names, next) = tree.known.names(dir, after.as_deref(), NAMES_AT_ONCE);
                if next.is_some() {
                    self.actions.push_front(Action::DropNames(dir, next));
                }
                for (name, entry) in names.into_iter().rev() {
                    self.actions
                        .push_front(Action::Drop(Name { dir, name }, entry));
                }
            }
            Action::Gone(name, entry) => {
                tree.tell_removed(name.dir, &name.name, EventFlags::RECONCILED);
                forget(tree, watcher, entry.id);
            }
            Action::Found(name, seen, mode) => self.found(tree, watcher, name, seen, mode),
            Action::Made(name, entry) => {
                let is_told = tree.known.get(name.dir, &name.name).is_some();
                let seen = tree.look(name.dir, &name.name).ok();
                let seen = seen.filter(|seen| seen.entry.is_same(&entry) && !is_told);
                if let Some(seen) = seen {
                    let flags = EventFlags::RECONCILED;
                    tree.tell_made(name.dir, &name.name, Some(&seen), flags);
                }
            }
        }
    }

    /// Ends what is to be ended when everything is read; false if there was nothing.
    fn end(&mut self, tree: &mut Tree) -> bool {
        if !self.lost.is_empty() || !self.found.is_empty() {
            self.release_all();
            return true;
        }
        if std::mem::take(&mut self.is_again) {
            let mode = Mode::Compare { is_deep: true };
            self.stack.extend(
                (0..self.roots.len())
                    .rev()
                    .map(|root| Task::Root(root, mode)),
            );
            return true;
        }
        let Some(pass) = self.pass.take() else {
            return false;
        };
        if pass.is_announced || tree.counts.reconciled > pass.reconciled {
            tree.tell_mark(EventKind::Reconciled, "");
        }
        tree.begin();
        true
    }
}

/// Whether an error passes by itself.
pub(crate) fn is_passing(error: Errno) -> bool {
    matches!(
        error,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::INTR | Errno::AGAIN
    )
}
