//! Cells: words that an application adds to and does nothing else about. The agent reads them when it likes,
//! so what was counted is there however the process ends.
//!
//! Two words of the header say how far an agent has come with them, for the agent that comes after it.

use super::super::layout::{CELL_BYTES, CELLS_AT, header};
use super::{Header, IngestFile};
use crate::StreamError;

/// What an agent has made of the cells of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CellsTold {
    /// Frames.
    pub frames: u64,
    /// The latest clock, as of the last of them.
    pub clock: u64,
}

impl IngestFile {
    /// Whether the application counts in cells.
    pub fn has_cells(&self) -> bool {
        self.cells > 0
    }

    /// How much is declared, as of the last look.
    pub fn declared_bytes(&self) -> u64 {
        Header(&self.header).word(header::DECLARED)
    }

    /// Between two frames, at least.
    pub fn cells_interval_ns(&self) -> i64 {
        self.cells_interval_ns
    }

    /// All cells as they are now.
    pub fn read_cells(&self, cells: &mut Vec<u64>) -> Result<(), StreamError> {
        let mut bytes = vec![0; self.cells * CELL_BYTES];
        self.read(&mut bytes, CELLS_AT)?;
        let words = bytes.as_chunks::<CELL_BYTES>().0.iter();
        cells.clear();
        cells.extend(words.map(|word| u64::from_le_bytes(*word)));
        Ok(())
    }

    /// Begins a maximum anew. One that comes between the look and this is lost.
    pub fn clear_cell(&self, cell: usize) -> Result<(), StreamError> {
        if cell >= self.cells {
            return Ok(());
        }
        self.write_word(CELLS_AT + cell * CELL_BYTES, 0)
    }

    /// How far an agent had come with the cells when it said so last.
    pub fn cells_told(&self) -> Result<CellsTold, StreamError> {
        Ok(CellsTold {
            frames: self.read_word(header::CELL_FRAMES)?,
            clock: self.read_word(header::CELL_CLOCK)?,
        })
    }

    /// Says so, once what was made of them is safe.
    pub fn set_cells_told(&self, told: CellsTold) -> Result<(), StreamError> {
        // The frames last: a clock that nothing was told of says nothing.
        self.write_word(header::CELL_CLOCK, told.clock)?;
        self.write_word(header::CELL_FRAMES, told.frames)
    }
}
