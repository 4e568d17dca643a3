//! The records and losses that one look has found in a process's rings, in the order of time.
//!
//! A program may put one value from several threads, each of which has a ring: taken ring after
//! ring, the times of its stream would jump back. So all records of a look are collected first;
//! those of one ring keep their order.

use std::collections::BTreeMap;

use barograph_archive::RingMark;
use barograph_model::{NS_PER_S, Quality, Sample, StreamKey, Value};
use barograph_stream::StreamError;
use barograph_stream::ingest::{DrainResult, IngestRecord, RecordPayload};

use super::records::{RecordPlace, RecordTimes, in_order, place};
use super::{IntakeRound, PublishingProcess};
use crate::ledger::LossCause;
use crate::taken::DROPPED_RING;
use barograph_stream::ScopeReader;

/// A counter that begins anew is recorded as 0 at most this long before its first value.
const ZERO_BEFORE_NS_MAX: i64 = 60 * NS_PER_S;

/// Most takes whose memory is kept from look to look; a larger buffer is freed.
const KEPT_TAKES: usize = 1 << 14;

/// The takes of one look; the buffer is used by all looks, one after the other.
#[derive(Default)]
pub(crate) struct TakeBuffer(Vec<Take>);

impl TakeBuffer {
    fn lend(&mut self) -> Vec<Take> {
        std::mem::take(&mut self.0)
    }

    fn give_back(&mut self, mut takes: Vec<Take>) {
        takes.clear();
        if takes.capacity() <= KEPT_TAKES {
            self.0 = takes;
        }
    }
}

/// One record or loss.
struct Take {
    ts: i64,
    ring: u32,
    /// Position in the ring after it.
    next: u64,
    what: TakeKind,
}

enum TakeKind {
    /// A value or a frame: `series` is its number among values or publications, and the value of a
    /// frame is its number.
    Put {
        publication: usize,
        series: u32,
        key: StreamKey,
        value: Value,
        is_frame: bool,
    },
    Lost(LossCause, u64),
}

/// Successive losses of one ring that have the same cause.
struct LostRun {
    next: u64,
    cause: LossCause,
    count: u64,
}

