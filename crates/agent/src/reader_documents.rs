//! Documents whose rows belong to users: each user with a scope has the own ones there, and the
//! agent's user has the others.

use std::collections::BTreeMap;

use barograph_recorder::{publish, publish_private};
use barograph_stream::{RunDir, ScopeReader};
use serde::Serialize;

/// The rows of such a document by those who may read them, as they were written last; `None` is the
/// agent's user, who also has those of users without a scope.
pub(crate) struct ReaderDocuments<R> {
    told: BTreeMap<Option<ScopeReader>, Vec<R>>,
}

impl<R> Default for ReaderDocuments<R> {
    fn default() -> Self {
        Self {
            told: BTreeMap::new(),
        }
    }
}

impl<R: PartialEq + Serialize> ReaderDocuments<R> {
    /// Writes the documents of this name that have changed, of at most `rows_max` rows each. A row
    /// without a user is for the agent's user.
    pub(crate) fn publish(
        &mut self,
        (run_dir, name): (&RunDir, &str),
        our_uid: u32,
        rows: Vec<(Option<u32>, R)>,
        rows_max: usize,
    ) {
        let mut now: BTreeMap<Option<ScopeReader>, Vec<R>> = BTreeMap::new();
        now.entry(None).or_default();
        // Readers whose last row is gone are told so.
        for reader in self.told.keys() {
            now.entry(*reader).or_default();
        }
        for (uid, row) in rows {
            let reader = uid.filter(|uid| *uid != our_uid).map(ScopeReader::User);
            // A scope begins with the first stream of its readers.
            let reader = reader.filter(|it| run_dir.scope(&it.scope()).path().exists());
            let of_reader = now.entry(reader).or_default();
            if of_reader.len() < rows_max {
                of_reader.push(row);
            }
        }
        for (reader, rows) in &now {
            if self.told.get(reader) == Some(rows) {
                continue;
            }
            match reader {
                None => publish_private(run_dir, name, rows),
                Some(reader) => {
                    let dir = run_dir.scope(&reader.scope());
                    if dir.path().exists() {
                        publish(&dir, name, rows);
                    }
                }
            }
        }
        self.told = now;
    }
}
