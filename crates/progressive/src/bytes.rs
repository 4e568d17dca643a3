//! Bytes that lie elsewhere, and are fetched when they are needed.

use std::borrow::Cow;
use std::io;
use std::ops::Range;

use crate::ProgressiveError;

/// Bytes that are fetched by their place, such as those of a file.
pub trait ByteSource {
    /// Number of bytes that are there.
    fn byte_count(&self) -> u64;

    /// Returns the bytes at a place, which is not beyond [`Self::byte_count`].
    ///
    /// # Errors
    ///
    /// They cannot be read.
    fn fetch(&self, place: Range<u64>) -> io::Result<Cow<'_, [u8]>>;
}

impl ByteSource for &dyn ByteSource {
    fn byte_count(&self) -> u64 {
        (**self).byte_count()
    }

    fn fetch(&self, place: Range<u64>) -> io::Result<Cow<'_, [u8]>> {
        (**self).fetch(place)
    }
}

impl ByteSource for &[u8] {
    fn byte_count(&self) -> u64 {
        self.len() as u64
    }

    fn fetch(&self, place: Range<u64>) -> io::Result<Cow<'_, [u8]>> {
        let place = place.start as usize..place.end as usize;
        let bytes = self.get(place).ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(Cow::Borrowed(bytes))
    }
}

/// The bytes at a place.
pub(crate) fn fetched<S: ByteSource>(
    source: &S,
    place: Range<u64>,
) -> Result<Cow<'_, [u8]>, ProgressiveError> {
    let bytes = source.fetch(place);
    bytes.map_err(|error| ProgressiveError::Fetch {
        reason: error.to_string(),
    })
}
