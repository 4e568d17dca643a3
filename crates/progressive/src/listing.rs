//! The arrays of a file that has several, one after the other: such as the variables and the time
//! steps of a run.

use crate::ProgressiveError;
use crate::bytes::{ByteSource, fetched};
use crate::header::ArrayHeader;

/// Most arrays of a file.
pub const ARRAYS_MAX: usize = 1 << 16;
/// Most arrays that an error names.
const NAMED_MAX: usize = 8;

/// Which array of a file is meant; what is not said may be anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedArray {
    /// Its name.
    pub name: Option<String>,
    /// Number of its time step.
    pub step: Option<u64>,
}

impl WantedArray {
    fn is(&self, header: &ArrayHeader) -> bool {
        self.name.as_ref().is_none_or(|name| *name == header.name)
            && (self.step.is_none() || self.step == header.step)
    }
}

/// The headers of a file's arrays.
#[derive(Clone, Debug)]
pub struct ArrayListing {
    /// Where each array begins, and its header. The last one may be cut short.
    pub(crate) arrays: Vec<(u64, ArrayHeader)>,
    /// End of the last array that is whole.
    end: u64,
    bytes: u64,
}

impl ArrayListing {
    /// Reads all headers. What comes after the last one that can be read is left: it was not
    /// written to its end.
    ///
    /// # Errors
    ///
    /// Not even the first header can be read, one is of a later version, or there are more than
    /// [`ARRAYS_MAX`] arrays.
    pub fn read(source: &impl ByteSource) -> Result<Self, ProgressiveError> {
        let mut listing = Self {
            arrays: Vec::new(),
            end: 0,
            bytes: source.byte_count(),
        };
        loop {
            let start = listing.end;
            let header = match header_at(source, start) {
                Ok(header) => header,
                Err(error) if start == 0 => return Err(error),
                // What a later program has written is not to be written over.
                Err(error @ ProgressiveError::Future { .. }) => return Err(error),
                Err(_) => break,
            };
            if listing.arrays.len() == ARRAYS_MAX {
                return Err(ProgressiveError::Damaged {
                    part: "the file".into(),
                    reason: format!("it has more than {ARRAYS_MAX} arrays"),
                });
            }
            let end = start.saturating_add(header.array_bytes());
            listing.arrays.push((start, header));
            if end > listing.bytes {
                break;
            }
            listing.end = end;
            if end == listing.bytes {
                break;
            }
        }
        Ok(listing)
    }

    /// The headers in the order of the arrays.
    pub fn headers(&self) -> impl ExactSizeIterator<Item = &ArrayHeader> {
        self.arrays.iter().map(|(_, header)| header)
    }

    /// The headers of the arrays that are whole.
    pub fn whole(&self) -> impl Iterator<Item = &ArrayHeader> {
        let whole = self.arrays.iter().filter(|(start, _)| *start < self.end);
        whole.map(|(_, header)| header)
    }

    /// Bytes of the file.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// End of the last array that is whole: where the next one is to be written.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Whether an array with this name and this step is there, and whole.
    pub fn has(&self, name: &str, step: Option<u64>) -> bool {
        let mut whole = self.arrays.iter().filter(|(start, _)| *start < self.end);
        whole.any(|(_, header)| header.name == name && header.step == step)
    }

    /// The place and the header of the one array that is meant.
    pub(crate) fn one(&self, wanted: &WantedArray) -> Result<(u64, ArrayHeader), ProgressiveError> {
        // Coordinates of a mesh are meant only where they are named: others mean the values on it.
        let has_mesh = self.headers().any(|header| header.on_mesh);
        let is_meant = |header: &ArrayHeader| {
            let is_aside = has_mesh && wanted.name.is_none() && header.is_coordinate();
            wanted.is(header) && !is_aside
        };
        let found: Vec<_> = self
            .arrays
            .iter()
            .filter(|(_, header)| is_meant(header))
            .collect();
        if let [(start, header)] = found[..] {
            return Ok((*start, header.clone()));
        }
        let mut names: Vec<String> = self.headers().take(NAMED_MAX).map(label).collect();
        if self.arrays.len() > names.len() {
            names.push("…".into());
        }
        Err(ProgressiveError::Ambiguous {
            meant: found.len(),
            arrays: self.arrays.len(),
            names: names.join(", "),
        })
    }
}

/// An array in words: its name and its step.
fn label(header: &ArrayHeader) -> String {
    let name = match &*header.name {
        "" => "without a name".into(),
        name => name.escape_debug().to_string(),
    };
    match header.step {
        Some(step) => format!("{name} step {step}"),
        None => name,
    }
}

fn header_at(source: &impl ByteSource, start: u64) -> Result<ArrayHeader, ProgressiveError> {
    let all = source.byte_count();
    let read = |count: usize| {
        let end = start.saturating_add(count as u64).min(all);
        fetched(source, start.min(end)..end)
    };
    let length = ArrayHeader::encoded_len(&read(ArrayHeader::PREFIX_BYTES)?)?;
    ArrayHeader::decode(&read(length)?)
}
