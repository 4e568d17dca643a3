//! Work that may wait or compute, on threads made for it, and bodies that hold their permit.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::fault::Fault;
use crate::share::Held;

/// Runs `work` on a thread that may wait. The permit is held until it ends, even when nobody waits
/// for it any more, and is then handed back.
pub async fn run<T: Send + 'static, P: Send + 'static>(
    permit: P,
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<(T, P), Fault> {
    let task = tokio::task::spawn_blocking(move || work().map(|done| (done, permit)));
    match task.await {
        Ok(done) => done,
        Err(lost) => Err(Fault::internal(format!(
            "the work on this request ended early: {lost}"
        ))),
    }
}

/// A permit now, or 503.
pub fn permit(from: &Arc<Semaphore>, what: &str) -> Result<OwnedSemaphorePermit, Fault> {
    Arc::clone(from)
        .try_acquire_owned()
        .map_err(|_| Fault::busy(format!("too many {what} at once: try again")))
}

/// Bytes handed to the connection at a time.
const PIECE_BYTES: usize = 64 << 10;

/// A body that counts against its bound until it is delivered: given away whole it would count as
/// done while all of it still waits in memory for a client that does not read.
#[derive(Debug)]
pub struct HeldBody {
    rest: Bytes,
    _permit: Held,
}

impl HeldBody {
    /// These bytes.
    pub fn new(bytes: Vec<u8>, permit: Held) -> Self {
        Self {
            rest: bytes.into(),
            _permit: permit,
        }
    }
}

impl Body for HeldBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        let bytes = self.rest.len().min(PIECE_BYTES);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(bytes)))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }
}

/// A body of messages that come over time.
#[derive(Debug)]
pub struct MessageBody {
    messages: mpsc::Receiver<Bytes>,
    _permit: OwnedSemaphorePermit,
}

impl MessageBody {
    /// What comes over this channel.
    pub fn new(messages: mpsc::Receiver<Bytes>, permit: OwnedSemaphorePermit) -> Self {
        Self {
            messages,
            _permit: permit,
        }
    }
}

impl Body for MessageBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.messages
            .poll_recv(context)
            .map(|message| message.map(|bytes| Ok(Frame::data(bytes))))
    }
}
