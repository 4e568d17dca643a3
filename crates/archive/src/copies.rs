//! Copies of sealed files in an object store: files that count here are copied, and copies of files
//! that were merged are deleted.
//!
//! This module is apart from sealing because another thread, which waits for a network, does what
//! it decides.

use std::io;

use crate::ArchiveError;
use crate::copier::{CopyJob, CopyOperation, CopyQueue, JOBS_MAX};
use crate::part::PartKey;
use crate::seal::Sealer;

/// Number of copies after which they are entered in the manifest; after a crash these are made
/// again.
const COPIES_MAX: usize = 16;

impl Sealer {
    /// Takes the copier's results, and hands over the next jobs. It never waits for the copier.
    pub(crate) fn tend_copies(&mut self) {
        let Some(errands) = self.errands.clone() else {
            return;
        };
        let now = self.clock.monotonic_ns();
        self.take_copies(&errands, now);
        if errands.is_ended() {
            let error = ArchiveError::Thread {
                name: "archive-copy",
                source: io::Error::other("it has ended: restart the agent"),
            };
            return self.copying.note(now, &Err(error));
        }
        if self.copying.is_due(now) {
            let count = if self.next_copy().is_none() {
                1
            } else {
                COPIES_MAX
            };
            match self.note_copies(count) {
                Ok(0) => {}
                result => self.copying.note(now, &result),
            }
        }
        if errands.is_idle() {
            let jobs = self.next_jobs(now);
            if !jobs.is_empty() {
                errands.hand_over(jobs.into_iter());
            }
        }
    }

    /// Ends the copying: waits briefly for the job under way. Files that are not copied by then are
    /// copied after the next start.
    pub(crate) fn end_copies(&mut self) {
        let Some(errands) = self.errands.clone() else {
            return;
        };
        errands.stop();
        if !errands.wait_for_end() {
            tracing::warn!(
                "the target does not answer: what is not copied is copied after the next start"
            );
        }
        self.take_copies(&errands, self.clock.monotonic_ns());
        // If this fails, the same copies are made once more after the next start.
        let _ = self.note_copies(1);
        self.tell();
    }

    fn take_copies(&mut self, errands: &CopyQueue, now: i64) {
        for (CopyJob { what, key, path }, result) in errands.take_done() {
            // The result is ignored for a file that was merged or deleted meanwhile.
            let counts = match what {
                CopyOperation::Copy => self.manifest.parts.contains_key(&key),
                CopyOperation::Remove => self.manifest.stale_copies.contains(&key),
            };
            match (what, result) {
                (CopyOperation::Copy, Ok(())) => {
                    self.copying.note(now, &Ok(1));
                    self.copied.extend(counts.then_some(key));
                }
                (CopyOperation::Remove, Ok(())) => {
                    self.removing.note(now, &Ok(1));
                    self.removed.extend(counts.then_some(key));
                }
                (CopyOperation::Copy, Err(reason)) if counts && !self.stopped() => {
                    self.copy_tried = Some(key);
                    self.copying
                        .note(now, &Err(ArchiveError::Copy { path, reason }));
                }
                (CopyOperation::Remove, Err(reason)) if counts && !self.stopped() => {
                    self.removal_tried = Some(key);
                    self.removing
                        .note(now, &Err(ArchiveError::StaleCopy { path, reason }));
                }
                (_, Err(_)) => {}
            }
        }
    }

    /// Returns the next jobs of the copier: copies, oldest first. Copies of merged files are
    /// deleted once all files that count are copied and the manifest records it: so the object
    /// store never lacks a row that it had.
    fn next_jobs(&self, now: i64) -> Vec<CopyJob> {
        let layout = &self.context.layout;
        let job = |what| {
            move |key: PartKey| CopyJob {
                what,
                path: key.relative(layout),
                key,
            }
        };
        if self.next_copy().is_some() {
            if !self.copying.is_due(now) {
                return Vec::new();
            }
            let keys = after(self.copy_tried, || self.uncopied());
            return keys.map(job(CopyOperation::Copy)).collect();
        }
        if !self.copied.is_empty() || !self.removing.is_due(now) {
            return Vec::new();
        }
        let stale = || {
            self.manifest
                .stale_copies
                .difference(&self.removed)
                .copied()
        };
        let keys = after(self.removal_tried, stale);
        keys.map(job(CopyOperation::Remove)).collect()
    }

