//! Objects as values of Redis or Valkey. A value is sent from where it is and received to where it
//! goes, without a copy of it between.
//!
//! opendal's service lists nothing, so that what a former life of a server has left would not be
//! found.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use barograph_model::Clock;

use super::address::RedisPlace;
use super::resp::{Connection, Reply, malformed};
use super::{ObjectStore, ObjectWriter};

/// Bytes of the largest value that Redis takes.
const VALUE_BYTES_MAX: u64 = 512 << 20;
/// Most connections that are kept while nobody needs them.
const IDLE_MAX: usize = 8;
/// Bytes that are asked for at a time.
const PIECE_BYTES: usize = 8 << 20;
/// Keys that are looked at for one answer of a list.
const SCAN_COUNT: &[u8] = b"1000";

/// A store of objects in a database of Redis.
pub struct RedisStore {
    shared: Arc<Shared>,
}

struct Shared {
    place: RedisPlace,
    clock: Arc<dyn Clock>,
    call_ns: i64,
    idle: Mutex<Vec<Connection>>,
}

/// A value that is being sent.
struct RedisWriter {
    shared: Arc<Shared>,
    connection: Connection,
    /// Bytes that are still to come.
    left: u64,
}

impl RedisStore {
    pub(super) fn new(place: RedisPlace, clock: Arc<dyn Clock>, call_ns: i64) -> Self {
        Self {
            shared: Arc::new(Shared {
                place,
                clock,
                call_ns,
                idle: Mutex::default(),
            }),
        }
    }

    /// The policy by which the server drops values when it is full; `None` if it drops none.
    ///
    /// # Errors
    ///
    /// The server cannot be reached, or does not say.
    pub fn eviction_policy(&self) -> io::Result<Option<String>> {
        let reply = self
            .shared
            .ask(|connection| connection.call(&[b"INFO", b"memory"]))?;
        let Reply::Bytes(text) = reply else {
            return Err(malformed());
        };
        let text = String::from_utf8_lossy(&text);
        let of = |name: &str| {
            let mut lines = text.lines();
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        };
        let is_bounded = of("maxmemory").is_some_and(|bytes| bytes.trim() != "0");
        let policy = of("maxmemory_policy").unwrap_or("noeviction").trim();
        Ok((is_bounded && policy != "noeviction").then(|| policy.to_owned()))
    }

    fn key(&self, name: &str) -> Vec<u8> {
        format!("{}{name}", self.shared.place.prefix).into_bytes()
    }
}

impl Shared {
    fn dial(&self) -> io::Result<Connection> {
        let place = &self.place;
        let mut connection = Connection::dial(&place.host, &self.clock, self.call_ns)?;
        if !place.password.is_empty() {
            let password = place.password.as_bytes();
            match place.user.is_empty() {
                true => accepted(connection.call(&[b"AUTH", password])?)?,
                false => {
                    let words: [&[u8]; 3] = [b"AUTH", place.user.as_bytes(), password];
                    accepted(connection.call(&words)?)?;
                }
            }
        }
        if place.database != 0 {
            let database = place.database.to_string();
            accepted(connection.call(&[b"SELECT", database.as_bytes()])?)?;
        }
        Ok(connection)
    }

    fn idle(&self) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.pop()
    }

    fn keep(&self, connection: Connection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX {
            idle.push(connection);
        }
    }

    /// Asks over a connection that was kept, and if the server has closed it, over a new one. What
    /// is asked may be asked twice.
    fn ask<T>(&self, mut ask: impl FnMut(&mut Connection) -> io::Result<T>) -> io::Result<T> {
        while let Some(mut connection) = self.idle() {
            match ask(&mut connection) {
                Err(error) if is_closed(&error) => {}
                answer => return self.end(connection, answer),
            }
        }
        let mut connection = self.dial()?;
        let answer = ask(&mut connection);
        self.end(connection, answer)
    }

    /// Keeps a connection on which everything asked was answered.
    fn end<T>(&self, connection: Connection, answer: io::Result<T>) -> io::Result<T> {
        // What the server says of a command is an answer too, but of several the others are on
        // their way.
        if answer.is_ok() {
            self.keep(connection);
        }
        answer
    }
}

fn accepted(reply: Reply) -> io::Result<()> {
    match reply {
        Reply::Status(_) => Ok(()),
        _ => Err(malformed()),
    }
}

