//! What a tier below memory is on: a directory, or a store of objects.

use std::io;
use std::sync::Arc;

use super::directory::{DirectoryMedium, DraftFile};
use super::disk::DiskFile;
use super::found::Scan;
use super::header::FileHead;
use super::objects::ObjectMedium;
use crate::block::UserId;
use crate::remote::{ObjectStore, ObjectWriter};

/// What a tier is on.
pub(crate) enum Medium {
    Directory(DirectoryMedium),
    Objects(ObjectMedium),
}

/// A copy that is being written, with its name on the medium.
pub(crate) enum Draft {
    File(DraftFile),
    Object(Box<dyn ObjectWriter>),
}

/// A copy that is being read.
pub(crate) enum CopyReader {
    File(Box<dyn DiskFile>),
    Object(Arc<dyn ObjectStore>, Box<str>),
}

impl Medium {
    /// Begins a copy with its header. Returns the name that it has once it is finished.
    pub(crate) fn create(&self, number: u64, head: &FileHead) -> io::Result<(Box<str>, Draft)> {
        match self {
            Self::Directory(it) => {
                let (name, draft) = it.create(number, head)?;
                Ok((name, Draft::File(draft)))
            }
            Self::Objects(it) => {
                let (name, draft) = it.create(number, head)?;
                Ok((name, Draft::Object(draft)))
            }
        }
    }

    /// Makes a draft a copy of this name. After a failure none of a file is there; an object may
    /// be, since its store may have taken what it did not acknowledge.
    pub(crate) fn finish(&self, name: &str, draft: Draft) -> io::Result<()> {
        match (self, draft) {
            (Self::Directory(it), Draft::File(file)) => it.finish(name, file),
            (_, Draft::Object(object)) => object.finish(),
            (Self::Objects(_), Draft::File(_)) => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Removes what is there of a draft that is not finished.
    pub(crate) fn abandon(&self, draft: Draft) {
        if let (Self::Directory(it), Draft::File(file)) = (self, draft) {
            it.abandon(file);
        }
    }

    pub(crate) fn open(&self, name: &str) -> io::Result<CopyReader> {
        match self {
            Self::Directory(it) => it.open(name).map(CopyReader::File),
            // Nothing is asked of the store before something is read.
            Self::Objects(it) => Ok(CopyReader::Object(Arc::clone(it.store()), name.into())),
        }
    }

    /// Removes a copy; one that is gone already is no error.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        match self {
            Self::Directory(it) => it.remove(name),
            Self::Objects(it) => it.remove(name),
        }
    }

    /// Makes the removal of copies of a user durable.
    pub(crate) fn sync_names(&self, user: UserId) -> io::Result<()> {
        match self {
            Self::Directory(it) => it.sync_names(user),
            Self::Objects(_) => Ok(()),
        }
    }

    /// Looks at what is there, and takes the note of a stop in order away.
    pub(crate) fn scan(&self) -> io::Result<(Scan, u64)> {
        match self {
            Self::Directory(it) => it.scan(),
            Self::Objects(it) => it.scan().map(|scan| (scan, 0)),
        }
    }

    /// Notes that the server stops in order.
    pub(crate) fn mark_clean(&self, joined_epoch: u64) -> io::Result<()> {
        match self {
            Self::Directory(it) => it.mark_clean(joined_epoch),
            Self::Objects(it) => it.mark_clean(joined_epoch),
        }
    }

    /// Whether a call may take as long as a network does: threads that serve clients leave removals
    /// to those that flush.
    pub(crate) fn is_remote(&self) -> bool {
        matches!(self, Self::Objects(_))
    }

    /// Bytes of the largest copy, its header included.
    pub(crate) fn copy_bytes_max(&self) -> u64 {
        match self {
            Self::Directory(_) => u64::MAX,
            Self::Objects(it) => it.object_bytes_max(),
        }
    }
}

impl Draft {
    pub(crate) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::File(file) => file.append(bytes),
            Self::Object(object) => object.append(bytes),
        }
    }
}

impl CopyReader {
    /// Bytes that are well read at a time.
    pub(crate) fn piece_bytes(&self) -> usize {
        match self {
            Self::File(_) => 256 << 10,
            Self::Object(..) => 4 << 20,
        }
    }

    /// Fills the buffer from an offset on.
    pub(crate) fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        match self {
            Self::File(file) => file.read_at(bytes, offset),
            Self::Object(store, name) => store.read_at(name, bytes, offset),
        }
    }
}
