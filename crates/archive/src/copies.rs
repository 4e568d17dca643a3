//! Copies of sealed files in an object store: what counts here is there, and what was merged is not.
//!
//! It stands apart from sealing because it waits for a network.

use crate::ArchiveError;
use crate::manifest::PartKey;
use crate::seal::Sealer;

/// Copies after which the manifest is told; at a crash these are made again.
const COPIES_MAX: usize = 16;

impl Sealer {
    /// Copies the oldest file that is not at the object store.
    pub(crate) fn copy_one(&mut self) -> Result<usize, ArchiveError> {
        let waiting = self.next_copy();
        let Some(target) = self.target.as_mut() else {
            return Ok(0);
        };
        let Some(key) = waiting else {
            return self.note_copies(1).map(|()| 0);
        };
        let layout = &self.context.layout;
        let path = key.relative(layout);
        let copied = target.copy(&layout.root().join(&path), &path);
        copied.map_err(|reason| ArchiveError::Copy { path, reason })?;
        self.copied.insert(key);
        self.note_copies(COPIES_MAX).map(|()| 1)
    }

    /// Removes one copy of a file that was merged: once all that counts is copied, so that the object store
    /// lacks no row that it had.
    pub(crate) fn remove_copy(&mut self) -> Result<usize, ArchiveError> {
        let stale = self
            .next_stale_copy()
            .filter(|_| self.next_copy().is_none());
        let Some(target) = self.target.as_mut() else {
            return Ok(0);
        };
        let Some(key) = stale else {
            return self.note_copies(1).map(|()| 0);
        };
        let path = key.relative(&self.context.layout);
        self.tried = Some(key);
        let removed = target.remove(&path);
        removed.map_err(|reason| ArchiveError::StaleCopy { path, reason })?;
        self.removed.insert(key);
        self.note_copies(COPIES_MAX).map(|()| 1)
    }

    /// The oldest file that is not at the object store.
    fn next_copy(&self) -> Option<PartKey> {
        let keys = self.manifest.parts.keys();
        keys.copied().find(|key| !self.is_copied(key))
    }

    /// The copy that is to be removed next: one that cannot be does not keep the others.
    fn next_stale_copy(&self) -> Option<PartKey> {
        let left = || self.manifest.stale_copies.difference(&self.removed);
        let next = left().find(|key| Some(**key) > self.tried);
        next.or_else(|| left().next()).copied()
    }

    /// Tells the manifest of copies that were made or removed, when they are so many.
    fn note_copies(&mut self, count: usize) -> Result<(), ArchiveError> {
        if self.copied.len() + self.removed.len() < count {
            return Ok(());
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
        Ok(())
    }

    /// Whether the object store has a copy of a file.
    pub(crate) fn is_copied(&self, key: &PartKey) -> bool {
        let known = self.manifest.parts.get(key);
        self.copied.contains(key) || known.is_some_and(|part| part.copied)
    }

    /// Whether the object store may have one: a copy that seemed to fail, or that no manifest was told of before
    /// a crash, may be there.
    pub(crate) fn may_be_copied(&self, key: &PartKey) -> bool {
        self.target.is_some() || self.is_copied(key)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use barograph_model::{ManualClock, Span};

    use super::*;
    use crate::manifest::{Manifest, Part};
    use crate::seal::Context;
    use crate::{ArchiveConfig, Disk, Storage as _, Target, Tier};

    /// A target that takes everything.
    struct Takes;

    impl Target for Takes {
        fn copy(&mut self, _: &Path, _: &Path) -> Result<(), String> {
            Ok(())
        }
    }

    #[test]
    fn what_a_sweep_finds_gone_stays_gone_when_copies_are_noted() {
        let dir = tempfile::tempdir().unwrap();
        let config = ArchiveConfig::new(dir.path(), "n1");
        let context = Context::new(config, Arc::new(Disk), Arc::default());
        let layout = context.layout.clone();
        let mut manifest = Manifest::new("n1");
        manifest.sealed_through = 1;
        Disk.make_dir(&layout.log_dir()).unwrap();
        Disk.make_dir(&layout.tmp_dir()).unwrap();
        let keys = [5, 6].map(|hour| PartKey {
            first: 1,
            hour,
            last: 1,
            tier: Tier::Raw,
        });
        for key in keys {
            let path = key.path(&layout);
            Disk.make_dir(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "rows").unwrap();
            let part = Part {
                rows: 7,
                bytes: 4,
                span: Span { from: 1, to: 2 },
                copied: false,
            };
            manifest.parts.insert(key, part);
        }
        let clock = Arc::new(ManualClock::default());
        let target: Box<dyn Target> = Box::new(Takes);
        let mut sealer = Sealer::new(context, clock, manifest, Arc::default(), Some(target));
        assert_eq!(sealer.copy_one().unwrap() + sealer.copy_one().unwrap(), 2);
        std::fs::remove_file(keys[0].path(&layout)).unwrap();
        assert_eq!(sealer.copy_one().unwrap(), 0);
        let read = Manifest::read(&layout.manifest()).unwrap().unwrap();
        assert_eq!(read, sealer.manifest);
        assert_eq!(read.losses.shed_samples, 7);
        let left: Vec<_> = read.parts.iter().map(|(key, p)| (*key, p.copied)).collect();
        assert_eq!(left, [(keys[1], true)]);
    }
}
