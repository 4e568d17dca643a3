//! Bridges: values that come by OTLP or line protocol go to the intake thread, which owns the
//! scopes, and the request is answered when they are safe.
//!
//! The server parses requests (`barograph_server`); this module decides what is taken,
//! into which scope, and within which bounds. The requester's thread waits for the disk, the intake
//! thread for nobody.

mod series;
mod source;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use barograph_archive::{Journal, JournalPosition};
use barograph_bridge::{
    Ingest, IngestFault, IngestRequest, IngestResult, Point, PointRefusal, PointSource,
    REFUSALS_MAX, RefusedPoints,
};
use barograph_model::NS_PER_S;
use barograph_stream::ScopeReader;
use barograph_stream::ingest::PublicationReaders;
use barograph_stream::user_name;
use serde_json::Value as Json;

use super::door::bell;
use super::process::IntakeRound;
use super::rates::RecordRates;
use source::{BridgedSource, SeriesAllowance, SourceOwner, TakenSeries};

/// Requests that wait for the intake thread; a further one is refused as busy.
const WAITING_MAX: usize = 32;
/// Most points that are taken between two looks at the rings of processes.
const ROUND_POINTS_MAX: usize = 4_096;
/// Longest wait of a request for the intake thread.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// Longest wait for the disk after a request was taken, beyond the group commit.
const DISK_WAIT: Duration = Duration::from_secs(5);
/// Time without a write after which a series or a source has ended, in ns.
const IDLE_NS: i64 = 600 * NS_PER_S;
const SWEEP_EVERY_NS: i64 = 10 * NS_PER_S;
/// Most sources of one user.
const SOURCES_MAX: usize = 256;
/// Most rows of bridged sources in one document, of all users together.
const ROWS_MAX: usize = 4_096;
/// Most users that write; as many as there can be scopes.
const USERS_MAX: usize = barograph_stream::SCOPES_MAX;

/// A request on its way to the intake thread.
struct Job {
    request: IngestRequest,
    reply: SyncSender<Result<Accepted, IngestFault>>,
}

/// The answer to a request, and the journal position of its values.
struct Accepted {
    ingested: IngestResult,
    wait: Option<(Journal, JournalPosition)>,
}

/// The server's side of the bridge.
#[derive(Debug)]
pub(crate) struct BridgeDoor {
    jobs: SyncSender<Job>,
    bell: UnixDatagram,
    is_open_to_all: bool,
}

/// Makes both sides of the bridge. `knock` is the socket that wakes the intake thread; `series_max`
/// bounds the series of one user.
pub(crate) fn bridge(
    knock: &Path,
    is_open_to_all: bool,
    series_max: usize,
) -> std::io::Result<(BridgeDoor, Bridge)> {
    let (sender, jobs) = sync_channel(WAITING_MAX);
    let door = BridgeDoor {
        jobs: sender,
        bell: bell(knock)?,
        is_open_to_all,
    };
    Ok((door, Bridge::new(jobs, series_max)))
}

impl Ingest for BridgeDoor {
    #[expect(
        clippy::disallowed_methods,
        reason = "a sender's thread waits for the intake"
    )]
    fn ingest(&self, request: IngestRequest) -> Result<IngestResult, IngestFault> {
        let ours = rustix::process::getuid().as_raw();
        if !self.is_open_to_all && request.uid != ours {
            return Err(IngestFault::Refused(
                "this agent takes what its own user writes: [applications] users says whose".into(),
            ));
        }
        let (reply, answer) = sync_channel(1);
        let busy = |message: &str| IngestFault::Busy(message.into());
        self.jobs
            .try_send(Job { request, reply })
            .map_err(|e| match e {
                TrySendError::Full(_) => busy("too many writes wait: try again"),
                TrySendError::Disconnected(_) => busy("the agent is stopping"),
            })?;
        let _ = self.bell.send(&[]);
        let accepted = answer.recv_timeout(ANSWER_WAIT);
        let accepted =
            accepted.map_err(|_| busy("the agent did not look in time: try again"))??;
        let is_safe = accepted
            .wait
            .is_none_or(|(journal, position)| journal.wait_durable(position, DISK_WAIT));
        match is_safe {
            true => Ok(accepted.ingested),
            false => Err(busy(
                "it is taken in, but not known to be on disk: the archive is behind, or has no room",
            )),
        }
    }
}

