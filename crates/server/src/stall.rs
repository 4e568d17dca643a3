//! A connection that ends when its client takes too little for too long.
//!
//! hyper bounds the wait for a request's head, but not for a client that stops reading; without
//! this bound such a client would hold its answer in memory for ever.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// Bytes that a client must take within the time: one byte now and then is not enough.
const TAKEN_BYTES_MIN: usize = 64 << 10;

/// A connection that checks how fast its client reads.
#[derive(Debug)]
pub(crate) struct Stalling<T> {
    inner: T,
    time_max: Duration,
    /// Deadline that starts with the first write that had to wait.
    deadline: Option<Pin<Box<Sleep>>>,
    /// Bytes taken since the deadline was set.
    taken: usize,
}

impl<T> Stalling<T> {
    /// Wraps `inner`; it fails if writes wait and too little is taken within `time_max`.
    pub(crate) fn new(inner: T, time_max: Duration) -> Self {
        Self {
            inner,
            time_max,
            deadline: None,
            taken: 0,
        }
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "a connection that takes nothing is given up"
    )]
    fn bound(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(done) = &written {
            self.taken += done.as_ref().map_or(0, |bytes| *bytes);
            if self.taken >= TAKEN_BYTES_MIN {
                self.forget();
            }
            return written;
        }
        let time_max = self.time_max;
        let deadline = self
            .deadline
            .get_or_insert_with(|| Box::pin(sleep(time_max)));
        match deadline.as_mut().poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
        }
    }

    fn forget(&mut self) {
        (self.deadline, self.taken) = (None, 0);
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Stalling<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, into)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Stalling<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.bound(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(context, parts);
        self.bound(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    /// A flush is ready when everything has been written.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(context);
        if flushed.is_ready() {
            self.forget();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