impl PublishingProcess {
    /// Takes in the records of the rings, at most about `records_max`.
    pub(super) fn drain(
        &mut self,
        round: &mut IntakeRound<'_, '_>,
        records_max: u64,
    ) -> Result<DrainResult, StreamError> {
        let mut times = RecordTimes::new(&self.file, round.timing, round.now_ns);
        let (mut takes, mut answers) = (round.takes.lend(), Vec::new());
        let (publications, targets, reached) =
            (&self.publications, &self.targets, &mut self.reached);
        let drained = self
            .file
            .drain_all(records_max, &mut |record: IngestRecord<'_>| {
                let at = record.ring as usize;
                let (ring, next) = (record.ring, record.next);
                // A loss has no time of its own: it gets that of the record before it.
                let mut lose = |reached: &mut Vec<i64>, cause, count| {
                    takes.push(Take {
                        ts: in_order(reached, at, i64::MIN, false),
                        ring,
                        next,
                        what: TakeKind::Lost(cause, count),
                    });
                };
                match record.payload {
                    RecordPayload::Ack { id, status } => {
                        let _ = in_order(reached, at, times.of(record.time), false);
                        answers.push((id, status));
                    }
                    RecordPayload::Missed(count) => lose(reached, LossCause::Missed, count),
                    RecordPayload::Damaged => lose(reached, LossCause::Damaged, 1),
                    payload => {
                        let is_frame = matches!(payload, RecordPayload::Frame(_));
                        let ts = in_order(reached, at, times.of(record.time), is_frame);
                        match place(&record, publications, targets) {
                            RecordPlace::Refused => lose(reached, LossCause::Refused, 1),
                            RecordPlace::None => lose(reached, LossCause::Damaged, 1),
                            RecordPlace::At(publication, key, value) => takes.push(Take {
                                ts,
                                ring,
                                next,
                                what: TakeKind::Put {
                                    publication,
                                    series: record.series,
                                    key,
                                    value,
                                    is_frame,
                                },
                            }),
                        }
                    }
                }
            });
        let error_ns = times.error_ns;
        self.note_answers(&answers);
        self.note_dropped(&mut takes);
        let is_empty = takes.is_empty() && answers.is_empty();
        self.apply(&mut takes, round);
        round.takes.give_back(takes);
        if !is_empty {
            self.hand_over(round, error_ns);
        }
        drained
    }

    /// Adds the values that the program dropped since they were last counted, in whichever life of
    /// the agent.
    fn note_dropped(&mut self, takes: &mut Vec<Take>) {
        self.counts.dropped = self.file.dropped();
        let told = self.dropped_told;
        let told = told.max(self.taken.dropped(self.loss_reader()));
        self.dropped_told = self.counts.dropped.max(told);
        if self.dropped_told > told {
            takes.push(Take {
                ts: i64::MAX,
                ring: DROPPED_RING,
                next: self.dropped_told,
                what: TakeKind::Lost(LossCause::Dropped, self.dropped_told - told),
            });
        }
    }

    /// The readers whose scope records the process's losses: those of its first publication, who
    /// see its counts anyway. Its rings are read from the position that this scope's archive has.
    pub(super) fn loss_reader(&self) -> ScopeReader {
        let mut kept = self.publications.iter().filter(|p| p.identity.is_some());
        kept.next()
            .map_or(self.owner, |publication| publication.reader)
    }

    fn apply(&mut self, takes: &mut Vec<Take>, round: &mut IntakeRound<'_, '_>) {
        if takes.iter().any(|take| take.ring != takes[0].ring) {
            takes.sort_by_key(|take| take.ts);
        }
        let mut lost: BTreeMap<u32, LostRun> = BTreeMap::new();
        let loss_reader = self.loss_reader();
        for take in takes.drain(..) {
            let Take {
                ts,
                ring,
                next,
                what,
            } = take;
            match what {
                TakeKind::Lost(cause, count) => {
                    if self.taken.has(loss_reader, ring, next) {
                        continue;
                    }
                    self.count_lost(cause, count);
                    match lost.get_mut(&ring) {
                        Some(run) if run.cause == cause => {
                            run.count = run.count.saturating_add(count);
                            run.next = next;
                        }
                        _ => {
                            let run = LostRun { next, cause, count };
                            if let Some(before) = lost.insert(ring, run) {
                                self.tell_lost(ring, &before, round);
                            }
                        }
                    }
                }
                TakeKind::Put {
                    publication,
                    series,
                    key,
                    value,
                    is_frame,
                } => {
                    let reader = self.publications[publication].reader;
                    if self.taken.has(reader, ring, next) {
                        continue;
                    }
                    // In the archive, a loss stands before the record that follows it.
                    if let Some(run) = lost.remove(&ring) {
                        self.tell_lost(ring, &run, round);
                    }
                    self.note_put(ring, (publication, series), ts, &value, is_frame);
                    let mark = self.mark(ring, next);
                    let zero = (!is_frame).then(|| self.zero(series, ts, &value)).flatten();
                    if let Some(scope) = round.scopes.of(reader) {
                        if let Some(zero) = zero {
                            scope.append(key, &zero, None);
                        }
                        scope.append(key, &Sample::measured(ts, value), Some(mark));
                    } else if !is_frame {
                        round.lose(1);
                    }
                }
            }
        }
        for (ring, run) in lost {
            self.tell_lost(ring, &run, round);
        }
    }

    /// The sample before the first value of a counter whose series another process had: 0 at the
    /// beginning of the process, which shows that the counter does not continue.
    fn zero(&mut self, series: u32, ts: i64, first: &Value) -> Option<Sample> {
        let target = self.targets.get_mut(series as usize)?;
        if !std::mem::take(&mut target.begins_anew) {
            return None;
        }
        let began_ns = self.file.created_ns().min(ts.saturating_sub(1));
        // A file may claim any time as its beginning.
        let began_ns = began_ns.max(ts.saturating_sub(ZERO_BEFORE_NS_MAX));
        Some(Sample {
            ts: began_ns,
            value: match first {
                Value::Float(_) => Value::Float(0.0),
                _ => Value::Int(0),
            },
            quality: Quality::Derived,
            error: 0.0,
        })
    }

    fn note_put(
        &mut self,
        ring: u32,
        (publication, series): (usize, u32),
        ts: i64,
        value: &Value,
        is_frame: bool,
    ) {
        self.newest_ns = self.newest_ns.max(ts);
        if is_frame {
            self.counts.frames += 1;
            if let Value::Int(number) = value {
                let number = *number as u64;
                let publication_of = &mut self.publications[publication];
                publication_of.newest_frame = Some(number);
                if let Some(volume) = &publication_of.volume {
                    self.phases.frame(ring, publication, volume, number);
                } else if publication_of.map.is_some() {
                    self.maps.frame(ring, publication);
                }
            }
            return;
        }
        self.counts.values += 1;
        let publication_of = &self.publications[publication];
        if (publication_of.volume.is_some() || publication_of.map.is_some())
            && let Some(target) = self.targets.get(series as usize)
        {
            let [name, ..] = &target.texts;
            match publication_of.volume {
                Some(_) => self.phases.value(ring, publication, name, value),
                None => self.maps.value(ring, publication, name, value),
            }
        }
        self.offers.note(series, ts, value);
        if let (Value::Text(text), Some(of)) = (value, self.targets.get(series as usize)) {
            self.counts.cut += u64::from(text.len() > of.bytes_max as usize);
        }
    }

    fn count_lost(&mut self, cause: LossCause, count: u64) {
        match cause {
            LossCause::Missed => self.counts.missed += count,
            LossCause::Refused | LossCause::Damaged => self.counts.damaged += count,
            // This count is read from the file.
            LossCause::Dropped => {}
        }
    }

    /// Records a run of losses of one ring.
    fn tell_lost(&self, ring: u32, run: &LostRun, round: &mut IntakeRound<'_, '_>) {
        let mark = self.mark(ring, run.next);
        let mut names = self.publications.iter();
        let publication = names.find_map(|p| Some(p.identity.as_ref()?.name()));
        if let Some(scope) = round.scopes.of(self.loss_reader()) {
            let name = publication.unwrap_or_default();
            scope.lose(run.cause, name, &self.user, run.count, Some(mark));
        } else {
            round.lose(run.count);
        }
    }

    pub(super) fn mark(&self, ring: u32, position: u64) -> RingMark {
        RingMark {
            incarnation: self.file.incarnation(),
            ring,
            position,
        }
    }
}