/// A user that writes.
#[derive(Default)]
struct User {
    name: String,
    sources: BTreeMap<(ScopeReader, Arc<PointSource>), BridgedSource>,
    /// Number of series of all sources.
    series: usize,
}

/// The intake thread's side of the bridge.
pub(crate) struct Bridge {
    jobs: Receiver<Job>,
    series_max: usize,
    users: BTreeMap<u32, User>,
    taken: TakenSeries,
    /// Number of sources made so far, which numbers the next one.
    sources: u64,
    /// Readers whose documents have to be written.
    changed: BTreeSet<ScopeReader>,
    next_sweep_ns: i64,
    /// The request that is partly taken.
    hand: Option<Hand>,
    /// Requests whose scopes are being opened.
    held: Vec<Hand>,
    has_more: bool,
}

impl Bridge {
    fn new(jobs: Receiver<Job>, series_max: usize) -> Self {
        Self {
            jobs,
            series_max,
            users: BTreeMap::new(),
            taken: TakenSeries::new(),
            sources: 0,
            changed: BTreeSet::new(),
            next_sweep_ns: i64::MIN,
            hand: None,
            held: Vec::new(),
            has_more: false,
        }
    }

    /// Takes waiting requests, up to as many points as fit in one round. Returns the readers whose
    /// publications have changed.
    pub(crate) fn attend(
        &mut self,
        round: &mut IntakeRound<'_, '_>,
        rates: &mut RecordRates,
    ) -> BTreeSet<ScopeReader> {
        let mut room = ROUND_POINTS_MAX;
        for _ in 0..WAITING_MAX {
            // Requests are taken one after the other, so that they keep their order.
            let hand = self.hand.take().or_else(|| self.next_held(round));
            let Some(mut hand) = hand.or_else(|| self.begin(round, rates)) else {
                break;
            };
            match self.go_on(&mut hand, &mut room, round) {
                Ok(()) if hand.points.len() > 0 => {
                    self.hand = Some(hand);
                    break;
                }
                Ok(()) => hand.answer(),
                // The requester may have gone.
                Err(fault) => drop(hand.reply.try_send(Err(fault))),
            }
            if room == 0 {
                break;
            }
        }
        self.has_more = room == 0;
        if round.monotonic_ns >= self.next_sweep_ns {
            self.next_sweep_ns = round.monotonic_ns.saturating_add(SWEEP_EVERY_NS);
            self.sweep(round);
        }
        std::mem::take(&mut self.changed)
    }

    /// Whether the last round stopped at its bound, so that there may be more to take.
    pub(crate) fn has_more(&self) -> bool {
        self.has_more
    }

    /// The rows of bridged publications for these readers. Each user has an equal part of the
    /// document.
    pub(crate) fn rows(&self, reader: ScopeReader) -> impl Iterator<Item = Json> {
        let of_user_max = ROWS_MAX / self.users.len().max(1);
        self.users.values().flat_map(move |user| {
            let sources = user.sources.values();
            let of_reader = sources.filter(move |source| source.reader() == reader);
            let left_out = of_reader.clone().count().saturating_sub(of_user_max);
            of_reader.take(of_user_max).map(move |source| {
                let mut row = source.row();
                row["left_out"] = left_out.into();
                row
            })
        })
    }

    /// The oldest request that has waited for a scope and need not any more.
    fn next_held(&mut self, round: &mut IntakeRound<'_, '_>) -> Option<Hand> {
        let mut held = self.held.iter();
        let at = held.position(|hand| !round.scopes.is_opening(hand.reader))?;
        Some(self.held.remove(at))
    }

