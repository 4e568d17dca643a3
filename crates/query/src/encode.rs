//! Encodes an answer while its rows come, piece by piece into a sink.
//!
//! It stands apart from [`Rows`], which holds a whole answer: for JSON, only the piece that is
//! written is held. Rows are written cell by cell, since a wide row is larger than many answers.
//! Arrow types columns by all of their fields, so its rows are held until the last has come.

use barograph_model::{BigIntegers, PIECE_BYTES, ResultFormat, SqlFault, SqlLimits, SqlSink};

use crate::rows::{
    Cell, Column, RowView, Rows, Taker, one_more, unique_names, within, write_json,
    write_table_end, write_table_head,
};

/// The encoder of one answer.
pub(crate) struct Encoder {
    format: ResultFormat,
    big: BigIntegers,
    sink: Box<dyn SqlSink>,
    /// Column indices in the order of writing, each with the bytes before its cell: the name in an
    /// object, nothing in a list. The names of an object are sorted, as in [`Rows::to_json_rows`].
    cells: Vec<(usize, Vec<u8>)>,
    out: Vec<u8>,
    /// Bytes in pieces that were passed to the sink.
    put: usize,
    count: usize,
    /// Rows of an Arrow answer.
    held: Rows,
    /// Bytes of `held` that were reported to the sink.
    told: usize,
}

impl Encoder {
    pub(crate) fn new(format: ResultFormat, big: BigIntegers, sink: Box<dyn SqlSink>) -> Self {
        Self {
            format,
            big,
            sink,
            cells: Vec::new(),
            out: Vec::new(),
            put: 0,
            count: 0,
            held: Rows::default(),
            told: 0,
        }
    }

    /// Writes what follows the last row; returns the number of rows.
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

    /// Passes the written bytes to the sink if they make a whole piece.
    fn pass_on(&mut self, limits: &SqlLimits) -> Result<(), SqlFault> {
        within(self.put + self.out.len(), limits)?;
        if self.out.len() >= PIECE_BYTES {
            self.put += self.out.len();
            self.sink.put(std::mem::take(&mut self.out))?;
        }
        Ok(())
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

/// The name of a cell of an object, encoded.
fn named((column, name): (usize, String)) -> (usize, Vec<u8>) {
    let mut before = Vec::new();
    write_json(&mut before, &name.into());
    before.push(b':');
    (column, before)
}

impl Taker for Encoder {
    fn begin(&mut self, columns: Vec<Column>) {
        self.out.clear();
        match self.format {
            ResultFormat::JsonRows => {
                let mut names: Vec<(usize, String)> =
                    unique_names(&columns).into_iter().enumerate().collect();
                names.sort_by(|(_, a), (_, b)| a.cmp(b));
                self.cells = names.into_iter().map(named).collect();
                self.out.push(b'[');
            }
            ResultFormat::JsonTable => {
                self.cells = (0..columns.len()).map(|at| (at, Vec::new())).collect();
                write_table_head(&mut self.out, &columns);
            }
            ResultFormat::Arrow => self.held.begin(columns),
        }
    }

    fn take(&mut self, row: &RowView<'_>, limits: &SqlLimits) -> Result<(), SqlFault> {
        if self.format == ResultFormat::Arrow {
            self.held.take(row, limits)?;
            return self.hold();
        }
        one_more(self.count, limits)?;
        if self.count > 0 {
            self.out.push(b',');
        }
        self.count += 1;
        let (open, close) = match self.format {
            ResultFormat::JsonRows => (b'{', b'}'),
            _ => (b'[', b']'),
        };
        self.out.push(open);
        for at in 0..self.cells.len() {
            if at > 0 {
                self.out.push(b',');
            }
            let (column, before) = &self.cells[at];
            self.out.extend_from_slice(before);
            write_json(
                &mut self.out,
                &Cell::from(row.get(*column)).to_json(self.big),
            );
            self.pass_on(limits)?;
        }
        self.out.push(close);
        self.pass_on(limits)
    }

    fn has_rows(&self) -> bool {
        self.count > 0 || self.held.has_rows()
    }
}
