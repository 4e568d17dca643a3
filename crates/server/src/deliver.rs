//! Delivery of answers to clients: they are made piece by piece on a thread that may wait, within
//! the memory that the client may hold, and are sent as fast as the client takes them.
//!
//! It stands alone because every answer goes through it, whichever part makes it. A small answer is
//! sent when it is whole, so that its status tells how it ended. The beginning of a large answer is
//! sent while the rest is made; an error then cuts the answer off, which every client notices.

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
    ClientNumber, Clock, MemoryBudget, MemoryClaim, PIECE_BYTES, SqlFault, SqlFaultKind, SqlSink,
};
use hyper::body::{Frame, SizeHint};
use tokio::sync::mpsc;
use tokio::time::{Sleep, sleep};

use crate::blocking;
use crate::fault::Fault;
use crate::share::HeldPlace;

/// Largest answer that is sent whole, in bytes.
const WHOLE_BYTES_MAX: usize = 8 << 20;
/// Most pieces that wait for a client; the memory that they may hold is the tighter bound.
const PIECES_MAX: usize = 4_096;
/// Longest time in which a client may take an answer once it is there; a slower one is cut off.
const TAKEN_TIME_MAX: Duration = Duration::from_secs(120);

/// A message from the thread that makes an answer.
#[derive(Debug)]
enum Message {
    Piece(Bytes),
    /// There is no memory for more pieces: the finished ones must be sent.
    Full,
    /// The last piece was sent.
    End,
}

/// Bytes with the claim on their memory, which lives as long as hyper holds the bytes for a slow
/// socket.
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

/// Joins bytes with the claim on their memory.
pub(crate) fn claimed(bytes: Vec<u8>, claim: MemoryClaim) -> Bytes {
    Bytes::from_owner(Claimed {
        bytes,
        _claim: claim,
    })
}

/// The client for which an answer is made, and its bounds.
#[derive(Clone, Debug)]
pub(crate) struct AnswerAccount {
    /// The budget on which its memory is claimed.
    pub memory: Arc<MemoryBudget>,
    /// The client that the memory is counted for.
    pub client: ClientNumber,
    /// Set when nobody waits for the answer any more.
    pub cancel: Arc<AtomicBool>,
}

/// The sink of an answer while it is made.
pub(crate) struct AnswerPieces {
    asked: AnswerAccount,
    clock: Arc<dyn Clock>,
    /// Until when a piece waits for memory, by the monotonic clock.
    until_ns: i64,
    to: mpsc::Sender<Message>,
    piece: Vec<u8>,
    /// Memory that is held while the answer is made.
    making: MemoryClaim,
    /// The reason why a write failed, since an [`io::Error`] cannot hold a [`Fault`].
    fault: Option<Fault>,
}

/// A claim on memory that is shared by all threads that read for one answer.
pub(crate) struct SharedClaim(Mutex<MemoryClaim>);

impl SharedClaim {
    /// Raises the claim to `bytes` if it is smaller; false if there is not enough memory.
    pub(crate) fn reach(&self, bytes: usize) -> bool {
        self.claim().reach(bytes)
    }

    /// Gives `bytes` of the claim back.
    pub(crate) fn give(&self, bytes: usize) {
        self.claim().give(bytes);
    }

    fn claim(&self) -> MutexGuard<'_, MemoryClaim> {
        // No code panics while it holds this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AnswerPieces {
    /// A new claim on the client's memory, for data that is read to make the answer.
    pub(crate) fn claim(&self) -> MemoryClaim {
        self.asked.memory.claim(self.asked.client)
    }

    /// A new claim that several threads share.
    pub(crate) fn shared_claim(&self) -> SharedClaim {
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

    /// Writes bytes that exist already, in pieces, so that the memory of sent pieces is given back
    /// early.
    pub(crate) fn whole(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.flush_piece()?;
        let mut pieces = bytes.chunks(PIECE_BYTES);
        pieces.try_for_each(|piece| self.send(piece.to_vec()))
    }

    pub(crate) fn text(&mut self, text: &str) -> Result<(), Fault> {
        let written = io::Write::write_all(self, text.as_bytes());
        written.map_err(|error| self.fault_of(&error))
    }

    pub(crate) fn json(&mut self, value: &impl serde::Serialize) -> Result<(), Fault> {
        let written = serde_json::to_writer(&mut *self, value);
        written.map_err(|error| self.fault_of(&error))
    }

    /// The reason why a write into these pieces failed.
    pub(crate) fn fault_of(&mut self, error: &dyn std::fmt::Display) -> Fault {
        let own = self.fault.take();
        own.unwrap_or_else(|| Fault::internal(format!("cannot write the answer: {error}")))
    }

    /// Sends the rest, and the mark of the end.
    pub(crate) fn finish(mut self) -> Result<(), Fault> {
        self.flush_piece()?;
        self.tell(Message::End)
    }
}

impl io::Write for AnswerPieces {
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

impl SqlSink for AnswerPieces {
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

/// One answer: who asked for it, its type, and how long the thread that makes it may wait for its
/// reader.
pub(crate) struct Delivery {
    pub asked: AnswerAccount,
    pub clock: Arc<dyn Clock>,
    pub content_type: &'static str,
    pub time_max: Duration,
    /// Whether it is made at a low priority, on a thread of its own.
    pub is_large: bool,
    /// The place that is held until the answer is delivered.
    pub place: HeldPlace,
}

/// Sets its flag when the request is dropped: nobody waits for the answer any more.
#[derive(Debug)]
pub(crate) struct CancelOnDrop(pub Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Makes an answer with `make` and returns it when it is whole, or when it is too large to be held.
/// `make` must call [`AnswerPieces::finish`] at the end.
#[expect(
    clippy::disallowed_methods,
    reason = "an answer that nobody takes is given up"
)]
pub(crate) async fn deliver<E: From<Fault> + Send + 'static>(
    delivery: Delivery,
    make: impl FnOnce(AnswerPieces) -> Result<(), E> + Send + 'static,
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
    let pieces = AnswerPieces {
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

#[derive(Debug)]
struct Delivered {
    /// The number of bytes still to come, if known.
    whole: Option<u64>,
    ready: VecDeque<Bytes>,
    /// The channel of the pieces still to come; none if all pieces are there.
    rest: Option<mpsc::Receiver<Message>>,
    late: Pin<Box<Sleep>>,
    _place: Arc<HeldPlace>,
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
