//! A connection to a server of Redis: commands and replies of RESP2, each with a time by which it
//! has to be through. What comes from the server is foreign.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;

use barograph_model::Clock;

/// Bytes of the buffer of a connection; a line is no longer.
const BUFFER_BYTES: usize = 64 << 10;
/// Most bytes of a text in a reply.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// Most parts of a reply.
const PARTS_MAX: usize = 1 << 17;
/// Most levels of a reply that has parts.
const LEVELS_MAX: usize = 4;
/// Bytes that are sent within one time limit.
const PIECE_BYTES: usize = 1 << 20;

/// A reply of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Status(String),
    Integer(i64),
    Bytes(Vec<u8>),
    Nothing,
    Parts(Vec<Reply>),
}

/// A connection.
pub(super) struct Connection {
    socket: TcpStream,
    clock: Arc<dyn Clock>,
    /// The time of one call, in nanoseconds.
    call_ns: i64,
    /// The monotonic time by which the call has to be through.
    until_ns: i64,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Connection {
    pub(super) fn dial(place: &str, clock: &Arc<dyn Clock>, call_ns: i64) -> io::Result<Self> {
        let mut failure = io::Error::new(io::ErrorKind::NotFound, "no such host");
        let until_ns = clock.monotonic_ns().saturating_add(call_ns);
        for address in place.to_socket_addrs()? {
            let left = left(until_ns, &**clock)?;
            match TcpStream::connect_timeout(&address, left) {
                Ok(socket) => {
                    socket.set_nodelay(true)?;
                    return Ok(Self {
                        socket,
                        clock: Arc::clone(clock),
                        call_ns,
                        until_ns,
                        buffer: vec![0; BUFFER_BYTES].into(),
                        start: 0,
                        end: 0,
                    });
                }
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// Sends a command and takes its reply.
    pub(super) fn call(&mut self, words: &[&[u8]]) -> io::Result<Reply> {
        self.send(words)?;
        self.reply()
    }

    /// Sends a command, whose reply is still to be taken.
    pub(super) fn send(&mut self, words: &[&[u8]]) -> io::Result<()> {
        self.write(&command(words))
    }

    /// Sends a command whose last word follows by [`Connection::write`] and is that long.
    pub(super) fn send_before(&mut self, words: &[&[u8]], bytes: u64) -> io::Result<()> {
        let mut out = format!("*{}\r\n", words.len() + 1).into_bytes();
        put_words(&mut out, words);
        out.extend(format!("${bytes}\r\n").into_bytes());
        self.write(&out)
    }

    /// Sends bytes. Each MiB has a time limit of its own.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        for piece in bytes.chunks(PIECE_BYTES) {
            self.begin();
            let mut rest = piece;
            while !rest.is_empty() {
                let left = left(self.until_ns, &*self.clock)?;
                self.socket.set_write_timeout(Some(left))?;
                match self.socket.write(rest) {
                    Ok(0) => return Err(closed()),
                    Ok(written) => rest = &rest[written..],
                    Err(error) => passing(error)?,
                }
            }
        }
        Ok(())
    }

    fn begin(&mut self) {
        self.until_ns = self.clock.monotonic_ns().saturating_add(self.call_ns);
    }

    /// Takes a reply; one that tells of an error is one.
    pub(super) fn reply(&mut self) -> io::Result<Reply> {
        self.begin();
        self.part(0)
    }

    fn part(&mut self, level: usize) -> io::Result<Reply> {
        let line = self.line()?;
        let (kind, rest) = line.split_at_checked(1).ok_or_else(malformed)?;
        let number = || rest.parse::<i64>().map_err(|_| malformed());
        match kind {
            "+" => Ok(Reply::Status(rest.to_owned())),
            "-" => Err(io::Error::other(rest.to_owned())),
            ":" => Ok(Reply::Integer(number()?)),
            "$" => match length(number()?, TEXT_BYTES_MAX)? {
                None => Ok(Reply::Nothing),
                Some(bytes) => {
                    let mut text = vec![0; bytes];
                    self.read(&mut text)?;
                    self.end_of_line()?;
                    Ok(Reply::Bytes(text))
                }
            },
            "*" if level < LEVELS_MAX => match length(number()?, PARTS_MAX)? {
                None => Ok(Reply::Nothing),
                // Room is made as parts come, not as they are announced.
                Some(parts) => {
                    let parts = (0..parts).map(|_| self.part(level + 1));
                    Ok(Reply::Parts(parts.collect::<io::Result<_>>()?))
                }
            },
            _ => Err(malformed()),
        }
    }

    /// Takes a reply of bytes into a buffer. Returns how many there are, which is no more than fit.
    pub(super) fn bytes_into(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.begin();
        let line = self.line()?;
        if let Some(why) = line.strip_prefix('-') {
            return Err(io::Error::other(why.to_owned()));
        }
        let number = line.strip_prefix('$').and_then(|text| text.parse().ok());
        let bytes = length(number.ok_or_else(malformed)?, out.len())?;
        let Some(bytes) = bytes else { return Ok(0) };
        self.read(&mut out[..bytes])?;
        self.end_of_line()?;
        Ok(bytes)
    }

    fn end_of_line(&mut self) -> io::Result<()> {
        let mut end = [0; 2];
        self.read(&mut end)?;
        match &end == b"\r\n" {
            true => Ok(()),
            false => Err(malformed()),
        }
    }

    fn line(&mut self) -> io::Result<String> {
        loop {
            let seen = &self.buffer[self.start..self.end];
            if let Some(at) = seen.windows(2).position(|pair| pair == b"\r\n") {
                let line = std::str::from_utf8(&seen[..at]).map_err(|_| malformed())?;
                let line = line.to_owned();
                self.start += at + 2;
                return Ok(line);
            }
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            if self.end == self.buffer.len() {
                return Err(malformed());
            }
            let mut buffer = std::mem::take(&mut self.buffer);
            let received = self.receive(&mut buffer[self.end..]);
            self.buffer = buffer;
            self.end += received?;
        }
    }

    fn read(&mut self, out: &mut [u8]) -> io::Result<()> {
        let buffered = (self.end - self.start).min(out.len());
        out[..buffered].copy_from_slice(&self.buffer[self.start..self.start + buffered]);
        self.start += buffered;
        let mut at = buffered;
        while at < out.len() {
            at += self.receive(&mut out[at..])?;
        }
        Ok(())
    }

    /// Receives some bytes.
    fn receive(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            let left = left(self.until_ns, &*self.clock)?;
            self.socket.set_read_timeout(Some(left))?;
            match self.socket.read(out) {
                Ok(0) => return Err(closed()),
                Ok(received) => return Ok(received),
                Err(error) => passing(error)?,
            }
        }
    }
}

fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", words.len()).into_bytes();
    put_words(&mut out, words);
    out
}

