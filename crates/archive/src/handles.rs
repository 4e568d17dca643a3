//! Parquet files that are open, shared by the views of one archive: their indexes are read once, and
//! there are never too many.

use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use crate::ArchiveError;
use crate::Layout;
use crate::manifest::{Part, PartKey};
use crate::open;
use crate::parquet::ParquetPart;

/// Most files whose indexes are kept; those in use count on after they are pushed out.
const OPEN_MAX: usize = 128;

/// The cache.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    parts: HashMap<Which, (Arc<ParquetPart>, u64)>,
    /// Counts uses: the least is the oldest.
    uses: u64,
}

/// A file and its length: a name may be used again when somebody removed an archive and began anew.
type Which = (PathBuf, u64);

impl Handles {
    /// The part, from the cache, from the file that a view holds, or from its path.
    pub(crate) fn open(
        &self,
        layout: &Layout,
        key: PartKey,
        part: &Part,
        held: Option<&Arc<File>>,
    ) -> Result<Arc<ParquetPart>, ArchiveError> {
        let path = key.path(layout);
        let which = (path, part.bytes);
        if let Some(found) = self.find(&which) {
            return Ok(found);
        }
        let path = &which.0;
        let file = match held {
            Some(file) => file.try_clone().map_err(ArchiveError::io("open", path))?,
            None => open::regular(path)?,
        };
        let opened = Arc::new(ParquetPart::from_file(path, file)?);
        self.keep(which, &opened);
        Ok(opened)
    }

    /// Closes the files that were unlinked.
    pub(crate) fn release(&self) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.parts.retain(|_, (part, _)| !part.is_unlinked());
    }

    fn find(&self, which: &Which) -> Option<Arc<ParquetPart>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.uses += 1;
        let uses = open.uses;
        let (part, used) = open.parts.get_mut(which)?;
        *used = uses;
        Some(Arc::clone(part))
    }

    fn keep(&self, which: Which, part: &Arc<ParquetPart>) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.parts.len() >= OPEN_MAX {
            let oldest = open.parts.iter().min_by_key(|(_, (_, used))| *used);
            if let Some(oldest) = oldest.map(|(which, _)| which.clone()) {
                open.parts.remove(&oldest);
            }
        }
        let uses = open.uses;
        open.parts.insert(which, (Arc::clone(part), uses));
    }
}
