//! Answers on their way to a client: made piece by piece on a thread that may wait, held within the
//! memory that its client may hold, and sent as fast as the client takes them.
//!
//! It stands alone because every answer goes through it, whichever part makes it. An answer that is
//! small is sent when it is whole, so that its status tells how it ended. Of a larger one the
//! beginning is sent while the rest is made; what goes wrong then cuts it off, which every client
//! notices.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use barograph_model::{
    ClientNumber, Clock, MemoryBudget, MemoryClaim, SqlFault, SqlFaultKind, SqlSink,
};
use hyper::body::{Frame, SizeHint};
use tokio::sync::mpsc;
use tokio::time::{Sleep, sleep};

use crate::blocking;
use crate::fault::Fault;
use crate::share::Held;

/// Bytes of a piece: large enough that its memory goes back to the system by itself.
pub const PIECE_BYTES: usize = 256 << 10;
/// Answers up to this size are sent whole.
const WHOLE_BYTES_MAX: usize = 8 << 20;
/// Pieces that wait for a client at most; the memory that they may hold is the tighter bound.
const PIECES_MAX: usize = 4_096;
/// Longest time in which an answer is taken, once it is there: who reads slower is let go.
const TAKEN_TIME_MAX: Duration = Duration::from_secs(120);

/// What comes from the thread that makes an answer.
#[derive(Debug)]
enum Message {
    Piece(Bytes),
    /// There is no more room for what was made: it must be sent.
    Full,
    /// The last piece has come.
    End,
}

/// Bytes that own the claim on their memory, which lives as long as hyper holds them for a slow socket.
#[derive(Debug)]
struct Claimed {
    bytes: Vec<u8>,
    _claim: MemoryClaim,
}

impl AsRef<[u8]> for Claimed {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// These bytes, with the claim on their memory.
pub fn claimed(bytes: Vec<u8>, claim: MemoryClaim) -> Bytes {
    Bytes::from_owner(Claimed {
        bytes,
        _claim: claim,
    })
}

/// For whom an answer is made, and within which bounds.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Where its memory is claimed.
    pub memory: Arc<MemoryBudget>,
    /// Who holds it.
    pub client: ClientNumber,
    /// Set when nobody waits for the answer any more.
    pub cancel: Arc<AtomicBool>,
}

/// Takes an answer as it is made.
pub struct Pieces {
    asked: Asked,
    clock: Arc<dyn Clock>,
    /// Until when it waits for room, by the monotonic clock.
    until_ns: i64,
    to: mpsc::Sender<Message>,
    piece: Vec<u8>,
    /// What is held in the making.
    making: MemoryClaim,
    /// Why a write failed: an [`io::Error`] cannot tell.
    fault: Option<Fault>,
}

/// A claim on memory that all threads which read for an answer share.
pub struct SharedClaim(Mutex<MemoryClaim>);

impl SharedClaim {
    /// Claims as much as there is by now, in bytes: false where there is no room for it.
    pub fn reach(&self, bytes: usize) -> bool {
        self.claim().reach(bytes)
    }

    /// Gives bytes back.
    pub fn give(&self, bytes: usize) {
        self.claim().give(bytes);
    }

    fn claim(&self) -> MutexGuard<'_, MemoryClaim> {
        // No code panics while it holds this.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pieces {
    /// A claim on what its client may hold, for what is read to make it.
    pub fn claim(&self) -> MemoryClaim {
        self.asked.memory.claim(self.asked.client)
    }

    /// The same, shared by several threads.
    pub fn shared_claim(&self) -> SharedClaim {
        SharedClaim(Mutex::new(self.claim()))
    }

    fn send(&mut self, bytes: Vec<u8>) -> Result<(), Fault> {
        let mut claim = self.claim();
        if !claim.grow(bytes.len()) {
            self.tell(Message::Full)?;
            let go_on = || {
                !self.asked.cancel.load(Ordering::Relaxed)
                    && self.clock.monotonic_ns() < self.until_ns
            };
            if !claim.grow_when_there_is_room(bytes.len(), &go_on) {
                return Err(Fault::limit(
                    "the answer is larger than its user may hold at once, and is not read fast \
                     enough: ask for less, read faster, or ask in a process of your own (baro sql)",
                ));
            }
        }
        self.tell(Message::Piece(claimed(bytes, claim)))
    }

    fn tell(&self, message: Message) -> Result<(), Fault> {
        let sent = self.to.blocking_send(message);
        sent.map_err(|_| Fault::limit("the asker has gone away"))
    }

    fn flush_piece(&mut self) -> Result<(), Fault> {
        match std::mem::take(&mut self.piece) {
            piece if piece.is_empty() => Ok(()),
            piece => self.send(piece),
        }
    }

    /// Writes bytes that are there already, in pieces, so that what was sent is given back before the rest is.
    pub fn whole(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.flush_piece()?;
        let mut pieces = bytes.chunks(PIECE_BYTES);
        pieces.try_for_each(|piece| self.send(piece.to_vec()))
    }

    /// Writes a short text.
    pub fn text(&mut self, text: &str) -> Result<(), Fault> {
        let written = io::Write::write_all(self, text.as_bytes());
        written.map_err(|error| self.fault_of(&error))
    }

    /// Writes JSON.
    pub fn json(&mut self, value: &impl serde::Serialize) -> Result<(), Fault> {
        let written = serde_json::to_writer(&mut *self, value);
        written.map_err(|error| self.fault_of(&error))
    }