    /// Returns the files that are not in the object store, oldest first.
    fn uncopied(&self) -> impl Iterator<Item = PartKey> {
        let keys = self.manifest.parts.keys();
        keys.copied().filter(|key| !self.is_copied(key))
    }

    fn next_copy(&self) -> Option<PartKey> {
        self.uncopied().next()
    }

    /// Enters copies that were made or deleted in the manifest, if there are at least `count`;
    /// returns how many were entered.
    fn note_copies(&mut self, count: usize) -> Result<usize, ArchiveError> {
        let noted = self.copied.len() + self.removed.len();
        if noted < count {
            return Ok(0);
        }
        self.settle()?;
        let mut next = self.manifest.clone();
        for key in &self.copied {
            if let Some(part) = next.parts.get_mut(key) {
                part.copied = true;
            }
        }
        next.stale_copies.retain(|key| !self.removed.contains(key));
        self.commit(next)?;
        self.copied.clear();
        self.removed.clear();
        Ok(noted)
    }

    /// Whether the object store has a copy of a file.
    pub(crate) fn is_copied(&self, key: &PartKey) -> bool {
        let known = self.manifest.parts.get(key);
        self.copied.contains(key) || known.is_some_and(|part| part.copied)
    }

    /// Whether the object store may have a copy: one that seemed to fail, that is under way, or
    /// that was not entered in the manifest before a crash, may exist.
    pub(crate) fn may_be_copied(&self, key: &PartKey) -> bool {
        self.errands.is_some() || self.is_copied(key)
    }

    /// Whether the file is to be copied and is not yet: then it is not deleted by age.
    pub(crate) fn waits_for_copy(&self, key: &PartKey) -> bool {
        self.errands.is_some() && !self.is_copied(key)
    }

    /// Returns how many files wait to be copied, and how many copies wait to be deleted.
    pub(crate) fn waiting_copies(&self) -> (u64, u64) {
        let waiting = match self.errands {
            Some(_) => self.uncopied().count(),
            None => 0,
        };
        let stale = self.manifest.stale_copies.difference(&self.removed);
        (waiting as u64, stale.count() as u64)
    }
}

