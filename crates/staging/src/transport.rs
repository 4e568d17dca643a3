//! Connections: frames over unix sockets and TCP, each with a time by which it has to be through.
//!
//! Sockets block for short times only (`SLICE`), after which the time is looked at: a peer that
//! sends one byte now and then gains nothing.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use barograph_model::Clock;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recv, recvmsg, sendmsg,
};
use thiserror::Error;

use crate::wire::{DATA_KIND, FRAME_BYTES_MAX, FrameHead, HEAD_BYTES, WireFault};

/// The longest time for which a system call on a socket blocks.
const SLICE: Duration = Duration::from_millis(100);

/// The reason why a connection is over.
#[derive(Debug, Error)]
pub(crate) enum TransportFault {
    /// The peer has closed it.
    #[error("the connection was closed")]
    Closed,
    /// The time is over.
    #[error("nothing came through in time")]
    Late,
    /// The answer of the system.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The peer sends something else than frames.
    #[error("{0}")]
    Wire(#[from] WireFault),
}

/// A socket of either kind.
#[derive(Debug)]
pub(crate) enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Socket {
    /// Makes the socket one that blocks for short times.
    pub(crate) fn set_up(&self) -> io::Result<()> {
        match self {
            Self::Unix(socket) => {
                socket.set_read_timeout(Some(SLICE))?;
                socket.set_write_timeout(Some(SLICE))
            }
            Self::Tcp(socket) => {
                socket.set_nodelay(true)?;
                socket.set_read_timeout(Some(SLICE))?;
                socket.set_write_timeout(Some(SLICE))
            }
        }
    }

    /// A second handle, by which another thread ends the connection.
    pub(crate) fn handle(&self) -> io::Result<Self> {
        match self {
            Self::Unix(socket) => socket.try_clone().map(Self::Unix),
            Self::Tcp(socket) => socket.try_clone().map(Self::Tcp),
        }
    }

    /// Ends the connection, also under a thread that reads.
    pub(crate) fn shut(&self) {
        // It may have ended already.
        let _ = match self {
            Self::Unix(socket) => socket.shutdown(Shutdown::Both),
            Self::Tcp(socket) => socket.shutdown(Shutdown::Both),
        };
    }

    /// What the kernel knows the socket by; that of another file if the number of the descriptor
    /// has become that of another one.
    fn identity(&self) -> io::Result<FileIdentity> {
        let stat = rustix::fs::fstat(self)?;
        Ok((stat.st_dev, stat.st_ino))
    }

    /// Leaves the number of the descriptor open: it is somebody else's.
    fn leave(self) {
        let _ = match self {
            Self::Unix(socket) => socket.into_raw_fd(),
            Self::Tcp(socket) => socket.into_raw_fd(),
        };
    }

    // Calls for sockets alone: a file that has got the number of a socket gives and takes nothing.
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let (received, _) = recv(self, bytes, RecvFlags::empty())?;
        Ok(received)
    }

    /// Without a signal if the peer has gone, since programs of strangers have this code in them.
    fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut nothing = SendAncillaryBuffer::default();
        Ok(sendmsg(self, slices, &mut nothing, SendFlags::NOSIGNAL)?)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(socket) => socket.as_fd(),
            Self::Tcp(socket) => socket.as_fd(),
        }
    }
}

/// The device and inode of a file.
type FileIdentity = (u64, u64);

