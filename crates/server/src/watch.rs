//! `/api/v1/watch`: server-sent events, one message per period for all streams that a client
//! follows.
//!
//! [`Watcher`] remembers what was sent to the client and writes what is new; `serve` calls it at
//! each period. A client that is too slow loses ticks, not samples: the next tick begins where the
//! last delivered one ended, and holds the number of skipped ticks.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io::Write as _;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Bytes;
use barograph_model::{MemoryClaim, Sample, Selector};
use hyper::body::{Body, Frame};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::app::App;
use crate::blocking;
use crate::control::HeldDemand;
use crate::deliver::claimed;
use crate::fault::Fault;
use crate::followed::{FollowedNode, demand_event};
use crate::json::{StreamJson, TickJson, ValueJson};
use crate::share::HeldPlace;
use crate::view::{ServedView, ServedViews, StreamId};

/// Shortest period, in ms.
pub(crate) const EVERY_MS_MIN: i64 = 50;
/// Longest period, in ms.
pub(crate) const EVERY_MS_MAX: i64 = 60_000;
/// Default period, in ms.
pub(crate) const EVERY_MS_DEFAULT: i64 = 1_000;
/// Most messages that wait for a slow client.
pub(crate) const QUEUED_MAX: usize = 2;
/// Most samples of one stream in one tick: the newest are sent, the others are counted as lost.
const TICK_SAMPLES_MAX: u64 = 256;
/// Most samples of one tick. The next tick begins with the streams that did not fit; samples that
/// their rings lose meanwhile are counted as lost.
const TICK_SAMPLES_ALL_MAX: usize = 1 << 14;
/// Bytes that must be free for a tick to be made; the unused part is given back.
const TICK_BYTES: usize = 1 << 20;
/// Longest wait for room to send `bye`.
const BYE_TIME_MAX: Duration = Duration::from_millis(500);

/// The last message to a client of a server that stops.
pub(crate) const BYE: &[u8] = b"event: bye\ndata: {}\n\n";
/// The comment that keeps a quiet connection open.
pub(crate) const STILL_HERE: &[u8] = b": still here\n\n";

/// One stream that a client follows.
#[derive(Debug)]
struct Watched {
    /// Index in the view's streams.
    at: usize,
    /// Number of the last sample that was sent.
    cursor: u64,
    looked_ns: i64,
    interval_ns: i64,
}

/// The streams that one client follows, and the state of what was sent to it.
pub(crate) struct Watcher {
    /// The views of the node whose streams are followed.
    views: Arc<ServedViews>,
    selectors: Vec<Selector>,
    streams_max: usize,
    view: Option<Arc<ServedView>>,
    watched: Vec<Watched>,
    left_out: u64,
    /// Ticks that were skipped since the last one that was sent.
    skipped: u64,
    stale: bool,
    scanned: Vec<Sample>,
    /// Index of the watched stream that the next tick begins with.
    first: usize,
    /// The demand for the streams of another node.
    demand: Option<Result<HeldDemand, String>>,
    /// Whether the client was told why there is no demand.
    has_told: bool,
}

impl Watcher {
    /// Makes a watcher of the streams of a node that match the selectors. More than `streams_max`
    /// streams of the present view are refused here; those that appear later are counted as left
    /// out.
    pub(crate) fn new(
        selectors: Vec<Selector>,
        streams_max: usize,
        followed: FollowedNode,
    ) -> Result<Self, Fault> {
        let FollowedNode {
            views,
            view,
            demand,
        } = followed;
        let meant = view.map_or(0, |view| view.select(&selectors).len());
        if meant > streams_max {
            return Err(Fault::limit(format!(
                "{meant} streams match, one watch follows at most {streams_max}: narrow match"
            )));
        }
        Ok(Self {
            views,
            selectors,
            streams_max,
            view: None,
            watched: Vec::new(),
            left_out: 0,
            skipped: 0,
            stale: false,
            scanned: Vec::new(),
            first: 0,
            demand,
            has_told: false,
        })
    }

