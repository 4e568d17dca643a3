//! A minimal HTTP/1.1 client: one request to an agent's unix socket, or one whose answer goes on.
//!
//! This module stands alone so that programs that call handlers need no async runtime and no thread
//! for it.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use barograph_model::Clock as _;
use barograph_stream::{AgentSocket, RunDir, SystemClock};

/// Largest answer that is accepted, with its head.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// An HTTP answer: its status and its body.
#[derive(Debug, PartialEq)]
pub(crate) struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
}

/// Parses the bytes that have come, and whether these are all; `None` if more are needed.
type ParseAnswer = fn(&[u8], bool) -> io::Result<Option<Answer>>;

/// Posts JSON to the agent of a run directory, and waits for the answer up to the given time.
pub(crate) fn post(
    run_dir: &RunDir,
    door: AgentSocket,
    path: &str,
    body: &str,
    wait: Duration,
) -> io::Result<Answer> {
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    let mut stream = run_dir.connect(door)?;
    exchange(&mut stream, &request, wait, parse)
}

/// Gets a stream of events from the agent of a run directory: returns its first event, or a whole
/// answer that is none, and the connection, on which no read waits.
pub(crate) fn open(
    run_dir: &RunDir,
    door: AgentSocket,
    path: &str,
    wait: Duration,
) -> io::Result<(UnixStream, Answer)> {
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let mut stream = run_dir.connect(door)?;
    let answer = exchange(&mut stream, &request, wait, parse_first)?;
    stream.set_nonblocking(true)?;
    Ok((stream, answer))
}

/// Sends a request, and reads until `parse` finds an answer, for at most the given time.
fn exchange(
    stream: &mut UnixStream,
    request: &str,
    wait: Duration,
    parse: ParseAnswer,
) -> io::Result<Answer> {
    let clock = SystemClock::new();
    let left = || {
        let waited = Duration::from_nanos(clock.monotonic_ns().unsigned_abs());
        let left = wait.checked_sub(waited).filter(|left| !left.is_zero());
        left.ok_or_else(|| io::Error::from(io::ErrorKind::TimedOut))
    };
    stream.set_write_timeout(Some(left()?))?;
    stream.write_all(request.as_bytes())?;
    let mut bytes = Vec::new();
    let mut piece = [0; 4_096];
    loop {
        if let Some(answer) = parse(&bytes, false)? {
            return Ok(answer);
        }
        stream.set_read_timeout(Some(left()?))?;
        let count = match stream.read(&mut piece) {
            Ok(0) => return parse(&bytes, true)?.ok_or_else(|| damaged("it was cut short")),
            Ok(count) => count,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            Err(e) => return Err(e),
        };
        bytes.extend_from_slice(&piece[..count]);
        if bytes.len() > ANSWER_BYTES_MAX {
            return Err(damaged("it is larger than any answer"));
        }
    }
}

/// Parses an answer; `None` if it is not complete yet.
fn parse(bytes: &[u8], is_end: bool) -> io::Result<Option<Answer>> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Ok(None);
    };
    let (head, body) = (&bytes[..end], &bytes[end + 4..]);
    let head = std::str::from_utf8(head).map_err(|_| damaged("its head is no text"))?;
    let mut lines = head.split("\r\n");
    let mut first = lines.next().unwrap_or_default().split(' ');
    let is_http = first.next().is_some_and(|v| v.starts_with("HTTP/1."));
    let status = first.next().and_then(|code| code.parse().ok());
    let Some(status) = status.filter(|_| is_http) else {
        return Err(damaged("it is not HTTP"));
    };
    let mut length = None;
    let mut is_chunked = false;
    for line in lines {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            let number = value.parse::<usize>();
            length = Some(number.map_err(|_| damaged("its length is no number"))?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            is_chunked = value.eq_ignore_ascii_case("chunked");
        }
    }
    let body = match length {
        _ if is_chunked => chunks(body)?,
        Some(length) => body.get(..length).map(<[u8]>::to_vec),
        None => is_end.then(|| body.to_vec()),
    };
    Ok(body.map(|body| Answer { status, body }))
}

