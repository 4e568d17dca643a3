//! Cells: words to which an application adds, and does nothing else. The agent reads them when it
//! likes, so the counts are there however the process ends.
//!
//! Two words of the header store how far an agent has come with the cells, for the agent after it.

use super::super::layout::{CELL_BYTES, CELLS_AT, header};
use super::{Header, IngestFile};
use crate::StreamError;

/// The progress of an agent with the cells of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CellsTold {
    /// Number of frames that it has made of them.
    pub frames: u64,
    /// The latest clock, as of the last frame.
    pub clock: u64,
}

impl IngestFile {
    /// Whether the application uses cells.
    pub fn has_cells(&self) -> bool {
        self.cells > 0
    }

    /// Bytes of declarations, as of the last look.
    pub fn declared_bytes(&self) -> u64 {
        Header(&self.header).word(header::DECLARED)
    }

    /// Shortest time between two frames, in ns.
    pub fn cells_interval_ns(&self) -> i64 {
        self.cells_interval_ns
    }

    /// Reads the present values of all cells.
    pub fn read_cells(&self, cells: &mut Vec<u64>) -> Result<(), StreamError> {
        let mut bytes = vec![0; self.cells * CELL_BYTES];
        self.read(&mut bytes, CELLS_AT)?;
        let words = bytes.as_chunks::<CELL_BYTES>().0.iter();
        cells.clear();
        cells.extend(words.map(|word| u64::from_le_bytes(*word)));
        Ok(())
    }

    /// Resets a maximum to 0. A maximum that comes between the look and this call is lost.
    pub fn clear_cell(&self, cell: usize) -> Result<(), StreamError> {
        if cell >= self.cells {
            return Ok(());
        }
        self.write_word(CELLS_AT + cell * CELL_BYTES, 0)
    }

    /// The progress with the cells that an agent stored last.
    pub fn cells_told(&self) -> Result<CellsTold, StreamError> {
        Ok(CellsTold {
            frames: self.read_word(header::CELL_FRAMES)?,
            clock: self.read_word(header::CELL_CLOCK)?,
        })
    }

    /// Stores how far the agent has come, once the frames are safe.
    pub fn set_cells_told(&self, told: CellsTold) -> Result<(), StreamError> {
        // The frames are stored last: a clock without its frames has no meaning.
        self.write_word(header::CELL_CLOCK, told.clock)?;
        self.write_word(header::CELL_FRAMES, told.frames)
    }
}