    /// Writes what is new since the last turn: `demand` once if the streams of another node are not
    /// mirrored by demand, `streams` if the list has changed, then `tick`, or `stale` once if
    /// nobody writes: the agent has ended, nothing is heard of the mirrored node, or its mirror is
    /// gone.
    pub(crate) fn turn(&mut self, now_ns: i64, out: &mut Vec<u8>) {
        if let Some(demand @ Err(_)) = &self.demand
            && !std::mem::replace(&mut self.has_told, true)
        {
            out.extend(demand_event(demand));
        }
        let view = self.views.current(now_ns).ok();
        if let Some(view) = &view
            && !self
                .view
                .as_ref()
                .is_some_and(|known| Arc::ptr_eq(known, view))
        {
            self.follow(view, out);
        }
        let Some(known) = self.view.clone() else {
            return;
        };
        let alive = view.is_some() && known.is_alive(now_ns);
        if alive {
            self.stale = false;
            let tick = self.tick(&known, now_ns);
            write_event(out, "tick", None, &tick);
        } else if !self.stale {
            self.stale = true;
            let since = serde_json::json!({ "since": known.segment().heartbeat_ns() });
            write_event(out, "stale", None, &since);
        }
    }

    /// Switches to a new view; streams that were followed before keep their cursors.
    fn follow(&mut self, view: &Arc<ServedView>, out: &mut Vec<u8>) {
        let before = self.view.replace(Arc::clone(view));
        let first_life = before.is_none();
        let old_watched = std::mem::take(&mut self.watched);
        let old_ids: Vec<StreamId> = match &before {
            Some(known) => old_watched
                .iter()
                .map(|w| known.streams[w.at].id())
                .collect(),
            None => Vec::new(),
        };
        let mut known: HashMap<_, Watched> = old_ids.iter().copied().zip(old_watched).collect();
        let meant = view.select(&self.selectors);
        self.left_out = meant.len().saturating_sub(self.streams_max) as u64;
        for at in meant.into_iter().take(self.streams_max) {
            let stream = &view.streams[at];
            let fresh = || Watched {
                at,
                // A new client gets the newest sample of each stream, not the whole ring (use
                // `history` for that); of a stream that appears later it gets every sample.
                cursor: if first_life {
                    stream.handle.count().unwrap_or(0).saturating_sub(1)
                } else {
                    0
                },
                looked_ns: i64::MIN,
                interval_ns: stream.interval_ns(),
            };
            let watched = known
                .remove(&stream.id())
                .map_or_else(fresh, |w| Watched { at, ..w });
            self.watched.push(watched);
        }
        let same_life =
            |known: &Arc<ServedView>| known.segment().incarnation() == view.segment().incarnation();
        let ids = self.watched.iter().map(|w| view.streams[w.at].id());
        if !before.as_ref().is_some_and(same_life) || !ids.eq(old_ids) {
            self.write_streams(view, out);
        }
    }

    fn write_streams(&mut self, view: &ServedView, out: &mut Vec<u8>) {
        for watched in &mut self.watched {
            watched.interval_ns = view.streams[watched.at].interval_ns();
        }
        let list: Vec<StreamJson<'_>> = self
            .watched
            .iter()
            .enumerate()
            .map(|(index, w)| StreamJson::of(&view.streams[w.at], Some(index)))
            .collect();
        let incarnation = view.segment().incarnation().to_string();
        write_event(out, "streams", Some(&incarnation), &list);
    }

    fn tick(&mut self, view: &ServedView, now_ns: i64) -> TickJson {
        let mut tick = TickJson {
            ts: now_ns,
            skipped: std::mem::take(&mut self.skipped),
            left_out: self.left_out,
            ..TickJson::default()
        };
        let streams = self.watched.len();
        let first = std::mem::take(&mut self.first);
        for index in (0..streams).map(|at| (first + at) % streams) {
            if tick.samples.len() >= TICK_SAMPLES_ALL_MAX {
                self.first = index;
                break;
            }
            let watched = &mut self.watched[index];
            let stream = &view.streams[watched.at];
            // A stream that has ended leaves the list at the next turn.
            let Some(count) = stream.handle.count() else {
                continue;
            };
            if count > watched.cursor {
                let cursor = stream.handle.cursor_from(watched.cursor);
                let from = cursor.max(count.saturating_sub(TICK_SAMPLES_MAX));
                self.scanned.clear();
                let Some(scan) = stream.handle.scan(from, &mut self.scanned) else {
                    continue;
                };
                let lost = from - cursor + scan.lost;
                if lost > 0 {
                    tick.lost.push((index, lost));
                }
                watched.cursor = scan.cursor;
                tick.samples.extend(
                    self.scanned
                        .drain(..)
                        .map(|s| (index, s.ts, ValueJson(s.value), s.quality.as_str(), s.error)),
                );
            }
            let looked_ns = stream.handle.looked_ns();
            if looked_ns != watched.looked_ns && count > 0 {
                watched.looked_ns = looked_ns;
                tick.looked.push((index, looked_ns));
            }
            let interval_ns = stream.interval_ns();
            if interval_ns != watched.interval_ns {
                watched.interval_ns = interval_ns;
                tick.intervals.push((index, interval_ns));
            }
        }
        tick
    }
}

