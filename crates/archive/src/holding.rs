//! A node whose raw files of a span are all held open, for readers that must see one moment.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;

use barograph_model::Span;
use rustix::io::Errno;

use crate::held::HeldFile;
use crate::manifest::Manifest;
use crate::part::PartKey;
use crate::sets::HourSets;
use crate::snapshot::{NodeSnapshot, SealedFiles, make_room};
use crate::{ArchiveError, open};

impl NodeSnapshot {
    /// Returns the node with every raw file of a span held open, however many; `None` if one was
    /// replaced since. A file that was deleted by hand is left out.
    pub(crate) fn holding(&self, span: Span) -> Result<Option<Self>, ArchiveError> {
        let layout = &self.sealed.layout;
        let mut manifest = self.sealed.manifest.clone();
        let hours = HourSets::of(&manifest, &|sets| sets.has_raw(span));
        let keys: Vec<PartKey> = hours.iter().flat_map(HourSets::raw).collect();
        make_room(keys.len() as u64);
        let mut held = HashMap::with_capacity(keys.len());
        let mut gone = Vec::new();
        for key in &keys {
            let file = match self.sealed.held.get(key) {
                Some(file) => Ok(Arc::clone(file)),
                None => open::part_file(layout, *key).map(|file| Arc::new(HeldFile::beyond(file))),
            };
            match file {
                Err(error) if error.kind() == ErrorKind::NotFound => gone.push(*key),
                Err(error) if Errno::from_io_error(&error) == Some(Errno::MFILE) => {
                    return Err(too_many(keys.len(), key.path(layout)));
                }
                file => {
                    let path = key.path(layout);
                    held.insert(*key, file.map_err(ArchiveError::io("open", path))?);
                }
            }
        }
        if !gone.is_empty() {
            // The manifest is read after the files were missing, so it lists what replaced them.
            let now = Manifest::read(layout)?.unwrap_or_default();
            if gone.iter().any(|key| !now.parts.contains_key(key)) {
                return Ok(None);
            }
            for key in gone {
                let path = key.path(layout);
                tracing::error!("{} is gone: it was removed by other hands", path.display());
                manifest.parts.remove(&key);
            }
        }
        let sealed = SealedFiles {
            layout: layout.clone(),
            manifest,
            held,
        };
        Ok(Some(Self {
            sealed: Arc::new(sealed),
            ..self.clone()
        }))
    }
}

fn too_many(files: usize, path: PathBuf) -> ArchiveError {
    let reason = format!(
        "{files} files are to be open at once, and this process may not have so many: \
         raise the limit (ulimit -n), or ask for a shorter time"
    );
    ArchiveError::io("open", path)(io::Error::other(reason))
}