/// Frames over a socket.
pub(crate) struct FrameStream {
    /// `None` when it ends.
    socket: Option<Socket>,
    /// That of the socket, if the program around it may close its descriptor.
    identity: Option<FileIdentity>,
    clock: Arc<dyn Clock>,
    /// What was received and is not yet taken: from `start` to `end`.
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl FrameStream {
    pub(crate) fn new(socket: Socket, clock: Arc<dyn Clock>) -> io::Result<Self> {
        socket.set_up()?;
        Ok(Self {
            socket: Some(socket),
            identity: None,
            clock,
            buffer: vec![0; HEAD_BYTES + FRAME_BYTES_MAX].into_boxed_slice(),
            start: 0,
            end: 0,
        })
    }

    /// Frames over a socket in a program that may close any descriptor: it is closed at the end if
    /// it is still this socket.
    pub(crate) fn of_guest(socket: Socket, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let identity = socket.identity()?;
        let mut frames = Self::new(socket, clock)?;
        frames.identity = Some(identity);
        Ok(frames)
    }

    /// Whether the descriptor is still that of the socket.
    pub(crate) fn has_socket(&self) -> bool {
        let is_it = |socket: &Socket| {
            let expected = self.identity;
            expected.is_none_or(|expected| socket.identity().is_ok_and(|it| it == expected))
        };
        self.socket.as_ref().is_some_and(is_it)
    }

    pub(crate) fn is_unix(&self) -> bool {
        matches!(self.socket, Some(Socket::Unix(_)))
    }

    /// Waits for the first byte of a frame, until a time.
    pub(crate) fn wait(&mut self, until_ns: i64) -> Result<(), TransportFault> {
        self.need(1, until_ns)
    }

    /// The head of the next frame.
    pub(crate) fn head(&mut self, until_ns: i64) -> Result<FrameHead, TransportFault> {
        self.need(HEAD_BYTES, until_ns)?;
        let head = self.buffer[self.start..].first_chunk::<HEAD_BYTES>();
        let head = FrameHead::decode(*head.expect("that many bytes are there"))?;
        self.start += HEAD_BYTES;
        Ok(head)
    }

    /// The body of a frame that is not data.
    pub(crate) fn body(&mut self, head: FrameHead, until_ns: i64) -> Result<&[u8], TransportFault> {
        if head.is_data() {
            return Err(WireFault::Kind(DATA_KIND).into());
        }
        self.need(head.bytes, until_ns)?;
        let from = self.start;
        self.start += head.bytes;
        Ok(&self.buffer[from..self.start])
    }

    /// Bytes of a data frame, which are not copied on their way unless they came with its head.
    pub(crate) fn take(&mut self, out: &mut [u8], until_ns: i64) -> Result<(), TransportFault> {
        let here = out.len().min(self.end - self.start);
        let (first, mut rest) = out.split_at_mut(here);
        first.copy_from_slice(&self.buffer[self.start..self.start + here]);
        self.start += here;
        while !rest.is_empty() {
            let bytes = self.receive(|socket, _| socket.read(rest), until_ns)?;
            rest = &mut rest[bytes..];
            self.check_time(rest.is_empty(), until_ns)?;
        }
        Ok(())
    }

    /// Sends bytes.
    pub(crate) fn send(&mut self, bytes: &[u8], until_ns: i64) -> Result<(), TransportFault> {
        self.send_both(bytes, &[], until_ns)
    }

    /// Sends a data frame, with bytes before it.
    pub(crate) fn send_data(
        &mut self,
        before: &[u8],
        data: &[u8],
        until_ns: i64,
    ) -> Result<(), TransportFault> {
        let head = FrameHead {
            kind: DATA_KIND,
            bytes: data.len(),
        };
        let first = [before, &head.encode()].concat();
        self.send_both(&first, data, until_ns)
    }

    fn send_both(
        &mut self,
        mut first: &[u8],
        mut second: &[u8],
        until_ns: i64,
    ) -> Result<(), TransportFault> {
        while !first.is_empty() || !second.is_empty() {
            let socket = self.socket.as_mut().ok_or(TransportFault::Closed)?;
            let sent = match socket.write(&[IoSlice::new(first), IoSlice::new(second)]) {
                Ok(0) => return Err(TransportFault::Closed),
                Ok(sent) => sent,
                Err(error) if is_passing(&error) => 0,
                Err(error) => return Err(error.into()),
            };
            let of_first = sent.min(first.len());
            (first, second) = (&first[of_first..], &second[sent - of_first..]);
            let is_through = first.is_empty() && second.is_empty();
            if !is_through && self.clock.monotonic_ns() >= until_ns {
                return Err(TransportFault::Late);
            }
        }
        Ok(())
    }

    /// Sends bytes with a descriptor, over a unix socket.
    pub(crate) fn send_with(
        &mut self,
        bytes: &[u8],
        descriptor: BorrowedFd<'_>,
        until_ns: i64,
    ) -> Result<(), TransportFault> {
        let Some(Socket::Unix(socket)) = &self.socket else {
            return self.send(bytes, until_ns);
        };
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let descriptors = [descriptor];
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        let slices = [IoSlice::new(bytes)];
        let sent = sendmsg(socket, &slices, &mut ancillary, SendFlags::NOSIGNAL);
        let sent = sent.map_err(io::Error::from)?;
        self.send(&bytes[sent..], until_ns)
    }

    /// Waits for the first bytes, and for a descriptor that may come with them.
    pub(crate) fn receive_with(
        &mut self,
        until_ns: i64,
    ) -> Result<Option<OwnedFd>, TransportFault> {
        let mut descriptor = None;
        let bytes = self.receive(
            |socket, buffer| {
                let Socket::Unix(socket) = socket else {
                    return socket.read(buffer);
                };
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
                let mut ancillary = RecvAncillaryBuffer::new(&mut space);
                let mut slices = [io::IoSliceMut::new(buffer)];
                let flags = RecvFlags::CMSG_CLOEXEC;
                let received = recvmsg(socket, &mut slices, &mut ancillary, flags)?;
                for message in ancillary.drain() {
                    if let RecvAncillaryMessage::ScmRights(mut descriptors) = message {
                        descriptor = descriptors.next().or(descriptor.take());
                    }
                }
                Ok(received.bytes)
            },
            until_ns,
        )?;
        (self.start, self.end) = (0, bytes);
        Ok(descriptor)
    }

    /// Has at least so many bytes in the buffer, which holds a whole frame that is not data.
    fn need(&mut self, bytes: usize, until_ns: i64) -> Result<(), TransportFault> {
        while self.end - self.start < bytes {
            if self.start > 0 {
                self.buffer.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            }
            let end = self.end;
            let read = |socket: &mut Socket, buffer: &mut [u8]| socket.read(&mut buffer[end..]);
            self.end += self.receive(read, until_ns)?;
            self.check_time(self.end - self.start >= bytes, until_ns)?;
        }
        Ok(())
    }

    /// A peer that sends little at a time gets no more time for it. What has come is kept: it may
    /// be the beginning of a request that came while a wait for it ended.
    fn check_time(&self, is_done: bool, until_ns: i64) -> Result<(), TransportFault> {
        match is_done || self.clock.monotonic_ns() < until_ns {
            true => Ok(()),
            false => Err(TransportFault::Late),
        }
    }

    fn receive(
        &mut self,
        mut read: impl FnMut(&mut Socket, &mut [u8]) -> io::Result<usize>,
        until_ns: i64,
    ) -> Result<usize, TransportFault> {
        let socket = self.socket.as_mut().ok_or(TransportFault::Closed)?;
        loop {
            match read(socket, &mut self.buffer) {
                Ok(0) => return Err(TransportFault::Closed),
                Ok(bytes) => return Ok(bytes),
                Err(error) if is_passing(&error) => {
                    if self.clock.monotonic_ns() >= until_ns {
                        return Err(TransportFault::Late);
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Drop for FrameStream {
    fn drop(&mut self) {
        if self.identity.is_some()
            && !self.has_socket()
            && let Some(socket) = self.socket.take()
        {
            socket.leave();
        }
    }
}

fn is_passing(error: &io::Error) -> bool {
    let passing = [
        io::ErrorKind::WouldBlock,
        io::ErrorKind::Interrupted,
        io::ErrorKind::TimedOut,
    ];
    passing.contains(&error.kind())
}
