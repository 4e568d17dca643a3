//! The list of revoked certificates on disk, which an administrator's command or the network
//! renews.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use barograph_fabric::security::REVOCATION_LIST_BYTES_MAX;
use barograph_fabric::transport::ZenohTransport;
use tracing::warn;

/// The list of revoked certificates on disk. `baro cluster revoke` writes it on one node; on the
/// others it comes from the network, and is kept for the next start.
pub(crate) struct RevocationFile {
    path: PathBuf,
    /// Time of the last change, and size, of the file that was read.
    read: Option<(SystemTime, u64)>,
    /// The list that is in the file.
    pub(crate) kept: Option<Arc<[u8]>>,
    has_failed: bool,
}

impl RevocationFile {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self {
            path,
            read: None,
            kept: None,
            has_failed: false,
        }
    }

    /// The list on disk, if it has changed since it was read. A read that fails is tried again.
    pub(crate) fn changed(&mut self) -> Option<Vec<u8>> {
        let found = std::fs::metadata(&self.path).ok()?;
        let found = Some((found.modified().ok()?, found.len()));
        if found == self.read {
            return None;
        }
        let list = read_bounded(&self.path, REVOCATION_LIST_BYTES_MAX as u64).ok()?;
        self.read = found;
        Some(list)
    }

    /// Gives the transport a list that is new on disk, and writes one that came from the network.
    pub(crate) fn sync(&mut self, transport: &mut ZenohTransport) {
        if let Some(list) = self.changed()
            && transport.revoke(&list)
        {
            self.kept = transport.revocation_list();
        }
        let newest = transport.revocation_list();
        if newest.is_none() || newest == self.kept {
            return;
        }
        let written = newest.as_ref().map_or(Ok(()), |list| self.write(list));
        match written {
            Ok(()) => (self.kept, self.has_failed) = (newest, false),
            Err(error) if !self.has_failed => {
                self.has_failed = true;
                let path = self.path.display();
                warn!(%error, %path, "the list of revoked certificates is not kept");
            }
            Err(_) => {}
        }
    }

    /// Replaces the file; the list is there after a power failure.
    fn write(&self, list: &[u8]) -> std::io::Result<()> {
        let new = self.path.with_extension("new");
        let mut file = File::create(&new)?;
        file.write_all(list)?;
        file.sync_all()?;
        std::fs::rename(&new, &self.path)?;
        let dir = self.path.parent();
        dir.map_or(Ok(()), |dir| File::open(dir)?.sync_all())
    }
}

fn read_bounded(path: &Path, bytes_max: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(bytes)
}