    /// Begins with the next request that may be taken.
    fn begin(&mut self, round: &mut IntakeRound<'_, '_>, rates: &mut RecordRates) -> Option<Hand> {
        for _ in 0..WAITING_MAX {
            let Job { request, reply } = self.jobs.try_recv().ok()?;
            // A request is taken as a whole if the user's rate allows anything; the excess is
            // counted against the time after it.
            if rates.allowed(request.uid, round.monotonic_ns) > 0 {
                rates.used(request.uid, request.points.len() as u64);
                let hand = Hand::of(request, reply, round.now_ns);
                // A request stays behind earlier ones of its user.
                let is_behind = self.held.iter().any(|held| held.uid == hand.uid);
                if !is_behind && !round.scopes.is_opening(hand.reader) {
                    return Some(hand);
                }
                if self.held.len() < WAITING_MAX {
                    self.held.push(hand);
                } else {
                    hand.refuse("too many writes wait for a scope: try again");
                }
                continue;
            }
            let message = "more values than [applications] rate_max: try again";
            let _ = reply.try_send(Err(IngestFault::Busy(message.into())));
        }
        None
    }

    /// Takes points of a request while there is room.
    fn go_on(
        &mut self,
        hand: &mut Hand,
        room: &mut usize,
        round: &mut IntakeRound<'_, '_>,
    ) -> Result<(), IngestFault> {
        let (owner, reader) = (ScopeReader::User(hand.uid), hand.reader);
        // This is checked before anything is taken, so that the whole request can be sent again.
        let trouble = match round.scopes.of(reader) {
            Some(scope) => scope.trouble(),
            None => Some("there is no place for this user: see the agent's log".to_owned()),
        };
        if let Some(trouble) = trouble {
            return Err(IngestFault::Busy(format!(
                "what this user writes cannot be kept now, try again: {trouble}"
            )));
        }
        let is_known = self.users.contains_key(&hand.uid);
        if !is_known && self.users.len() >= USERS_MAX {
            return Err(IngestFault::Busy(format!(
                "more than {USERS_MAX} users write: try again"
            )));
        }
        let user = self.users.entry(hand.uid).or_insert_with(|| User {
            name: user_name(hand.uid),
            ..User::default()
        });
        let mut left = self.series_max.saturating_sub(user.series);
        let before = left;
        let mut taking = Taking {
            sources: &mut user.sources,
            whose: SourceOwner {
                user: &user.name,
                reader,
                owner,
            },
            allowance: SeriesAllowance {
                taken: &mut self.taken,
                series: &mut left,
            },
            made: &mut self.sources,
        };
        // All points of a request have the time at which it was begun, however many rounds it
        // takes.
        let now_ns = std::mem::replace(&mut round.now_ns, hand.now_ns);
        taking.some(hand, room, round);
        round.now_ns = now_ns;
        taking.tell_loss(round);
        user.series = user.series + before - left;
        self.changed.insert(reader);
        // Losses are recorded in the owner's scope, which may be another one and is not waited for.
        let scope = round.scopes.of(reader);
        // A request that is sent again waits for the values that its first sending has left.
        let position = scope.and_then(|scope| {
            scope.finish();
            Some((scope.newest_position()?, scope.journal()?))
        });
        if let Some((position, journal)) = position {
            // This position is not before those of earlier rounds.
            hand.wait = Some((journal, position));
        }
        Ok(())
    }

    /// Ends series and sources that have been idle for long.
    fn sweep(&mut self, round: &mut IntakeRound<'_, '_>) {
        for user in self.users.values_mut() {
            for source in user.sources.values_mut() {
                let ended = source.retire_idle(IDLE_NS, round, &mut self.taken);
                user.series = user.series.saturating_sub(ended);
                if ended > 0 {
                    self.changed.insert(source.reader());
                }
            }
            let over: Vec<_> = user
                .sources
                .extract_if(.., |_, source| source.is_over(IDLE_NS, round.monotonic_ns))
                .collect();
            for ((reader, _), source) in over {
                self.changed.insert(reader);
                source.end(round);
            }
        }
        self.users.retain(|_, user| !user.sources.is_empty());
    }
}

/// A request that is being taken.
struct Hand {
    uid: u32,
    reader: ScopeReader,
    /// Time at which the request was begun.
    now_ns: i64,
    before: BTreeMap<Arc<PointSource>, RefusedPoints>,
    /// The points in order of time.
    points: std::vec::IntoIter<Point>,
    ingested: IngestResult,
    /// Places in the request of which something was refused.
    refused: HashSet<u32>,
    wait: Option<(Journal, JournalPosition)>,
    reply: SyncSender<Result<Accepted, IngestFault>>,
}