/// Writes one event; JSON has no line breaks, so one `data` line holds it.
fn write_event(out: &mut Vec<u8>, name: &str, id: Option<&str>, data: &impl Serialize) {
    // Writing to a Vec cannot fail, and our own types always serialize.
    if let Some(id) = id {
        let _ = writeln!(out, "id: {id}");
    }
    let _ = write!(out, "event: {name}\ndata: ");
    let _ = serde_json::to_writer(&mut *out, data);
    out.extend_from_slice(b"\n\n");
}

/// A response body of messages from a channel; each message owns the claim on its memory.
#[derive(Debug)]
pub(crate) struct MessageBody {
    /// Given back first, so that whoever sees one watcher fewer finds its place free.
    _place: HeldPlace,
    messages: mpsc::Receiver<Bytes>,
}

impl MessageBody {
    /// Makes a body of the messages of a channel; it holds `place` until it is dropped.
    pub(crate) fn new(messages: mpsc::Receiver<Bytes>, place: HeldPlace) -> Self {
        Self {
            _place: place,
            messages,
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

/// Tells a client that the server stops, if it takes that in soon.
pub(crate) async fn say_bye(to: &mpsc::Sender<Bytes>) {
    let bye = to.send(Bytes::from_static(BYE));
    let _ = timeout(BYE_TIME_MAX, bye).await;
}

/// Runs a watcher's turns until its client or the server ends. Its messages are made on threads
/// that may compute, like small answers, and hold memory like answers.
#[expect(
    clippy::disallowed_methods,
    reason = "a connection waits for its next turn"
)]
pub(crate) async fn serve(
    app: Arc<App>,
    watcher: Watcher,
    (every, claims): (Duration, impl Fn() -> MemoryClaim + Send),
    to: mpsc::Sender<Bytes>,
) {
    let mut watcher = watcher;
    app.counters.watchers.fetch_add(1, Ordering::Relaxed);
    let mut stopped = pin!(app.stopped());
    let mut turns = interval(every);
    turns.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut quiet = interval(app.limits.keep_alive_every);
    quiet.reset();
    loop {
        tokio::select! {
            () = to.closed() => break,
            () = &mut stopped => {
                say_bye(&to).await;
                break;
            }
            _ = turns.tick() => {
                let Ok(room) = to.try_reserve() else {
                    watcher.skipped += 1;
                    app.counters.skipped_ticks.fetch_add(1, Ordering::Relaxed);
                    continue;
                };
                let mut claim = claims();
                if !claim.grow(TICK_BYTES) {
                    watcher.skipped += 1;
                    app.counters.skipped_ticks.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                let turned = turn(Arc::clone(&app), watcher).await;
                let Ok((back, out)) = turned else { break };
                watcher = back;
                if !out.is_empty() {
                    // The first message may be larger than the claim: it is sent whether or not
                    // more can be claimed.
                    let _ = claim.reach(out.len());
                    claim.give(claim.bytes().saturating_sub(out.len()));
                    room.send(claimed(out, claim));
                    quiet.reset();
                }
            }
            _ = quiet.tick() => {
                // A full queue means that a message is on its way, which does as well.
                let _ = to.try_send(Bytes::from_static(STILL_HERE));
            }
        }
    }
    app.counters.watchers.fetch_sub(1, Ordering::Relaxed);
}

/// Runs one turn on a thread that may compute.
async fn turn(app: Arc<App>, mut watcher: Watcher) -> Result<(Watcher, Vec<u8>), Fault> {
    let place = Arc::clone(&app.turns).acquire_owned().await;
    let place = place.map_err(|_| Fault::busy("the server is stopping"))?;
    blocking::wait(move || {
        let _place = place;
        let mut out = Vec::new();
        let now_ns = app.clock.now_ns();
        watcher.turn(now_ns, &mut out);
        Ok((watcher, out))
    })
    .await
}
