//! The collectors of a read's faults: all faults of one read become one error.

use crate::SourceError;
use crate::util::parse::escape;

/// Longest excerpt of a bad line that an error holds, in bytes.
const EXCERPT_BYTES_MAX: usize = 80;

/// The faults of one read, kept as the first and a count.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    first: Option<SourceError>,
    more: u32,
}

impl Faults {
    pub(crate) fn add(&mut self, fault: SourceError) {
        match self.first {
            None => self.first = Some(fault),
            Some(_) => self.more = self.more.saturating_add(1),
        }
    }

    /// Returns the value, or adds the fault.
    pub(crate) fn take<T>(&mut self, result: Result<T, SourceError>) -> Option<T> {
        result.map_err(|fault| self.add(fault)).ok()
    }

    pub(crate) fn finish(self) -> Result<(), SourceError> {
        match (self.first, self.more) {
            (None, _) => Ok(()),
            (Some(first), 0) => Err(first),
            (Some(first), more) => Err(SourceError::Several {
                first: Box::new(first),
                more,
            }),
        }
    }
}

/// The lines of one file that could not be parsed.
#[derive(Debug, Default)]
pub(crate) struct BadLines {
    count: u64,
    first: String,
}

impl BadLines {
    pub(crate) fn add(&mut self, line: &[u8]) {
        if self.count == 0 {
            self.first = escape(&line[..line.len().min(EXCERPT_BYTES_MAX)]);
        }
        self.count += 1;
    }

    pub(crate) fn any(&self) -> bool {
        self.count > 0
    }

    /// Adds the bad lines, if any, as one fault of the file `path`.
    pub(crate) fn report(self, path: &std::path::Path, faults: &mut Faults) {
        if self.count > 0 {
            let Self { count, first } = self;
            faults.add(SourceError::BadLines {
                path: path.to_owned(),
                count,
                first,
            });
        }
    }
}
