//! Stores of objects on other machines, as a seam: S3 by opendal, and Redis or Valkey.
//!
//! All calls wait, for a bounded time, and no lock of the staging store is held meanwhile.

mod address;
mod open;
mod redis;
mod resp;
#[cfg(feature = "s3")]
mod s3;

use std::io;

pub use address::{RemoteAddress, RemoteOptions};
pub use redis::RedisStore;
#[cfg(feature = "s3")]
pub use s3::OpendalStore;

/// A store of objects with names, below a prefix that belongs to one server.
///
/// Errors have the kinds [`io::ErrorKind::NotFound`] if there is no such object,
/// [`io::ErrorKind::UnexpectedEof`] if it ends before, and any other if the store does not do its
/// work now. Their texts name no secret.
pub trait ObjectStore: Send + Sync {
    /// Begins an object of this many bytes, which has its name once it is finished and not before.
    ///
    /// # Errors
    ///
    /// The store fails, or does not answer in time, as for all functions here.
    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn ObjectWriter>>;
    /// Fills the buffer from an offset of an object on.
    ///
    /// # Errors
    ///
    /// There is no such object, it ends before, or the store fails.
    fn read_at(&self, name: &str, bytes: &mut [u8], offset: u64) -> io::Result<()>;
    /// Removes an object; one that is not there is no error.
    ///
    /// # Errors
    ///
    /// The store fails.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Hands over each object with its length, in any order, perhaps more than once.
    ///
    /// # Errors
    ///
    /// The store fails; then some may be missing.
    fn list(&self, found: &mut dyn FnMut(&str, u64)) -> io::Result<()>;
    /// Bytes of the largest object.
    fn object_bytes_max(&self) -> u64 {
        u64::MAX
    }
}

/// An object that is being written. Dropped before its end, it leaves nothing.
pub trait ObjectWriter: Send {
    /// Appends all bytes.
    ///
    /// # Errors
    ///
    /// The store fails.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Gives the object its name.
    ///
    /// # Errors
    ///
    /// The store fails. It may have taken the object all the same.
    fn finish(self: Box<Self>) -> io::Result<()>;
}
