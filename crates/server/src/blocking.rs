//! Work that may wait or compute, on threads made for it, and bodies that hold their permit.
//!
//! What makes large answers gives way to sampling: it computes at a low priority. A thread cannot take that
//! back, so small answers have other threads.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::fault::Fault;
use crate::share::Held;

/// The niceness of what computes large answers: the lowest priority.
const NICE: i32 = 19;

/// What allows work, and says how much it may be.
pub trait Permit: Send + 'static {
    /// Whether the work is to give way to all else.
    const IS_LARGE: bool;
}

impl Permit for OwnedSemaphorePermit {
    const IS_LARGE: bool = false;
}

impl Permit for Held {
    const IS_LARGE: bool = true;
}

/// Runs `work` on a thread that may wait; large work at a low priority. The permit is held until it ends,
/// even when nobody waits for it any more, and is then handed back.
pub async fn run<T: Send + 'static, P: Permit>(
    permit: P,
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<(T, P), Fault> {
    if P::IS_LARGE {
        nicely(move || work().map(|done| (done, permit))).await
    } else {
        wait(permit, work).await
    }
}

/// As [`run`], whatever the permit, for work that only waits for other threads.
pub async fn wait<T: Send + 'static, P: Permit>(
    permit: P,
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<(T, P), Fault> {
    let task = tokio::task::spawn_blocking(move || work().map(|done| (done, permit)));
    task.await.unwrap_or_else(|lost| Err(ended(lost)))
}

/// Runs `work` at a low priority, as the threads that it starts, on a thread of its own: there are no more
/// than permits.
async fn nicely<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    let (done, answer) = oneshot::channel();
    let thread = std::thread::Builder::new().name("baro-large".into());
    let started = thread.spawn(move || {
        // On Linux this is the priority of this thread alone. Where it is not allowed we go on as we are.
        let _ = rustix::process::setpriority_process(None, NICE);
        // Whoever asked may have gone.
        let _ = done.send(work());
    });
    if let Err(error) = started {
        return Err(Fault::busy(format!(
            "no thread can be started for this answer: {error}; try again"
        )));
    }
    answer.await.unwrap_or_else(|lost| Err(ended(lost)))
}

fn ended(lost: impl std::fmt::Display) -> Fault {
    Fault::internal(format!("the work on this request ended early: {lost}"))
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

#[cfg(test)]
mod tests {
    use rustix::process::getpriority_process;

    use super::*;
    use crate::share::{Client, Places};

    #[test]
    fn only_large_answers_give_way() {
        let threads = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(1)
            .build()
            .unwrap();
        let nice = || Ok(getpriority_process(None).unwrap());
        let (places, small) = (Arc::new(Places::new(4)), Arc::new(Semaphore::new(1)));
        let ours = getpriority_process(None).unwrap();
        for _ in 0..2 {
            let held = || places.take(Client(None), "answers").unwrap();
            let (large, _) = threads.block_on(run(held(), nice)).unwrap();
            assert_eq!(large, NICE);
            let (waiting, _) = threads.block_on(wait(held(), nice)).unwrap();
            let small = permit(&small, "answers").unwrap();
            let (small, _) = threads.block_on(run(small, nice)).unwrap();
            assert_eq!((small, waiting), (ours, ours));
        }
    }

    #[test]
    fn an_answer_that_panics_is_a_fault() {
        let threads = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let places = Arc::new(Places::new(1));
        let held = places.take(Client(None), "answers").unwrap();
        let work = || -> Result<(), Fault> { panic!("as the test wants it") };
        let fault = threads.block_on(run(held, work)).unwrap_err();
        assert!(fault.message.contains("ended early"), "{}", fault.message);
        // The place is free again.
        assert!(places.take(Client(None), "answers").is_ok());
    }
}
