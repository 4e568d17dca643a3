//! Finds the archive of a run directory, and keeps one handle on it for the whole process.
//!
//! It stands alone because all connections share it: what one reader learns about an archive's
//! files serves all others.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};

use barograph_archive::{ArchiveError, ArchiveReader, View};
use barograph_stream::{AGENT_DOCUMENT, AgentDocument, RunDir, gate};

/// A function that returns the archive's present view.
pub type Views = Arc<dyn Fn() -> Result<Arc<View>, ArchiveError> + Send + Sync>;

/// An archive that the agent of a run directory named.
pub(crate) struct OfAgent {
    pub root: PathBuf,
    /// User id of the owner of that run directory.
    owner: u32,
}

/// The archive that the agent of this run directory keeps, if it keeps one.
pub(crate) fn archive_of(run_dir: &RunDir) -> Option<OfAgent> {
    // The document and its owner are read from one opened directory, even if its path changes.
    let place = run_dir.open().ok()?;
    let bytes = place.document(AGENT_DOCUMENT).ok()??;
    let document: AgentDocument = serde_json::from_slice(&bytes).ok()?;
    let root = document.archive?;
    let owner = place.owner();
    root.is_absolute().then_some(OfAgent { root, owner })
}

/// The archive in a directory that an agent named. It must belong to the owner of the agent's run
/// directory, or to root.
pub(crate) fn views_of_agent(archive: OfAgent) -> Views {
    shared(archive.root, Some(archive.owner))
}

/// The archive in a directory that the user named, whoever owns it.
pub(crate) fn views_of(root: PathBuf) -> Views {
    shared(root, None)
}

/// Key of an open archive: its directory, and the user id of its required owner.
type Opened = (PathBuf, Option<u32>);

/// The one handle on an archive that all readers of the process share.
fn shared(root: PathBuf, owner: Option<u32>) -> Views {
    static OPEN: Mutex<BTreeMap<Opened, Weak<ArchiveReader>>> = Mutex::new(BTreeMap::new());
    let mut open = gate::lock(&OPEN);
    open.retain(|_, archive| archive.strong_count() > 0);
    let key = (root, owner);
    let archive = open.get(&key).and_then(Weak::upgrade).unwrap_or_else(|| {
        let archive = Arc::new(match owner {
            Some(owner) => ArchiveReader::of_user(&key.0, owner),
            None => ArchiveReader::open(&key.0),
        });
        open.insert(key, Arc::downgrade(&archive));
        archive
    });
    Arc::new(move || archive.view())
}