/// Parses the first chunk of a stream of events, or the whole of another answer.
fn parse_first(bytes: &[u8], is_end: bool) -> io::Result<Option<Answer>> {
    // The last chunk of a body is empty: with it, a stream that goes on is whole.
    let mut whole = bytes.to_vec();
    if bytes.ends_with(b"\n\n\r\n") {
        whole.extend_from_slice(b"0\r\n\r\n");
    }
    parse(&whole, is_end)
}

/// Joins the chunks of a chunked body; `None` if the last one has not arrived.
fn chunks(mut bytes: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let mut whole = Vec::new();
    loop {
        let Some(end) = bytes.windows(2).position(|two| two == b"\r\n") else {
            return Ok(None);
        };
        let line = std::str::from_utf8(&bytes[..end]).unwrap_or_default();
        let digits = line.split(';').next().unwrap_or_default().trim();
        let stated = usize::from_str_radix(digits, 16).ok();
        let length = stated.filter(|length| *length <= ANSWER_BYTES_MAX);
        let length = length.ok_or_else(|| damaged("a piece has no length"))?;
        if length == 0 {
            return Ok(Some(whole));
        }
        let rest = &bytes[end + 2..];
        let Some(piece) = rest.get(..length) else {
            return Ok(None);
        };
        whole.extend_from_slice(piece);
        let Some(next) = rest.get(length + 2..) else {
            return Ok(None);
        };
        bytes = next;
    }
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the answer makes no sense: {what}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_of_events_is_read_up_to_its_first() {
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        let event = "event: demand\ndata: {}\n\n";
        let chunk = format!("{head}{:x}\r\n{event}\r\n", event.len());
        let parsed = parse_first(chunk.as_bytes(), false).unwrap().unwrap();
        assert_eq!(parsed.body, event.as_bytes());
        for bytes in 0..chunk.len() {
            let cut = parse_first(&chunk.as_bytes()[..bytes], false).unwrap();
            assert_eq!(cut, None, "{bytes}");
        }
        let refused = "HTTP/1.1 404 No\r\ncontent-length: 2\r\n\r\n{}";
        let parsed = parse_first(refused.as_bytes(), false).unwrap().unwrap();
        assert_eq!((parsed.status, &*parsed.body), (404, &b"{}"[..]));
    }

    #[test]
    fn answers_are_read_however_they_are_cut() {
        let body = |text: &str| Some((200, text.to_owned()));
        for (text, is_end, expect) in [
            ("", false, Ok(None)),
            ("HTTP/1.1 200 OK\r\nContent-", false, Ok(None)),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{",
                false,
                Ok(None),
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
                false,
                Ok(body("{}")),
            ),
            (
                "HTTP/1.1 404 No\r\ncontent-length:0\r\n\r\n",
                false,
                Ok(Some((404, String::new()))),
            ),
            ("HTTP/1.1 200 OK\r\n\r\n{}", false, Ok(None)),
            ("HTTP/1.1 200 OK\r\n\r\n{}", true, Ok(body("{}"))),
            (
                "HTTP/1.1 200\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc",
                false,
                Ok(None),
            ),
            (
                "HTTP/1.1 200\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n",
                false,
                Ok(body("abc")),
            ),
            (
                "HTTP/1.1 200\r\ntransfer-encoding: chunked\r\n\r\nx\r\n",
                false,
                Err(()),
            ),
            (
                "HTTP/1.1 200\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff\r\n",
                false,
                Err(()),
            ),
            ("HTTP/1.1 two\r\n\r\n", false, Err(())),
            ("SSH-2.0 200\r\n\r\n", false, Err(())),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
                false,
                Err(()),
            ),
        ] {
            let parsed = parse(text.as_bytes(), is_end).map_err(drop);
            let parsed =
                parsed.map(|answer| answer.map(|a| (a.status, String::from_utf8(a.body).unwrap())));
            assert_eq!(parsed, expect, "{text:?}");
        }
    }
}