    /// Why a write into this failed.
    pub fn fault_of(&mut self, error: &dyn std::fmt::Display) -> Fault {
        let own = self.fault.take();
        own.unwrap_or_else(|| Fault::internal(format!("cannot write the answer: {error}")))
    }

    /// Sends the rest, and says that it was the last.
    pub fn finish(mut self) -> Result<(), Fault> {
        self.flush_piece()?;
        self.tell(Message::End)
    }
}

impl io::Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE_BYTES
            && let Err(fault) = self.flush_piece()
        {
            self.fault = Some(fault);
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl SqlSink for Pieces {
    fn put(&mut self, piece: Vec<u8>) -> Result<(), SqlFault> {
        self.send(piece).map_err(sql_fault)
    }

    fn hold(&mut self, bytes: usize) -> Result<(), SqlFault> {
        match self.making.reach(bytes) {
            true => Ok(()),
            false => Err(sql_fault(Fault::limit(format!(
                "the answer holds {bytes} bytes in the making, more than there is room for: ask for \
                 less, for JSON instead of Arrow, or in a process of your own (baro sql)"
            )))),
        }
    }

    fn end(self: Box<Self>) -> Result<(), SqlFault> {
        self.finish().map_err(sql_fault)
    }
}

fn sql_fault(fault: Fault) -> SqlFault {
    SqlFault {
        kind: SqlFaultKind::Limit,
        message: fault.message,
    }
}

/// One answer: who asked for it, its type, and how long its making may wait for its reader.
pub struct Delivery {
    pub asked: Asked,
    pub clock: Arc<dyn Clock>,
    pub content_type: &'static str,
    pub time_max: Duration,
    /// Whether it is made at a low priority, on a thread of its own.
    pub is_large: bool,
    /// Held until the answer is delivered.
    pub place: Held,
}

/// Sets the flag when the request is dropped: nobody waits for the answer any more.
#[derive(Debug)]
pub struct CancelOnDrop(pub Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Makes an answer with `make` and gives it when it is whole, or when it is too large to be held.
/// `make` must call [`Pieces::finish`] in the end.
pub async fn deliver<E: From<Fault> + Send + 'static>(
    delivery: Delivery,
    make: impl FnOnce(Pieces) -> Result<(), E> + Send + 'static,
) -> Result<Response, E> {
    let Delivery {
        asked,
        clock,
        content_type,
        time_max,
        is_large,
        place,
    } = delivery;
    let cancelled_with_us = CancelOnDrop(Arc::clone(&asked.cancel));
    let place = Arc::new(place);
    let (to, mut from) = mpsc::channel(PIECES_MAX);
    let time_ns = i64::try_from(time_max.as_nanos()).unwrap_or(i64::MAX);
    let pieces = Pieces {
        until_ns: clock.monotonic_ns().saturating_add(time_ns),
        making: asked.memory.claim(asked.client),
        asked,
        clock,
        to,
        piece: Vec::new(),
        fault: None,
    };
    let held = Arc::clone(&place);
    let work = move || {
        let made = make(pieces);
        drop(held);
        made
    };
    let work = tokio::spawn(async move {
        match is_large {
            true => blocking::nicely(work).await,
            false => blocking::wait(work).await,
        }
    });
    let mut ready = VecDeque::new();
    let mut bytes = 0;
    let rest = loop {
        match from.recv().await {
            Some(Message::Piece(piece)) => {
                bytes += piece.len();
                ready.push_back(piece);
                if bytes > WHOLE_BYTES_MAX {
                    break Some(from);
                }
            }
            Some(Message::Full) => break Some(from),
            Some(Message::End) => break None,
            None => {
                let made = work.await.map_err(|lost| Fault::internal(lost.to_string()));
                made??;
                return Err(Fault::internal("the answer has no end").into());
            }
        }
    };
    let body = Body::new(Delivered {
        whole: rest.is_none().then_some(bytes as u64),
        ready,
        rest,
        late: Box::pin(sleep(TAKEN_TIME_MAX)),
        _place: place,
        _cancelled: cancelled_with_us,
    });
    Ok(([(header::CONTENT_TYPE, content_type)], body).into_response())
}

/// The body of an answer.
#[derive(Debug)]
struct Delivered {
    /// How many bytes are still to come, where that is known.
    whole: Option<u64>,
    ready: VecDeque<Bytes>,
    /// Where the rest comes from; none when all is there.
    rest: Option<mpsc::Receiver<Message>>,
    late: Pin<Box<Sleep>>,
    _place: Arc<Held>,
    _cancelled: CancelOnDrop,
}

impl hyper::body::Body for Delivered {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.late.as_mut().poll(context).is_ready() {
            return Poll::Ready(Some(Err(io::ErrorKind::TimedOut.into())));
        }
        loop {
            if let Some(piece) = self.ready.pop_front() {
                let length = piece.len() as u64;
                self.whole = self.whole.map(|rest| rest.saturating_sub(length));
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            let Some(rest) = &mut self.rest else {
                return Poll::Ready(None);
            };
            match ready!(rest.poll_recv(context)) {
                Some(Message::Piece(piece)) => self.ready.push_back(piece),
                Some(Message::Full) => {}
                Some(Message::End) => self.rest = None,
                None => return Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into()))),
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.whole
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }

    fn is_end_stream(&self) -> bool {
        self.whole == Some(0)
    }
}
