//! The calls file as this process maps it: found, followed when another one replaces it, never
//! unmapped.
//!
//! Threads read its word without a lock, C programs inline, so a mapping is kept for ever. There
//! are few mappings, because a file is replaced only if an agent cannot go on with it.

use std::sync::atomic::AtomicU32;

use barograph_stream::RunDir;
use barograph_stream::calls::{CallsReader, NextCall};

/// Most files that a process maps in its life; one more is not followed.
const MAPPINGS_MAX: usize = 64;

/// Device and inode of a mapped file. While it is mapped, no other file can get the same ones.
type Identity = (u64, u64);

pub(super) struct File {
    /// This user's scope in the run directory.
    scope: Option<RunDir>,
    mapped: Option<(Identity, &'static CallsReader)>,
    /// Position of the next call.
    cursor: u64,
    /// All mappings that were ever made.
    mappings: Vec<(Identity, &'static CallsReader)>,
}

impl File {
    pub(super) const fn none() -> Self {
        Self {
            scope: None,
            mapped: None,
            cursor: 0,
            mappings: Vec::new(),
        }
    }

    /// Follows this user's calls file in a run directory from now on.
    pub(super) fn look_for(&mut self, run_dir: &RunDir) {
        let user = rustix::process::geteuid().as_raw();
        let scope = run_dir.scope(&format!("u{user}"));
        if self.scope.as_ref() != Some(&scope) {
            self.scope = Some(scope);
            self.mapped = None;
        }
    }

    /// Checks whether there is another file by now.
    pub(super) fn follow(&mut self) {
        let Some(scope) = &self.scope else { return };
        // A file that is gone without a successor has no more calls, so it does no harm to keep it.
        // Closed or not, there is no other file while its name still refers to it.
        if self.reader().is_some_and(|reader| !reader.is_moved()) {
            return;
        }
        // The file is not complete yet, or not for this user: there may be another one in a second.
        let Ok(reader) = CallsReader::of(scope) else {
            return;
        };
        // The identity is that of the opened file: its name may refer to another one since.
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

    /// Whether the agent has closed the file, because another one is coming or is there.
    pub(super) fn is_over(&self) -> bool {
        self.reader().is_some_and(CallsReader::is_closed)
    }

    pub(super) fn reader(&self) -> Option<&'static CallsReader> {
        self.mapped.map(|(_, reader)| reader)
    }

    /// The word that changes with every call.
    pub(super) fn word(&self) -> Option<&'static AtomicU32> {
        self.reader().map(CallsReader::word)
    }

    pub(super) fn next(&mut self) -> NextCall {
        match self.reader() {
            // Calls that were not taken from a closed file come again in the next one.
            Some(reader) if !reader.is_closed() => reader.next(&mut self.cursor),
            _ => NextCall::Nothing,
        }
    }
}
