//! The rows of a reading, in batches that are read on a thread of their own.
//!
//! SQLite takes one row of a scan at a time and may leave the scan at any row, while the archive is
//! read in long runs. So another thread reads one batch ahead, and the scan, while it waits, keeps
//! checking whether the statement must stop.

use std::cmp::Ordering as Compared;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use barograph_archive::SampleChunk;
use barograph_model::{Columns, Span, TEXT_BYTES_MAX, Values};
use rusqlite::Result;

use crate::QueryError;
use crate::error::{failed, internal, interrupted};
use crate::live::Live;
use crate::memory::{ScanClaim, ScanMemory};
use crate::plan::RowOrder;
use crate::reading::Reading;

/// Time between two checks whether the statement must stop.
const LOOK: Duration = Duration::from_millis(10);
/// Stack of the reading thread: the archive's decoders need more than a small one.
const STACK_BYTES: usize = 2 << 20;

pub(crate) struct RowBatch {
    pub(crate) chunks: Vec<Arc<SampleChunk>>,
    /// Chunk and row of each row, in the requested order; `None` if they are the rows of the only
    /// chunk.
    order: Option<Vec<(u32, u32)>>,
    _claim: ScanClaim,
}

impl RowBatch {
    /// The number of rows.
    pub(crate) fn len(&self) -> usize {
        match &self.order {
            Some(order) => order.len(),
            None => self.chunks.iter().map(|chunk| chunk.columns.len()).sum(),
        }
    }

    /// The chunk of row `at`, and the row's index in it.
    pub(crate) fn row(&self, at: usize) -> Option<(&SampleChunk, usize)> {
        let (chunk, row) = match &self.order {
            Some(order) => *order.get(at)?,
            None => (0, u32::try_from(at).ok()?),
        };
        let chunk = self.chunks.get(chunk as usize)?;
        ((row as usize) < chunk.columns.len()).then_some((chunk, row as usize))
    }
}

type Message = Result<Option<RowBatch>>;

/// The batches of a reading. Dropping the feed stops its thread soon after.
pub(crate) struct BatchFeed {
    live: Arc<Live>,
    ready: VecDeque<RowBatch>,
    /// The channel from the reading thread; none if nothing more comes.
    reader: Option<Receiver<Message>>,
    stop: Arc<AtomicBool>,
}

impl BatchFeed {
    /// Starts to read the samples within the span.
    pub(crate) fn start(
        live: &Arc<Live>,
        reading: &Arc<Reading>,
        span: Span,
        order: Option<RowOrder>,
    ) -> Result<Self> {
        let mut feed = Self {
            live: Arc::clone(live),
            ready: VecDeque::new(),
            reader: None,
            stop: Arc::default(),
        };
        let work = Work {
            reading: Arc::clone(reading),
            memory: Arc::clone(&live.memory),
            span,
            order,
        };
        if !reading.is_archived() {
            let ready = &mut feed.ready;
            work.run(&AtomicBool::new(false), &mut |batch| {
                ready.push_back(batch);
                true
            })?;
            return Ok(feed);
        }
        // Without a buffer: one batch is read while another is used.
        let (sender, receiver) = sync_channel(0);
        let stop = Arc::clone(&feed.stop);
        thread::Builder::new()
            .name("baro-past".into())
            .stack_size(STACK_BYTES)
            .spawn(move || work.serve(&stop, &sender))
            .map_err(internal)?;
        feed.reader = Some(receiver);
        Ok(feed)
    }

    /// The next batch with rows. Waits for it as long as the statement may run.
    pub(crate) fn next(&mut self) -> Result<Option<RowBatch>> {
        if let Some(batch) = self.ready.pop_front() {
            return Ok(Some(batch));
        }
        let Some(reader) = &self.reader else {
            return Ok(None);
        };
        let message = wait(&self.live, reader)?;
        if !matches!(message, Ok(Some(_))) {
            self.reader = None;
        }
        message
    }
}

impl Drop for BatchFeed {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Runs long work on a thread of its own; its flag is set when the statement must stop.
pub(crate) fn apart<R: Send + 'static>(
    live: &Live,
    work: impl FnOnce(&AtomicBool) -> Result<R, QueryError> + Send + 'static,
) -> Result<R> {
    struct Stop(Arc<AtomicBool>);
    impl Drop for Stop {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let stop = Stop(Arc::default());
    let (sender, receiver) = sync_channel(1);
    let flag = Arc::clone(&stop.0);
    thread::Builder::new()
        .name("baro-past".into())
        .stack_size(STACK_BYTES)
        .spawn(move || {
            // The receiver may be gone.
            let _ = sender.send(work(&flag));
        })
        .map_err(internal)?;
    wait(live, &receiver)?.map_err(failed)
}

#[expect(
    clippy::disallowed_methods,
    reason = "a reader's thread waits for rows"
)]
fn wait<T>(live: &Live, receiver: &Receiver<T>) -> Result<T> {
    loop {
        match receiver.recv_timeout(LOOK) {
            Ok(message) => return Ok(message),
            Err(RecvTimeoutError::Timeout) if live.must_stop() => return Err(interrupted()),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(internal("the thread that reads the archive has ended"));
            }
        }
    }
}

/// The work of the reading thread.
struct Work {
    reading: Arc<Reading>,
    memory: Arc<ScanMemory>,
    span: Span,
    order: Option<RowOrder>,
}

