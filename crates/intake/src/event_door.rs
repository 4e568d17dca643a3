//! The door for file events: collectors hand over samples of the streams of their sources, and the
//! intake thread, which owns the scopes, appends them.
//!
//! A collector keeps few bytes on the way, so that the journal has room for them, and acknowledges
//! upstream what is on disk. So nothing is lost that its source still has.

use std::collections::BTreeMap;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use barograph_archive::{Journal, JournalPosition};
use barograph_bridge::IngestFault;
use barograph_model::{Descriptor, Sample, StreamKey};
use barograph_stream::ScopeReader;

use crate::door::bell;
use crate::process::IntakeRound;

/// Batches that wait for the intake thread; a further one is refused as busy.
const WAITING_MAX: usize = 64;
/// Most samples that are appended between two looks at the rings of processes.
const ROUND_SAMPLES_MAX: usize = 8_192;
/// Longest wait of a collector for the intake thread.
const ANSWER_WAIT: Duration = Duration::from_secs(5);

/// The stream of a source of events, and who may read it.
#[derive(Clone, Debug)]
pub struct EventSource {
    /// The stream.
    pub descriptor: Descriptor,
    /// Most bytes of an event.
    pub value_bytes_max: u32,
    /// The readers of the stream.
    pub reader: ScopeReader,
    /// The user to whom the source is counted.
    pub user: String,
}

/// Where a batch has gone.
#[derive(Clone, Debug)]
pub struct EventsRecorded {
    /// The journal and the position of the batch in it; `None` if no history is kept.
    pub position: Option<(Journal, JournalPosition)>,
    /// Directory of the archive with the history of the source.
    pub archive: Option<PathBuf>,
}

impl EventsRecorded {
    /// Waits until the batch is on disk, at most so long. `Ok(false)` means that it is not yet.
    ///
    /// # Errors
    ///
    /// The journal had no room for the batch: hand it over again.
    pub fn wait_durable(&self, timeout: Duration) -> Result<bool, BatchLost> {
        let Some((journal, position)) = &self.position else {
            return Ok(true);
        };
        match journal.wait_durable(*position, timeout) {
            true => Ok(true),
            false if journal.is_lost(*position) => Err(BatchLost),
            false => Ok(false),
        }
    }
}

/// The journal had no room for a batch, or for a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the archive had no room for events: they are handed over again")]
pub struct BatchLost;

/// A batch on its way to the intake thread.
struct Job {
    source: Arc<EventSource>,
    samples: Vec<Sample>,
    is_last: bool,
    reply: SyncSender<Result<EventsRecorded, IngestFault>>,
}

/// The collectors' side of the door.
#[derive(Debug)]
pub struct EventDoor {
    jobs: SyncSender<Job>,
    bell: UnixDatagram,
}

/// Makes both sides of the door. `knock` is the socket that wakes the intake thread.
pub(crate) fn event_door(knock: &Path) -> std::io::Result<(EventDoor, EventStreams)> {
    let (sender, jobs) = sync_channel(WAITING_MAX);
    let door = EventDoor {
        jobs: sender,
        bell: bell(knock)?,
    };
    let streams = EventStreams {
        jobs,
        keys: BTreeMap::new(),
        hand: None,
        has_more: false,
    };
    Ok((door, streams))
}

impl EventDoor {
    /// Hands over samples of a source, in order; without samples it only opens the source's stream,
    /// as soon as its history can be read.
    /// They are in the stream when this returns, and on disk later.
    ///
    /// # Errors
    ///
    /// The intake is busy, or cannot keep events now: hand them over again.
    pub fn record(
        &self,
        source: &Arc<EventSource>,
        samples: Vec<Sample>,
    ) -> Result<EventsRecorded, IngestFault> {
        self.pass(source, samples, false)
    }

    /// Ends the stream of a source.
    pub fn end(&self, source: &Arc<EventSource>) {
        // Without an intake the stream has ended already.
        let _ = self.pass(source, Vec::new(), true);
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "a collector's thread waits for the intake"
    )]
    fn pass(
        &self,
        source: &Arc<EventSource>,
        samples: Vec<Sample>,
        is_last: bool,
    ) -> Result<EventsRecorded, IngestFault> {
        let busy = |message: &str| IngestFault::Busy(message.into());
        let (reply, answer) = sync_channel(1);
        let source = Arc::clone(source);
        let job = Job {
            source,
            samples,
            is_last,
            reply,
        };
        self.jobs.try_send(job).map_err(|error| match error {
            TrySendError::Full(_) => busy("too many batches of events wait"),
            TrySendError::Disconnected(_) => busy("the agent is stopping"),
        })?;
        let _ = self.bell.send(&[]);
        let answer = answer.recv_timeout(ANSWER_WAIT);
        answer.map_err(|_| busy("the intake did not look in time"))?
    }
}

/// The intake thread's side: the streams of sources.
pub(crate) struct EventStreams {
    jobs: Receiver<Job>,
    /// The streams by reader and series.
    keys: BTreeMap<(ScopeReader, [u8; 16]), StreamKey>,
    /// The batch that waits for its scope, or is partly taken.
    hand: Option<Job>,
    has_more: bool,
}

impl EventStreams {
    /// Appends what has been handed over, as much as fits in one round.
    pub(crate) fn attend(&mut self, round: &mut IntakeRound<'_, '_>) {
        let mut room = ROUND_SAMPLES_MAX;
        self.has_more = false;
        for _ in 0..WAITING_MAX {
            let Some(job) = self.hand.take().or_else(|| self.jobs.try_recv().ok()) else {
                return;
            };
            // Batches are taken in order, so that a source keeps its own.
            if round.scopes.is_opening(job.source.reader) {
                self.hand = Some(job);
                return;
            }
            room = room.saturating_sub(job.samples.len());
            let recorded = self.take(&job, round);
            // The collector may have gone.
            let _ = job.reply.try_send(recorded);
            if room == 0 {
                self.has_more = true;
                return;
            }
        }
    }

    /// Whether the last round stopped at its bound, so that there may be more to take.
    pub(crate) fn has_more(&self) -> bool {
        self.has_more
    }

    fn take(
        &mut self,
        job: &Job,
        round: &mut IntakeRound<'_, '_>,
    ) -> Result<EventsRecorded, IngestFault> {
        let source = &job.source;
        let busy = IngestFault::Busy;
        let scope = round.scopes.of(source.reader);
        let scope = scope.ok_or_else(|| busy("its scope cannot be opened: see the log".into()))?;
        if let Some(trouble) = scope.trouble().filter(|_| !job.is_last) {
            return Err(busy(format!("events cannot be kept now: {trouble}")));
        }
        // A source goes on after the last event of its history.
        let is_first = job.samples.is_empty() && !job.is_last;
        if is_first && scope.journal().is_some() && scope.archive_dir().is_none() {
            return Err(busy("its history is being opened".into()));
        }
        let place = (source.reader, source.descriptor.series_id().0);
        if job.is_last {
            if let Some(key) = self.keys.remove(&place) {
                scope.retire(key);
            }
        } else {
            let key = match self.keys.get(&place) {
                Some(key) => *key,
                None => {
                    let declared =
                        scope.declare(&source.descriptor, source.value_bytes_max, &source.user);
                    let key = declared.map_err(|why| busy(why.to_string()))?;
                    self.keys.insert(place, key);
                    key
                }
            };
            for sample in &job.samples {
                scope.append(key, sample, None);
            }
        }
        scope.finish();
        let position = scope.newest_position();
        Ok(EventsRecorded {
            position: scope.journal().zip(position),
            archive: scope.archive_dir(),
        })
    }
}
