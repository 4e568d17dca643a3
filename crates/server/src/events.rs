//! `/api/v1/events`: file events as server-sent events, each as one message with an id from which a
//! reader goes on after a break.
//!
//! It stands alone because it is no watch: every event is sent, however slow the reader is, and
//! what cannot be sent is told. So each reader has a thread, which waits for events and for the
//! reader, at a low priority; the number of readers is bounded with that of watchers.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, header};
use axum::response::IntoResponse as _;
use barograph_model::{MemoryClaim, instant_ns};
use tokio::sync::mpsc;

use crate::app::{App, HandlerAnswer, RequestOrigin, SharedApp};
use crate::blocking;
use crate::deliver::claimed;
use crate::event_feed::{EventMessage, EventMessages, EventQuery};
use crate::fault::Fault;
use crate::params::Params;
use crate::watch::{BYE, MessageBody, QUEUED_MAX};

/// Longest time until the end of a reader or of the server is noticed.
const SLICE: Duration = Duration::from_millis(100);
/// Bytes of messages that are sent together, if they are there.
const BATCH_BYTES: usize = 64 << 10;
/// Longest parameter, in bytes.
const PARAMETER_BYTES_MAX: usize = 4 << 10;
/// The header with which a client goes on after the last message that it has seen.
const LAST_EVENT_ID: &str = "last-event-id";