impl Work {
    fn serve(&self, stop: &AtomicBool, sender: &SyncSender<Message>) {
        let done = self.run(stop, &mut |batch| sender.send(Ok(Some(batch))).is_ok());
        // If the scan was left, nobody receives this.
        let _ = sender.send(done.map(|()| None));
    }

    fn run(&self, stop: &AtomicBool, give: &mut dyn FnMut(RowBatch) -> bool) -> Result<()> {
        match self.order {
            None => self.unordered(stop, give),
            Some(order) => self.ordered(order, stop, give),
        }
    }

    fn unordered(&self, stop: &AtomicBool, give: &mut dyn FnMut(RowBatch) -> bool) -> Result<()> {
        let mut fault = None;
        let read = self.reading.each(self.span, stop, &mut |chunk| {
            let mut claim = self.memory.claim();
            if let Err(error) = claim.set(bytes(&chunk.columns)) {
                fault = Some(error);
                return Ok(false);
            }
            Ok(give(RowBatch {
                chunks: vec![Arc::new(chunk)],
                order: None,
                _claim: claim,
            }))
        });
        read.map_err(failed)?;
        fault.map_or(Ok(()), Err)
    }

    /// Reads one stretch after the other and sorts each, merged with the rings' samples of the same
    /// time.
    fn ordered(
        &self,
        order: RowOrder,
        stop: &AtomicBool,
        give: &mut dyn FnMut(RowBatch) -> bool,
    ) -> Result<()> {
        let mut stretches = self.reading.stretches(self.span);
        if order == RowOrder::Descending {
            stretches.reverse();
        }
        let tails: Vec<Arc<SampleChunk>> = self.reading.tails(self.span).map(Arc::new).collect();
        let mut ends = rows_of(&tails);
        sort(&tails, &mut ends, order);
        let mut ends = ends.into_iter().peekable();
        for stretch in stretches {
            let span = Span {
                from: stretch.from.max(self.span.from),
                to: stretch.to.min(self.span.to),
            };
            let mut claim = self.memory.claim();
            let mut held = 0;
            let (mut chunks, mut fault) = (tails.clone(), None);
            let read = self.reading.each_archived(span, stop, &mut |chunk| {
                held += bytes(&chunk.columns) + chunk.columns.len() * size_of::<(u32, u32)>();
                fault = claim.set(held).err();
                chunks.push(Arc::new(chunk));
                Ok(fault.is_none())
            });
            read.map_err(failed)?;
            if let Some(error) = fault {
                return Err(error);
            }
            let mut rows = rows_of(&chunks);
            rows.drain(..rows_of(&tails).len());
            let is_due = |(chunk, row): &(u32, u32)| {
                let ts = tails[*chunk as usize].columns.ts[*row as usize];
                match order {
                    RowOrder::Ascending => ts <= stretch.to,
                    RowOrder::Descending => ts >= stretch.from,
                }
            };
            while let Some(row) = ends.next_if(is_due) {
                rows.push(row);
            }
            sort(&chunks, &mut rows, order);
            let batch = RowBatch {
                chunks,
                order: Some(rows),
                _claim: claim,
            };
            if batch.len() > 0 && !give(batch) {
                return Ok(());
            }
        }
        let rest = RowBatch {
            chunks: tails.clone(),
            order: Some(ends.collect()),
            _claim: self.memory.claim(),
        };
        if rest.len() > 0 {
            give(rest);
        }
        Ok(())
    }
}

fn rows_of(chunks: &[Arc<SampleChunk>]) -> Vec<(u32, u32)> {
    let rows = |(index, chunk): (u32, &Arc<SampleChunk>)| {
        (0..chunk.columns.len() as u32).map(move |row| (index, row))
    };
    (0..).zip(chunks).flat_map(rows).collect()
}

/// Sorts rows by time, and rows of the same time by life and number.
fn sort(chunks: &[Arc<SampleChunk>], rows: &mut [(u32, u32)], order: RowOrder) {
    let key = |&(chunk, row): &(u32, u32)| {
        let chunk = &chunks[chunk as usize];
        let row = row as usize;
        (
            chunk.columns.ts[row],
            chunk.life,
            chunk.columns.numbers[row],
        )
    };
    let by = |a: &(u32, u32), b: &(u32, u32)| -> Compared {
        match order {
            RowOrder::Ascending => key(a).cmp(&key(b)),
            RowOrder::Descending => key(b).cmp(&key(a)),
        }
    };
    rows.sort_by(by);
}

/// The bytes that columns hold in memory.
pub(crate) fn bytes(columns: &Columns) -> usize {
    let value = match &columns.values {
        Values::Int(_) | Values::Float(_) => 8,
        Values::Bool(_) => 1,
        // Equal texts are shared.
        Values::Text(_) | Values::Bytes(_) | Values::Json(_) | Values::Floats(_) => {
            size_of::<Arc<str>>() + 8
        }
    };
    let long = match columns.values.value_type().is_number() {
        true => 0,
        false => {
            let bytes = (0..columns.len()).map(|row| columns.values.bytes(row));
            bytes.filter(|bytes| *bytes > TEXT_BYTES_MAX).sum()
        }
    };
    columns.len() * (size_of::<u64>() + size_of::<i64>() + value + 1 + size_of::<f32>()) + long
}
