//! Where the archive of a run directory is, and one handle on it for a whole process.
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