/// `GET /api/v1/events[?kind=K,K][&path=P][&glob=G][&source=S][&since=T][&after=ID]`
pub(crate) async fn events(
    State(app): SharedApp,
    asking: RequestOrigin,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> HandlerAnswer {
    let query = query_of(query.as_deref(), &headers, app.clock.now_ns())?;
    let Some(feeds) = app.events.clone() else {
        return Err(Fault::unknown(
            "this agent records no events: applications are off in its configuration",
        ));
    };
    let place = app.watcher_place(asking)?;
    let opened = move || Ok::<_, Fault>(feeds.open(&query)?);
    let feed = blocking::wait(opened).await?;
    let (to, messages) = mpsc::channel(QUEUED_MAX);
    let RequestOrigin(way, client) = asking;
    let sender = EventSender {
        claim: app.memory.claim(client.number(way)),
        client: client.number(way),
        app,
        feed,
        to,
    };
    let thread = std::thread::Builder::new().name("baro-events".into());
    if let Err(error) = thread.spawn(move || sender.run()) {
        let fault = format!("no thread can be started for this feed: {error}; try again");
        return Err(Fault::busy(fault));
    }
    let body = Body::new(MessageBody::new(messages, place));
    Ok(([(header::CONTENT_TYPE, "text/event-stream")], body).into_response())
}

fn query_of(query: Option<&str>, headers: &HeaderMap, now_ns: i64) -> Result<EventQuery, Fault> {
    let known = ["kind", "path", "glob", "source", "since", "after"];
    let params = Params::parse(query, &known)?;
    let text = |name: &str| -> Result<Option<String>, Fault> {
        match params.one(name)? {
            Some(text) if text.len() > PARAMETER_BYTES_MAX => Err(Fault::limit(format!(
                "{name} has {} bytes, at most {PARAMETER_BYTES_MAX}",
                text.len()
            ))),
            text => Ok(text.map(str::to_owned)),
        }
    };
    let kinds = text("kind")?.unwrap_or_default();
    let kinds = kinds.split(',').filter(|kind| !kind.is_empty());
    let since = text("since")?;
    let since = since.map(|text| {
        instant_ns(&text, now_ns).map_err(|error| Fault::usage(format!("since={error}")))
    });
    // A browser that connects anew sends the header, with the parameters of the first time.
    let after = match headers.get(LAST_EVENT_ID).map(|id| id.to_str()) {
        Some(Ok("")) | None => params.one("after")?.map(str::to_owned),
        Some(Ok(id)) => Some(id.to_owned()),
        Some(Err(_)) => return Err(Fault::usage("the header Last-Event-ID is not ASCII")),
    };
    Ok(EventQuery {
        kinds: kinds.map(str::to_owned).collect(),
        path: text("path")?,
        glob: text("glob")?,
        source: text("source")?,
        since_ns: since.transpose()?,
        after,
    })
}

/// The thread that sends events to one client.
struct EventSender {
    app: Arc<App>,
    feed: Box<dyn EventMessages>,
    to: mpsc::Sender<Bytes>,
    /// The memory that the feed holds.
    claim: MemoryClaim,
    client: barograph_model::ClientNumber,
}

impl EventSender {
    fn run(mut self) {
        barograph_stream::give_way();
        self.app.counters.watchers.fetch_add(1, Ordering::Relaxed);
        self.send_all();
        self.app.counters.watchers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Sends events until the client or the server ends, or the client may hold no more.
    fn send_all(&mut self) {
        let id = self.feed.id();
        let mut out = format!("id: {id}\nevent: start\ndata: {{}}\n\n").into_bytes();
        let mut sent_ns = self.app.clock.monotonic_ns();
        let quiet_ns = i64::try_from(self.app.limits.keep_alive_every.as_nanos());
        let quiet_ns = quiet_ns.unwrap_or(i64::MAX);
        loop {
            let mut timeout = match out.is_empty() {
                true => SLICE,
                false => Duration::ZERO,
            };
            while out.len() < BATCH_BYTES
                && let Some(message) = self.feed.next(timeout)
            {
                write_message(&mut out, &message);
                timeout = Duration::ZERO;
            }
            if *self.app.stop.borrow() {
                out.extend_from_slice(BYE);
                let _ = self.to.blocking_send(Bytes::from(out));
                return;
            }
            let now_ns = self.app.clock.monotonic_ns();
            if out.is_empty() && now_ns.saturating_sub(sent_ns) >= quiet_ns {
                // The id of a message without data is kept by the client too, so that it does not
                // read again what it does not want.
                out = format!("id: {}\n: still here\n\n", self.feed.id()).into_bytes();
            }
            if self.to.is_closed() {
                return;
            }
            if !out.is_empty() {
                if !self.send(std::mem::take(&mut out)) {
                    return;
                }
                sent_ns = now_ns;
            }
        }
    }

    /// Sends messages, and waits for the client; returns whether there is more to send to it.
    fn send(&mut self, out: Vec<u8>) -> bool {
        let held = self.feed.held_bytes();
        self.claim.give(self.claim.bytes().saturating_sub(held));
        let mut claim = self.app.memory.claim(self.client);
        let has_room = self.claim.reach(held) && claim.grow(out.len());
        if has_room {
            return self.to.blocking_send(claimed(out, claim)).is_ok();
        }
        let reason = "this user holds too much memory here: go on later from the last id";
        let cut = format!(
            "event: cut\ndata: {}\n\n",
            serde_json::json!({ "reason": reason })
        );
        let _ = self.to.blocking_send(Bytes::from(cut));
        false
    }
}

fn write_message(out: &mut Vec<u8>, message: &EventMessage) {
    // JSON has no line breaks; writing to a Vec cannot fail.
    let kind = if message.is_gap { "event: gap\n" } else { "" };
    let _ = write!(out, "id: {}\n{kind}data: {}\n\n", message.id, message.json);
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn queries() {
        const NOW: i64 = 1_700_000_000_000_000_000;
        let check = |query: &str, id: Option<&str>, expect: Result<EventQuery, &str>| {
            let mut headers = HeaderMap::new();
            if let Some(id) = id {
                headers.insert(LAST_EVENT_ID, HeaderValue::from_str(id).unwrap());
            }
            match (query_of(Some(query), &headers, NOW), expect) {
                (Ok(found), Ok(expect)) => assert_eq!(found, expect, "{query}"),
                (Err(fault), Err(part)) => {
                    assert!(fault.message.contains(part), "{query}: {}", fault.message);
                }
                (found, expect) => panic!("{query}: {found:?}, not {expect:?}"),
            }
        };
        let text = |text: &str| Some(text.to_owned());
        check("", None, Ok(EventQuery::default()));
        check(
            "kind=create,unlink&path=/data&glob=*.h5&source=data&since=-1s",
            Some(""),
            Ok(EventQuery {
                kinds: vec!["create".into(), "unlink".into()],
                path: text("/data"),
                glob: text("*.h5"),
                source: text("data"),
                since_ns: Some(NOW - 1_000_000_000),
                after: None,
            }),
        );
        let after = |id| EventQuery {
            after: text(id),
            ..EventQuery::default()
        };
        check("after=data%3D1", None, Ok(after("data=1")));
        check("after=data%3D1", Some("data=2@5"), Ok(after("data=2@5")));
        check("since=noon", None, Err("since=\"noon\" is not a time"));
        check("match=x", None, Err("unknown parameter"));
        check("path=/a&path=/b", None, Err("path is given twice"));
        let long = format!("glob={}", "a".repeat(PARAMETER_BYTES_MAX + 1));
        check(&long, None, Err("glob has 4097 bytes"));
    }
}