fn put_words(out: &mut Vec<u8>, words: &[&[u8]]) {
    for word in words {
        out.extend(format!("${}\r\n", word.len()).into_bytes());
        out.extend(*word);
        out.extend(b"\r\n");
    }
}

/// A length of a reply: none for -1.
fn length(number: i64, max: usize) -> io::Result<Option<usize>> {
    match usize::try_from(number) {
        Ok(length) if length <= max => Ok(Some(length)),
        Err(_) if number == -1 => Ok(None),
        _ => Err(malformed()),
    }
}

/// The time that is left for a call.
fn left(until_ns: i64, clock: &dyn Clock) -> io::Result<Duration> {
    let left_ns = until_ns.saturating_sub(clock.monotonic_ns());
    match u64::try_from(left_ns) {
        Ok(left_ns) if left_ns > 0 => Ok(Duration::from_nanos(left_ns.max(1_000_000))),
        _ => Err(late()),
    }
}

/// Lets errors pass after which a call is tried again within its time.
fn passing(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::Interrupted => Ok(()),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Err(late()),
        _ => Err(error),
    }
}

pub(super) fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "it did not answer in time")
}

fn closed() -> io::Error {
    let why = "it has closed the connection";
    io::Error::new(io::ErrorKind::ConnectionAborted, why)
}

pub(super) fn malformed() -> io::Error {
    let why = "it does not answer as Redis does";
    io::Error::new(io::ErrorKind::InvalidData, why)
}
