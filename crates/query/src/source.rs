//! Where the scopes of a run directory are and where its archive, and one handle on that for a whole
//! process.
//!
//! It stands alone because every connection asks the same: what is learned of an archive's files is
//! shared by all who read it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use barograph_archive::{Archive, ArchiveError, View};
use barograph_stream::RunDir;

/// What the agent says of itself; its key `archive` is the archive's directory.
const AGENT_DOCUMENT: &str = "agent.json";

/// Gives the archive as it is now.
pub type Views = Arc<dyn Fn() -> Result<Arc<View>, ArchiveError> + Send + Sync>;

/// Which scopes of applications are read beside the node's own streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scopes {
    /// All that this process may open: for whoever asks in a process of their own.
    Readable,
    /// What everyone may read: for a process that answers others.
    Public,
    /// None.
    None,
}

/// The scope that everyone may read.
const PUBLIC: &str = "all";

impl Scopes {
    /// Those that are there, by name.
    pub(crate) fn of(self, run_dir: &RunDir) -> Vec<(String, RunDir)> {
        match self {
            Self::Readable => run_dir.scopes(),
            Self::Public => {
                let scope = run_dir.scope(PUBLIC);
                let is_there = scope.segment().exists();
                is_there
                    .then(|| (PUBLIC.to_owned(), scope))
                    .into_iter()
                    .collect()
            }
            Self::None => Vec::new(),
        }
    }
}

/// The archive of the agent of this run directory, if it says that it keeps one.
pub(crate) fn directory_of(run_dir: &RunDir) -> Option<PathBuf> {
    let bytes = run_dir.document(AGENT_DOCUMENT).ok()??;
    let document: serde_json::Value = serde_json::from_slice(&bytes).ok()?;
    let path = PathBuf::from(document.get("archive")?.as_str()?);
    path.is_absolute().then_some(path)
}

/// The archive in this directory, shared by the process's readers.
pub(crate) fn views_of(root: PathBuf) -> Views {
    static OPEN: Mutex<BTreeMap<PathBuf, Weak<Archive>>> = Mutex::new(BTreeMap::new());
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.retain(|_, archive| archive.strong_count() > 0);
    let archive = open.get(&root).and_then(Weak::upgrade).unwrap_or_else(|| {
        let archive = Arc::new(Archive::open(&root));
        open.insert(root, Arc::downgrade(&archive));
        archive
    });
    Arc::new(move || archive.view())
}
