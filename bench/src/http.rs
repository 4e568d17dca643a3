//! An HTTP client with what a benchmark needs: one kept connection, one request at a time.

use std::io::{BufRead as _, BufReader, Read, Write};

/// A connection over TCP or a unix socket.
pub(crate) struct Connection<S>(BufReader<S>);

impl<S: Read + Write> Connection<S> {
    /// Returns a client over a connected stream.
    pub(crate) fn new(stream: S) -> Self {
        Self(BufReader::new(stream))
    }

    /// Sends a GET request; returns status and length of the answer.
    pub(crate) fn get(&mut self, path: &str) -> Option<(u16, usize)> {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
    }

    /// Like [`Connection::get`], with a body.
    pub(crate) fn post(&mut self, path: &str, body: &str) -> Option<(u16, usize)> {
        let length = body.len();
        self.ask(&format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}"
        ))
    }

    fn ask(&mut self, request: &str) -> Option<(u16, usize)> {
        self.0.get_mut().write_all(request.as_bytes()).ok()?;
        let (mut status, mut length) = (None, 0);
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).ok()?;
            let line = line.trim_end().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            } else if status.is_none() {
                status = line.split(' ').nth(1)?.parse().ok();
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).ok()?;
        Some((status?, length))
    }
}
