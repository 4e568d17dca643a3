//! New connections: with a time by which they have to be through, and harmless to the program
//! around.

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use barograph_model::{Clock, NS_PER_MS};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::config::ServerAddress;
use crate::transport::Socket;

/// The longest time for which one attempt waits for a place in the queue of a server.
const QUEUE_NS_MAX: i64 = 100 * NS_PER_MS;
/// The first descriptor that a program does not take for its input, output or errors.
const DESCRIPTOR_MIN: i32 = 3;

/// Connects to a server. The descriptor is closed by `exec`, and is none of the first three.
pub(super) fn dial(
    address: &ServerAddress,
    clock: &dyn Clock,
    until_ns: i64,
) -> io::Result<Socket> {
    match address {
        ServerAddress::Unix(path) => {
            let socket = dial_unix(path, clock, until_ns)?;
            Ok(Socket::Unix(UnixStream::from(above_standard(socket)?)))
        }
        ServerAddress::Tcp(address) => {
            let left_ns = until_ns.saturating_sub(clock.monotonic_ns()).max(1);
            let left = Duration::from_nanos(left_ns.unsigned_abs());
            let socket = OwnedFd::from(TcpStream::connect_timeout(address, left)?);
            Ok(Socket::Tcp(TcpStream::from(above_standard(socket)?)))
        }
    }
}

/// The standard library would wait for a full queue for ever, and give up at a signal.
fn dial_unix(path: &Path, clock: &dyn Clock, until_ns: i64) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    let kind = SocketType::STREAM;
    let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    let slice = Duration::from_nanos(QUEUE_NS_MAX.unsigned_abs());
    set_socket_timeout(&socket, Timeout::Send, Some(slice))?;
    loop {
        match connect(&socket, &address) {
            Ok(()) => return Ok(socket),
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {
                if clock.monotonic_ns() >= until_ns {
                    let text = "the server does not take connections in time";
                    return Err(io::Error::new(io::ErrorKind::TimedOut, text));
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// A program that has closed its standard output does not write into the connection.
fn above_standard(socket: OwnedFd) -> io::Result<OwnedFd> {
    match socket.as_raw_fd() < DESCRIPTOR_MIN {
        true => Ok(fcntl_dupfd_cloexec(&socket, DESCRIPTOR_MIN)?),
        false => Ok(socket),
    }
}
