//! Where the scopes of a run directory are and where its archive, and one handle on that for a whole
//! process.
//!
//! It stands alone because every connection asks the same: what is learned of an archive's files is
//! shared by all who read it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};

use barograph_archive::{Archive, ArchiveError, View};
use barograph_stream::{RunDir, gate};

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

/// An archive that the agent of a run directory named.
pub(crate) struct OfAgent {
    pub root: PathBuf,
    /// Whose run directory said so.
    owner: u32,
}

/// The archive of the agent of this run directory, if it says that it keeps one.
pub(crate) fn archive_of(run_dir: &RunDir) -> Option<OfAgent> {
    // What is said, and who says it, are of one directory, whatever becomes of its path.
    let place = run_dir.open().ok()?;
    let bytes = place.document(AGENT_DOCUMENT).ok()??;
    let document: serde_json::Value = serde_json::from_slice(&bytes).ok()?;
    let root = PathBuf::from(document.get("archive")?.as_str()?);
    let owner = place.owner();
    root.is_absolute().then_some(OfAgent { root, owner })
}

/// The archive in the directory that an agent named. It must be of the user whose run directory that is, or root's.
pub(crate) fn views_of_agent(archive: OfAgent) -> Views {
    shared(archive.root, Some(archive.owner))
}

/// The archive in a directory that somebody named, whosever it is.
pub(crate) fn views_of(root: PathBuf) -> Views {
    shared(root, None)
}

/// What there is one of in this process: an archive, and whose it must be.
type Opened = (PathBuf, Option<u32>);

/// One for all readers of the process.
fn shared(root: PathBuf, owner: Option<u32>) -> Views {
    static OPEN: Mutex<BTreeMap<Opened, Weak<Archive>>> = Mutex::new(BTreeMap::new());
    let mut open = gate::lock(&OPEN);
    open.retain(|_, archive| archive.strong_count() > 0);
    let key = (root, owner);
    let archive = open.get(&key).and_then(Weak::upgrade).unwrap_or_else(|| {
        let archive = Arc::new(match owner {
            Some(owner) => Archive::of_user(&key.0, owner),
            None => Archive::open(&key.0),
        });
        open.insert(key, Arc::downgrade(&archive));
        archive
    });
    Arc::new(move || archive.view())
}