/// Returns the keys starting after the one that failed last, so that one that always fails does not
/// block the others; at most as many as are handed over together.
fn after<I: Iterator<Item = PartKey>>(
    tried: Option<PartKey>,
    keys: impl Fn() -> I,
) -> impl Iterator<Item = PartKey> {
    let later = keys().filter(move |key| Some(*key) > tried);
    let sooner = keys().filter(move |key| Some(*key) <= tried);
    later.chain(sooner).take(JOBS_MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::sync_channel;

    use barograph_model::{Clock as _, ManualClock, NS_PER_S, Span};

    use super::*;
    use crate::context::SealerContext;
    use crate::manifest::Manifest;
    use crate::part::FilePart;
    use crate::{ArchiveConfig, ArchiveLayout, DiskStorage, Storage as _, Tier};

    struct Fixture {
        _dir: tempfile::TempDir,
        layout: ArchiveLayout,
        clock: Arc<ManualClock>,
        errands: Arc<CopyQueue>,
        sealer: Sealer,
        keys: Vec<PartKey>,
    }

    impl Fixture {
        /// Returns a sealer with so many files and no copier thread: the test does the copying.
        fn new(files: i64) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let config = ArchiveConfig::new(dir.path(), "n1");
            let context = SealerContext::new(config, Arc::new(DiskStorage), Arc::default());
            let layout = context.layout.clone();
            let mut manifest = Manifest::new("n1");
            manifest.sealed_through = 1;
            DiskStorage.make_dir(&layout.log_dir()).unwrap();
            DiskStorage.make_dir(&layout.tmp_dir()).unwrap();
            let key = |hour| PartKey {
                first: 1,
                hour,
                last: 1,
                tier: Tier::Raw,
            };
            let keys: Vec<_> = (5..5 + files).map(key).collect();
            for key in &keys {
                let path = key.path(&layout);
                DiskStorage.make_dir(path.parent().unwrap()).unwrap();
                std::fs::write(&path, "rows").unwrap();
                let part = FilePart {
                    rows: 7,
                    bytes: 4,
                    span: Span { from: 1, to: 2 },
                    copied: false,
                    crc32: None,
                };
                manifest.parts.insert(*key, part);
            }
            let clock = Arc::new(ManualClock::default());
            let errands = Arc::new(CopyQueue::new(sync_channel(1).0));
            let sealer = Sealer::new(
                context,
                Arc::clone(&clock) as _,
                manifest,
                Arc::default(),
                Some(Arc::clone(&errands)),
            );
            Self {
                _dir: dir,
                layout,
                clock,
                errands,
                sealer,
                keys,
            }
        }

        /// Does the jobs that were handed over; returns the keys that were tried.
        fn copy(&self, takes: impl Fn(&PartKey) -> bool) -> Vec<PartKey> {
            let mut tried = Vec::new();
            while let Some(job) = self.errands.begin() {
                tried.push(job.key);
                let result = if takes(&job.key) {
                    Ok(())
                } else {
                    Err("no".into())
                };
                self.errands.finish(job, result);
            }
            tried
        }

        fn read(&self) -> Manifest {
            Manifest::read(&self.layout).unwrap().unwrap()
        }
    }

    #[test]
    fn what_a_sweep_finds_gone_stays_gone_when_copies_are_noted() {
        let mut fixture = Fixture::new(2);
        fixture.sealer.tend_copies();
        assert_eq!(fixture.copy(|_| true), fixture.keys);
        std::fs::remove_file(fixture.keys[0].path(&fixture.layout)).unwrap();
        fixture.sealer.tend_copies();
        let read = fixture.read();
        assert_eq!(read, fixture.sealer.manifest);
        assert_eq!(read.losses.shed_samples, 7);
        let left: Vec<_> = read.parts.iter().map(|(key, p)| (*key, p.copied)).collect();
        assert_eq!(left, [(fixture.keys[1], true)]);
    }

    #[test]
    fn one_that_always_fails_keeps_no_other() {
        let mut fixture = Fixture::new(3 * JOBS_MAX as i64);
        let bad = fixture.keys[0];
        let mut tried_bad = 0;
        for _ in 0..10 {
            fixture.sealer.tend_copies();
            let tried = fixture.copy(|key| *key != bad);
            tried_bad += tried.iter().filter(|key| **key == bad).count();
            fixture.clock.advance(600 * NS_PER_S);
        }
        assert!(tried_bad > 1, "it is tried again");
        fixture.sealer.tend_copies();
        assert_eq!(fixture.sealer.waiting_copies(), (1, 0));
        assert!(fixture.sealer.waits_for_copy(&bad));
    }

    #[test]
    fn after_a_failure_nothing_is_tried_before_its_time() {
        let mut fixture = Fixture::new(3);
        fixture.sealer.tend_copies();
        assert_eq!(fixture.copy(|_| false).len(), 1, "the others are left");
        let mut waits = Vec::new();
        for seconds in 0..10_000 {
            fixture.sealer.tend_copies();
            if !fixture.copy(|_| false).is_empty() {
                waits.push(seconds);
            }
            fixture.clock.advance(NS_PER_S);
        }
        let waits: Vec<_> = waits.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(waits.is_sorted(), "{waits:?}");
        // The result is taken a second later.
        assert_eq!((waits[0], waits.last()), (11, Some(&601)), "{waits:?}");
    }

    /// Checks a file that is older than it is kept, and one of now.
    #[test]
    fn what_is_not_copied_goes_by_size_alone() {
        let mut fixture = Fixture::new(2);
        fixture.clock.advance(5 * 86_400 * NS_PER_S);
        let now = fixture.clock.now_ns();
        fixture.sealer.context.config.keep.raw_ns = 86_400 * NS_PER_S;
        fixture.sealer.context.config.free_bytes_min = 0;
        let [old, new] = [fixture.keys[0], fixture.keys[1]];
        let span = Span { from: now, to: now };
        fixture.sealer.manifest.parts.get_mut(&new).unwrap().span = span;
        let left = |sealer: &Sealer| sealer.manifest.parts.keys().copied().collect::<Vec<_>>();
        assert_eq!(fixture.sealer.retain(0).unwrap(), 0);
        fixture.sealer.tend_copies();
        assert_eq!(fixture.copy(|key| *key != new), [old, new]);
        fixture.sealer.tend_copies();
        assert_eq!(fixture.sealer.retain(0).unwrap(), 1);
        assert_eq!(left(&fixture.sealer), [new]);
        let losses = |sealer: &Sealer| sealer.manifest.losses.shed_samples;
        assert_eq!(losses(&fixture.sealer), 0, "its time had come");
        fixture.clock.advance(5 * 86_400 * NS_PER_S);
        assert_eq!(fixture.sealer.retain(0).unwrap(), 0);
        fixture.sealer.context.config.bytes_max = 0;
        assert_eq!(fixture.sealer.retain(0).unwrap(), 1);
        assert_eq!(losses(&fixture.sealer), 7, "nobody has it");
    }

    /// The merged file is deleted while it is copied: the copies of its sources stay in the target,
    /// and its own copy does not.
    #[test]
    fn what_goes_while_it_is_copied_leaves_no_row_twice() {
        let mut fixture = Fixture::new(1);
        let merged = PartKey {
            last: 2,
            ..fixture.keys[0]
        };
        let part = fixture.sealer.manifest.parts.pop_first().unwrap().1;
        fixture.sealer.manifest.sealed_through = 2;
        fixture.sealer.manifest.parts.insert(merged, part);
        fixture.sealer.manifest.add_stale_copies([fixture.keys[0]]);
        std::fs::rename(
            fixture.keys[0].path(&fixture.layout),
            merged.path(&fixture.layout),
        )
        .unwrap();
        fixture.sealer.tend_copies();
        let under_way = fixture.errands.begin().unwrap();
        assert_eq!(under_way.key, merged);
        fixture.sealer.context.config.bytes_max = 0;
        assert_eq!(fixture.sealer.retain(0).unwrap(), 1);
        fixture.errands.finish(under_way, Ok(()));
        fixture.sealer.tend_copies();
        let job = fixture.errands.begin().unwrap();
        assert_eq!((job.what, job.key), (CopyOperation::Remove, merged));
        assert_eq!(fixture.errands.begin(), None);
    }

    #[test]
    fn what_was_merged_while_it_was_copied_is_removed_there() {
        let mut fixture = Fixture::new(2);
        fixture.sealer.tend_copies();
        let gone = fixture.keys[0];
        // The manifest changes as by a merge, while the copy is under way.
        fixture.sealer.manifest.parts.remove(&gone);
        fixture.sealer.manifest.add_stale_copies([gone]);
        std::fs::remove_file(gone.path(&fixture.layout)).unwrap();
        assert_eq!(fixture.copy(|_| true), fixture.keys);
        fixture.sealer.tend_copies();
        assert_eq!(fixture.copy(|_| true), [gone]);
        fixture.sealer.tend_copies();
        assert_eq!(fixture.sealer.waiting_copies(), (0, 0));
        assert!(fixture.read().stale_copies.is_empty());
    }
}
