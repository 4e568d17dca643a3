//! An answer written while its rows come, piece by piece into a sink.
//!
//! Apart from [`Rows`], which holds an answer whole: here of JSON only the piece that is being
//! written is held. Arrow types columns by all of their fields, so its rows are held until the last
//! has come.

use barograph_model::{ResultFormat, SqlFault, SqlLimits, SqlSink};

use crate::database::RowView;
use crate::rows::{
    Cell, Column, Rows, Taker, one_more, unique_names, within, write_list, write_object,
    write_table_end, write_table_head,
};

/// Bytes of a piece: large enough that its memory goes back to the system by itself.
pub(crate) const PIECE_BYTES: usize = 256 << 10;

/// Writes one answer.
pub(crate) struct Encoder {
    format: ResultFormat,
    sink: Box<dyn SqlSink>,
    columns: usize,
    names: Vec<String>,
    out: Vec<u8>,
    /// Bytes in pieces that were put.
    put: usize,
    count: usize,
    /// Rows of an Arrow answer.
    held: Rows,
    /// Bytes of them that the sink was told of.
    told: usize,
}

impl Encoder {
    pub(crate) fn new(format: ResultFormat, sink: Box<dyn SqlSink>) -> Self {
        Self {
            format,
            sink,
            columns: 0,
            names: Vec::new(),
            out: Vec::new(),
            put: 0,
            count: 0,
            held: Rows::default(),
            told: 0,
        }
    }

    /// Writes what comes behind the last row; how many rows there were.
    pub(crate) fn end(mut self, elapsed_ns: i64, limits: &SqlLimits) -> Result<usize, SqlFault> {
        match self.format {
            ResultFormat::JsonRows => self.out.push(b']'),
            ResultFormat::JsonTable => write_table_end(&mut self.out, elapsed_ns),
            ResultFormat::Arrow => {
                let Self {
                    held, sink, put, ..
                } = &mut self;
                held.write_arrow_ipc(&mut |piece: Vec<u8>| {
                    *put += piece.len();
                    within(*put, limits)?;
                    sink.put(piece)
                })?;
                self.count = self.held.len();
            }
        }
        within(self.put + self.out.len(), limits)?;
        if !self.out.is_empty() {
            self.sink.put(self.out)?;
        }
        self.sink.end()?;
        Ok(self.count)
    }

    fn hold(&mut self) -> Result<(), SqlFault> {
        let bytes = self.held.bytes();
        if bytes - self.told >= PIECE_BYTES {
            self.told = bytes;
            self.sink.hold(bytes)?;
        }
        Ok(())
    }
}

impl Taker for Encoder {
    fn begin(&mut self, columns: Vec<Column>) {
        self.out.clear();
        self.columns = columns.len();
        match self.format {
            ResultFormat::JsonRows => {
                self.names = unique_names(&columns);
                self.out.push(b'[');
            }
            ResultFormat::JsonTable => write_table_head(&mut self.out, &columns),
            ResultFormat::Arrow => self.held.begin(columns),
        }
    }

    fn take(&mut self, row: &RowView<'_>, limits: &SqlLimits) -> Result<(), SqlFault> {
        if self.format == ResultFormat::Arrow {
            self.held.take(row, limits)?;
            return self.hold();
        }
        one_more(self.count, limits)?;
        let cells = (0..self.columns).map(|index| Cell::from(row.get(index)).to_json());
        match self.format {
            ResultFormat::JsonRows => {
                write_object(&mut self.out, self.count, &self.names, cells);
            }
            _ => write_list(&mut self.out, self.count, cells),
        }
        self.count += 1;
        within(self.put + self.out.len(), limits)?;
        if self.out.len() >= PIECE_BYTES {
            self.put += self.out.len();
            self.sink.put(std::mem::take(&mut self.out))?;
        }
        Ok(())
    }

    fn has_rows(&self) -> bool {
        self.count > 0 || self.held.has_rows()
    }
}
