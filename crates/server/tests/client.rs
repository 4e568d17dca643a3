//! A small blocking HTTP client, which shows tests the bytes.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

/// Longest wait of a test: after it the test counts as hung.
const WAIT_MAX: Duration = Duration::from_secs(30);

pub(crate) trait Socket: Read + Write + Send {}
impl<T: Read + Write + Send> Socket for T {}

pub(crate) fn tcp(address: SocketAddr) -> Box<dyn Socket> {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(WAIT_MAX)).unwrap();
    Box::new(socket)
}

pub(crate) fn unix(path: &Path) -> Box<dyn Socket> {
    let socket = UnixStream::connect(path).unwrap();
    socket.set_read_timeout(Some(WAIT_MAX)).unwrap();
    Box::new(socket)
}

/// The text of a request with a valid Host and `connection: close`.
pub(crate) fn request(line: &str, headers: &[&str], body: &[u8]) -> Vec<u8> {
    let mut text = format!("{line} HTTP/1.1\r\nconnection: close\r\n");
    if !headers
        .iter()
        .any(|h| h.to_ascii_lowercase().starts_with("host:"))
    {
        text.push_str("host: localhost:7070\r\n");
    }
    if !body.is_empty() {
        text.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    for header in headers.iter().filter(|h| !h.is_empty() && **h != "Host:") {
        text.push_str(header);
        text.push_str("\r\n");
    }
    [text.as_bytes(), b"\r\n", body].concat()
}

#[derive(Debug)]
pub(crate) struct Response {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|l| l.split_once(": "));
        lines
            .filter(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, v)| v)
            .next()
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    /// Checks status and kind of an error, and that its message contains `part`.
    #[track_caller]
    pub(crate) fn expect_fault(&self, status: u16, kind: &str, part: &str) {
        let error = &self.json()["error"];
        let message = error["message"].as_str().unwrap_or_default();
        assert_eq!(
            (self.status, error["kind"].as_str()),
            (status, Some(kind)),
            "{}",
            self.text()
        );
        assert!(message.contains(part), "{message:?} does not say {part:?}");
        assert_eq!(self.header("content-type"), Some("application/json"));
    }
}

/// Sends `bytes` and reads one answer to its end.
pub(crate) fn send(mut socket: Box<dyn Socket>, bytes: &[u8]) -> Response {
    // A server that answers early may not read the rest.
    let _ = socket.write_all(bytes);
    let mut reader = BufReader::new(socket);
    let (status, head) = read_head(&mut reader);
    let mut body = Vec::new();
    // A refused request may end with a reset.
    let _ = reader.read_to_end(&mut body);
    Response { status, head, body }
}

pub(crate) fn read_head(reader: &mut BufReader<Box<dyn Socket>>) -> (u16, String) {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(
            reader.read_line(&mut head).unwrap(),
            0,
            "closed within the head: {head:?}"
        );
    }
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head)
}

/// A server-sent event.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Event {
    pub name: String,
    pub id: String,
    pub data: Value,
}

/// The events of a watch.
pub(crate) struct Events(BufReader<Box<dyn Socket>>);

impl Events {
    pub(crate) fn open(mut socket: Box<dyn Socket>, path: &str) -> Self {
        socket
            .write_all(&request(&format!("GET {path}"), &[], b""))
            .unwrap();
        let mut reader = BufReader::new(socket);
        let (status, head) = read_head(&mut reader);
        assert_eq!(status, 200, "{head}");
        assert!(
            head.contains("content-type: text/event-stream\r\n"),
            "{head}"
        );
        assert!(head.contains("transfer-encoding: chunked\r\n"), "{head}");
        Self(reader)
    }

    /// The next event; `None` if the server has ended the stream.
    pub(crate) fn next(&mut self) -> Option<Event> {
        let mut event = Event::default();
        loop {
            let line = self.line()?;
            let field = |name: &str| line.strip_prefix(name).map(str::to_owned);
            if let Some(name) = field("event: ") {
                event.name = name;
            } else if let Some(id) = field("id: ") {
                event.id = id;
            } else if let Some(data) = field("data: ") {
                event.data = serde_json::from_str(&data).unwrap();
            } else if line.is_empty() && !event.name.is_empty() {
                return Some(event);
            }
        }
    }

    /// The next event with this name; other events are skipped.
    pub(crate) fn next_named(&mut self, name: &str) -> Event {
        loop {
            let event = self.next().expect("the stream goes on");
            if event.name == name {
                return event;
            }
            assert_eq!(event.name, "tick", "while waiting for {name}: {event:?}");
        }
    }

    /// The next comment; events are skipped.
    pub(crate) fn next_comment(&mut self) -> String {
        loop {
            let line = self.line().expect("the stream goes on");
            if let Some(comment) = line.strip_prefix(": ") {
                return comment.to_owned();
            }
        }
    }

    /// A line of the events, without the framing of chunks.
    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        if let Some(framing) = line.strip_suffix("\r\n") {
            // The size of a chunk, or the empty line at its end.
            return (framing != "0" && !line.is_empty()).then(|| self.line())?;
        }
        line.strip_suffix('\n').map(str::to_owned)
    }
}
