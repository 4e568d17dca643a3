//! The calls file as this process maps it: found, followed when another takes its place, never unmapped.
//!
//! Threads look at its word without a lock, C programs inline, so a mapping stays for good: they are few, for a
//! file is replaced only when an agent cannot go on with it.

use std::sync::atomic::AtomicU32;

use barograph_stream::RunDir;
use barograph_stream::calls::{CallsReader, Next};

/// Files that a process maps in its life, at most: one more is not followed.
const MAPPINGS_MAX: usize = 64;

/// Which file is mapped: device and inode. A mapped one's is not given to another.
type Identity = (u64, u64);

pub(super) struct File {
    /// This user's scope in the run directory.
    scope: Option<RunDir>,
    mapped: Option<(Identity, &'static CallsReader)>,
    /// The next call's position.
    cursor: u64,
    /// All that were mapped ever.
    mappings: Vec<(Identity, &'static CallsReader)>,
}

impl File {
    pub const fn none() -> Self {
        Self {
            scope: None,
            mapped: None,
            cursor: 0,
            mappings: Vec::new(),
        }
    }

    /// From now on this user's in a run directory.
    pub fn look_for(&mut self, run_dir: &RunDir) {
        let user = rustix::process::geteuid().as_raw();
        let scope = run_dir.scope(&format!("u{user}"));
        if self.scope.as_ref() != Some(&scope) {
            self.scope = Some(scope);
            self.mapped = None;
        }
    }

    /// Sees whether there is another file by now.
    pub fn follow(&mut self) {
        let Some(scope) = &self.scope else { return };
        // One that is gone without another in its place has no more calls: it does no harm to stay. Closed or
        // not, there is no other while its name means the same.
        if self.reader().is_some_and(|reader| !reader.is_moved()) {
            return;
        }
        // One that is not whole yet, or not for us: there may be another in a second.
        let Ok(reader) = CallsReader::of(scope) else {
            return;
        };
        // The opened file says which it is: its name may mean another since.
        let found = reader.file_id();
        let known = self.mappings.iter().find(|(id, _)| *id == found);
        let reader = match known {
            Some((_, reader)) => *reader,
            None if self.mappings.len() >= MAPPINGS_MAX => return,
            None => {
                let reader: &'static CallsReader = Box::leak(Box::new(reader));
                self.mappings.push((found, reader));
                reader
            }
        };
        self.mapped = Some((found, reader));
        self.cursor = reader.oldest();
    }

    /// Whether the agent has said that another file is to come, or is there.
    pub fn is_over(&self) -> bool {
        self.reader().is_some_and(CallsReader::is_closed)
    }

    pub fn reader(&self) -> Option<&'static CallsReader> {
        self.mapped.map(|(_, reader)| reader)
    }

    /// Moves with every call.
    pub fn word(&self) -> Option<&'static AtomicU32> {
        self.reader().map(CallsReader::word)
    }

    pub fn next(&mut self) -> Next {
        match self.reader() {
            // What was not taken from one that is closed comes again in the next.
            Some(reader) if !reader.is_closed() => reader.next(&mut self.cursor),
            _ => Next::Nothing,
        }
    }
}