impl Hand {
    fn of(
        mut request: IngestRequest,
        reply: SyncSender<Result<Accepted, IngestFault>>,
        now_ns: i64,
    ) -> Self {
        // The lines of one request may be in any order of time.
        let points = &mut request.points;
        points.sort_by_key(|point| point.ts.unwrap_or(now_ns));
        Self {
            uid: request.uid,
            reader: match request.readers {
                PublicationReaders::All => ScopeReader::All,
                PublicationReaders::Owner | PublicationReaders::Group => {
                    ScopeReader::User(request.uid)
                }
            },
            now_ns,
            before: request.refused,
            points: request.points.into_iter(),
            ingested: IngestResult::default(),
            refused: HashSet::new(),
            wait: None,
            reply,
        }
    }

    /// Answers that the request has to be sent again.
    fn refuse(self, message: &str) {
        // The requester may have gone.
        let _ = self.reply.try_send(Err(IngestFault::Busy(message.into())));
    }

    /// Answers a request that is taken as a whole; the requester then waits for the disk.
    fn answer(self) {
        let accepted = Accepted {
            ingested: IngestResult {
                refused: self.refused.len() as u64,
                ..self.ingested
            },
            wait: self.wait,
        };
        // The requester may have gone.
        let _ = self.reply.try_send(Ok(accepted));
    }
}

/// A request that is being distributed to a user's sources.
struct Taking<'a> {
    sources: &'a mut BTreeMap<(ScopeReader, Arc<PointSource>), BridgedSource>,
    whose: SourceOwner<'a>,
    allowance: SeriesAllowance<'a>,
    made: &'a mut u64,
}

impl Taking<'_> {
    fn some(&mut self, hand: &mut Hand, room: &mut usize, round: &mut IntakeRound<'_, '_>) {
        for (source, RefusedPoints { count, reason }) in std::mem::take(&mut hand.before) {
            // Refusals of a source that cannot be named are counted at the protocol's nameless
            // source.
            if self
                .with(&source, round, |bridged, _, _| {
                    bridged.refuse(count, &reason)
                })
                .is_err()
            {
                let _ = self.with(&source.protocol.nobody(), round, |bridged, _, _| {
                    bridged.refuse(count, &reason);
                });
            }
        }
        for point in hand.points.by_ref().take(*room) {
            *room -= 1;
            let (place, source) = (point.place, Arc::clone(&point.origin.source));
            let taken = self.with(&source, round, |bridged, round, allowance| {
                bridged.take(point, round, allowance)
            });
            let reason = match taken {
                Ok(Ok(())) => {
                    hand.ingested.taken += 1;
                    continue;
                }
                Ok(Err(reason)) => reason,
                Err(reason) => {
                    let _ = self.with(&source.protocol.nobody(), round, |bridged, _, _| {
                        bridged.refuse(1, &reason);
                    });
                    reason
                }
            };
            if hand.refused.insert(place) && hand.ingested.refusals.len() < REFUSALS_MAX {
                let reason = format!("{}: {reason}", source.name);
                hand.ingested.refusals.push(PointRefusal { place, reason });
            }
        }
    }

    /// Calls `act` with a source, which is made if needed.
    fn with<T>(
        &mut self,
        source: &Arc<PointSource>,
        round: &mut IntakeRound<'_, '_>,
        act: impl FnOnce(&mut BridgedSource, &mut IntakeRound<'_, '_>, &mut SeriesAllowance<'_>) -> T,
    ) -> Result<T, String> {
        let is_full = self.sources.len() >= SOURCES_MAX;
        let bridged = match self.sources.entry((self.whose.reader, Arc::clone(source))) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(_) if is_full && *source != source.protocol.nobody() => {
                return Err(format!("its user has {SOURCES_MAX} sources already"));
            }
            Entry::Vacant(place) => {
                let id = format!("bridge-{}", *self.made);
                let made = BridgedSource::new(id, source, &self.whose, round)?;
                *self.made += 1;
                place.insert(made)
            }
        };
        Ok(act(bridged, round, &mut self.allowance))
    }

    fn tell_loss(self, round: &mut IntakeRound<'_, '_>) {
        for source in self.sources.values_mut() {
            source.tell_loss(round);
        }
    }
}

#[cfg(test)]
mod tests;