fn is_closed(error: &io::Error) -> bool {
    let closed = [
        io::ErrorKind::ConnectionAborted,
        io::ErrorKind::ConnectionReset,
        io::ErrorKind::BrokenPipe,
    ];
    closed.contains(&error.kind())
}

impl ObjectStore for RedisStore {
    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn ObjectWriter>> {
        let shared = Arc::clone(&self.shared);
        // A value cannot be sent twice, so the connection is looked at before.
        let kept = shared.idle().and_then(|mut connection| {
            let answers = connection.call(&[b"PING"]).is_ok();
            answers.then_some(connection)
        });
        let mut connection = match kept {
            Some(connection) => connection,
            None => shared.dial()?,
        };
        connection.send_before(&[b"SET", &self.key(name)], bytes)?;
        Ok(Box::new(RedisWriter {
            shared,
            connection,
            left: bytes,
        }))
    }

    fn read_at(&self, name: &str, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let key = self.key(name);
        let mut at = offset;
        for piece in bytes.chunks_mut(PIECE_BYTES) {
            let (first, last) = (at, at + piece.len() as u64 - 1);
            let (first, last) = (first.to_string(), last.to_string());
            let read = self.shared.ask(|connection| {
                connection.send(&[b"GETRANGE", &key, first.as_bytes(), last.as_bytes()])?;
                connection.bytes_into(piece)
            })?;
            if read < piece.len() {
                let is_there = self
                    .shared
                    .ask(|connection| connection.call(&[b"EXISTS", &key]))?
                    == Reply::Integer(1);
                return Err(match is_there {
                    true => io::Error::new(io::ErrorKind::UnexpectedEof, "its object ends before"),
                    false => io::Error::new(io::ErrorKind::NotFound, "its object is gone"),
                });
            }
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let key = self.key(name);
        self.shared
            .ask(|connection| connection.call(&[b"DEL", &key]).map(drop))
    }

    fn list(&self, found: &mut dyn FnMut(&str, u64)) -> io::Result<()> {
        let prefix = &self.shared.place.prefix;
        let pattern = format!("{prefix}*");
        let mut cursor = b"0".to_vec();
        loop {
            let (next, keys) = self.shared.ask(|connection| {
                let words: [&[u8]; 6] = [
                    b"SCAN",
                    &cursor,
                    b"MATCH",
                    pattern.as_bytes(),
                    b"COUNT",
                    SCAN_COUNT,
                ];
                page(connection.call(&words)?)
            })?;
            let lengths = self.shared.ask(|connection| {
                for key in &keys {
                    connection.send(&[b"STRLEN", key])?;
                }
                let lengths = keys.iter().map(|_| connection.reply());
                lengths.collect::<io::Result<Vec<_>>>()
            })?;
            for (key, length) in keys.iter().zip(lengths) {
                let name = std::str::from_utf8(key).ok();
                let name = name.and_then(|key| key.strip_prefix(&**prefix));
                if let (Some(name), Reply::Integer(bytes)) = (name, length) {
                    found(name, bytes.max(0).unsigned_abs());
                }
            }
            if next == b"0" {
                return Ok(());
            }
            cursor = next;
        }
    }

    fn object_bytes_max(&self) -> u64 {
        VALUE_BYTES_MAX
    }
}

/// The cursor and the keys of an answer to SCAN.
fn page(reply: Reply) -> io::Result<(Vec<u8>, Vec<Vec<u8>>)> {
    let Reply::Parts(parts) = reply else {
        return Err(malformed());
    };
    let Ok([Reply::Bytes(cursor), Reply::Parts(keys)]) = <[Reply; 2]>::try_from(parts) else {
        return Err(malformed());
    };
    let keys = keys.into_iter().map(|key| match key {
        Reply::Bytes(key) => Ok(key),
        _ => Err(malformed()),
    });
    Ok((cursor, keys.collect::<io::Result<_>>()?))
}

impl ObjectWriter for RedisWriter {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let left = self.left.checked_sub(bytes.len() as u64);
        self.left = left.ok_or(io::ErrorKind::InvalidInput)?;
        self.connection.write(bytes)
    }

    fn finish(self: Box<Self>) -> io::Result<()> {
        let Self {
            shared,
            mut connection,
            left,
        } = *self;
        if left > 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        connection.write(b"\r\n")?;
        let reply = connection.reply();
        accepted(shared.end(connection, reply)?)
    }
}
