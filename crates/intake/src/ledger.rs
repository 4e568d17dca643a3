//! The losses of a scope: how many values were put and are not recorded, by cause, publication and
//! user, since the scope's archive began. They are streams of the scope, `app.process.loss.count`.
//!
//! A loss is a sample of such a stream, with the mark up to which the ring was read for it. So the
//! archive has both the count and what follows it in the ring, or neither, at whatever moment an
//! agent is killed; the next agent continues from the newest count that it finds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use barograph_model::{
    Clock, Descriptor, Kind, Labels, NS_PER_S, Name, Past as _, PastRequest, Quality, Sample, Span,
    StreamKey, Unit, Value, ValueType, text_start, unbounded,
};
use barograph_query::{PastReader, ScopeChoice};
use barograph_stream::RunDir;
use barograph_stream::ingest::LOSS_STREAM;
use tracing::warn;

/// Most pairs of publication and user in a scope that have their own counts; the losses of others
/// are summed under `(others)`.
pub(crate) const LOSS_OWNERS_MAX: usize = 64;
/// Label of publication and user for all losses beyond [`LOSS_OWNERS_MAX`].
const OTHERS: &str = "(others)";
/// Most streams of losses in a scope: one per cause for each pair and for the others. They do not
/// count towards the scope's bound of streams.
pub(crate) const LOSS_STREAMS_MAX: u32 = (LOSS_OWNERS_MAX as u32 + 1) * LossCause::ALL.len() as u32;
/// A count is appended again after this time, so that it stays in the archive at least as long as
/// the samples that it is about.
const REPEAT_NS: i64 = 3_600 * NS_PER_S;
/// Most bytes of a publication's name in the label.
const NAME_BYTES_MAX: usize = 64;

/// The reason why a value is not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum LossCause {
    /// The value was overwritten in the ring before it was read.
    Missed,
    /// The program dropped it: its ring was full, or its thread had none.
    Dropped,
    /// The value belongs to a declaration that was refused.
    Refused,
    /// The value is malformed, of another type, or longer than declared.
    Damaged,
}

impl LossCause {
    const ALL: [Self; 4] = [Self::Missed, Self::Dropped, Self::Refused, Self::Damaged];

    fn as_str(self) -> &'static str {
        match self {
            Self::Missed => "missed",
            Self::Dropped => "dropped",
            Self::Refused => "refused",
            Self::Damaged => "damaged",
        }
    }

    fn of(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| cause.as_str() == text)
    }
}

/// Cause, publication, user.
type LossKey = (LossCause, Box<str>, Box<str>);

#[derive(Default)]
struct LossRow {
    count: u64,
    stream: Option<StreamKey>,
    told_ns: i64,
}

/// The losses of a scope.
#[derive(Default)]
pub(crate) struct LossLedger {
    rows: BTreeMap<LossKey, LossRow>,
    /// Pairs of publication and user that have their own counts.
    owners: BTreeSet<(Box<str>, Box<str>)>,
}

/// A count to append; with the descriptor of its stream if the stream has to be declared first.
pub(crate) struct LossSample<'l> {
    pub stream: &'l mut Option<StreamKey>,
    pub descriptor: Option<Descriptor>,
    pub sample: Sample,
}

impl LossLedger {
    /// Counts lost values; returns the count to append.
    pub(crate) fn lose(
        &mut self,
        cause: LossCause,
        publication: &str,
        user: &str,
        count: u64,
        now_ns: i64,
    ) -> LossSample<'_> {
        let key = self.key(cause, publication, user);
        let row = self.rows.entry(key.clone()).or_default();
        row.count = row.count.saturating_add(count);
        row.tell(&key, now_ns)
    }

    /// Counts that have to be appended again, for example those of an archive that was just opened.
    pub(crate) fn due(&mut self, now_ns: i64) -> impl Iterator<Item = LossSample<'_>> {
        let due = self.rows.iter_mut();
        let due = due.filter(move |(_, row)| now_ns.abs_diff(row.told_ns) >= REPEAT_NS as u64);
        due.map(move |(key, row)| row.tell(key, now_ns))
    }

    /// Adds the counts of earlier lives of the agent, which may have been read only now.
    pub(crate) fn add_past(&mut self, losses: Vec<PastLoss>) {
        for loss in losses {
            // The time matters only for counts that this life has too: the clock may have been set
            // back since the earlier life.
            let is_counted = self.rows.contains_key(&loss.key);
            let count = if is_counted {
                loss.count_before
            } else {
                loss.count
            };
            let (cause, publication, user) = &loss.key;
            let key = self.key(*cause, publication, user);
            let row = self.rows.entry(key).or_default();
            row.count = row.count.saturating_add(count);
            row.told_ns = i64::MIN;
        }
    }

    /// The key under which a loss is counted. The caller makes the row if there is none.
    fn key(&mut self, cause: LossCause, publication: &str, user: &str) -> LossKey {
        let publication = text_start(publication, NAME_BYTES_MAX);
        let key: LossKey = (cause, publication.into(), user.into());
        // The sum of the others has a row of its own: found in an archive, it must not take the
        // place of a pair.
        if self.rows.contains_key(&key) || (publication, user) == (OTHERS, OTHERS) {
            return key;
        }
        let owner = (key.1.clone(), key.2.clone());
        if !self.owners.contains(&owner) {
            if self.owners.len() >= LOSS_OWNERS_MAX {
                return (cause, OTHERS.into(), OTHERS.into());
            }
            self.owners.insert(owner);
        }
        key
    }
}

impl LossRow {
    fn tell(&mut self, key: &LossKey, now_ns: i64) -> LossSample<'_> {
        self.told_ns = now_ns;
        let is_new = self.stream.is_none();
        LossSample {
            descriptor: is_new.then(|| descriptor(key)).flatten(),
            sample: Sample {
                ts: now_ns,
                value: Value::Int(i64::try_from(self.count).unwrap_or(i64::MAX)),
                quality: Quality::Measured,
                error: 0.0,
            },
            stream: &mut self.stream,
        }
    }
}

fn descriptor((cause, publication, user): &LossKey) -> Option<Descriptor> {
    let labels = [
        ("cause", cause.as_str()),
        ("publication", publication),
        ("user", user),
    ];
    Some(Descriptor {
        name: Name::new(LOSS_STREAM).ok()?,
        labels: Labels::new(labels).ok()?,
        value_type: ValueType::Int,
        unit: Unit::new("count").ok()?,
        kind: Kind::Counter,
        help: "Values that were put and lost since the archive began.".into(),
    })
}

/// A count in the archive, which may already contain counts of the present life of the scope.
pub(crate) struct PastLoss {
    key: LossKey,
    /// The newest count.
    count: u64,
    /// The newest count from before the present life; 0 if there is none.
    count_before: u64,
}

impl PastLoss {
    /// Reads the counts of a scope whose present life began at `since_ns`. If that fails, there are
    /// none and a warning is logged.
    pub(crate) fn read(
        run_dir: &RunDir,
        node: &str,
        clock: &Arc<dyn Clock>,
        since_ns: i64,
    ) -> Vec<Self> {
        let read = past_losses(run_dir, node, clock, since_ns);
        read.unwrap_or_else(|error| {
            warn!(error, "what was lost before this start is not counted on");
            Vec::new()
        })
    }
}

fn past_losses(
    run_dir: &RunDir,
    node: &str,
    clock: &Arc<dyn Clock>,
    since_ns: i64,
) -> Result<Vec<PastLoss>, String> {
    let wanted = |of: &str, d: &Descriptor| of == node && d.name.as_str() == LOSS_STREAM;
    let cancel = AtomicBool::new(false);
    let reader = PastReader::open(run_dir, ScopeChoice::None, Arc::clone(clock));
    let reader = reader.map_err(|error| error.to_string())?;
    let request = PastRequest {
        wanted: &wanted,
        span: Span::ALL,
        samples_max: 0,
        holds: &unbounded,
        cancel: &cancel,
    };
    let series = reader.series(&request).map_err(|e| e.to_string())?;
    let mut found = Vec::new();
    for known in series {
        let labels = &known.descriptor.labels;
        let label = |name| labels.get(name).unwrap_or_default();
        let Some(cause) = LossCause::of(label("cause")) else {
            continue;
        };
        let id = known.descriptor.series_id();
        let only = |of: &str, d: &Descriptor| of == node && d.series_id() == id;
        // The newest count of at most this time, with its own time.
        let newest_at = |to: i64| -> Result<Option<(i64, u64)>, String> {
            let at = Span { to, ..Span::ALL };
            let newest = reader.newest(&only, at, 1, &cancel);
            let newest = newest.map_err(|e| e.to_string())?;
            let sample = newest.first().and_then(|of| of.columns.sample(0));
            Ok(sample.and_then(|sample| match sample.value {
                Value::Int(count) => Some((sample.ts, u64::try_from(count).unwrap_or(0))),
                _ => None,
            }))
        };
        let Some((ts, count)) = newest_at(known.known.to)? else {
            continue;
        };
        let count_before = match ts < since_ns {
            true => count,
            false => newest_at(since_ns.saturating_sub(1))?.map_or(0, |(_, count)| count),
        };
        found.push(PastLoss {
            key: (cause, label("publication").into(), label("user").into()),
            count,
            count_before,
        });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lose(ledger: &mut LossLedger, publication: &str, user: &str) -> (String, Value) {
        let told = ledger.lose(LossCause::Missed, publication, user, 7, 1);
        let labels = told.descriptor.unwrap().labels.to_string();
        (labels, told.sample.value)
    }

    #[test]
    fn whoever_comes_too_late_is_summed_with_others() {
        let mut ledger = LossLedger::default();
        for at in 0..LOSS_OWNERS_MAX {
            lose(&mut ledger, &format!("p{at}"), "eve");
        }
        let others = "{cause=missed,publication=(others),user=(others)}";
        for sum in [7, 14] {
            let told = lose(&mut ledger, &format!("late{sum}"), "bob");
            assert_eq!(told, (others.to_owned(), Value::Int(sum)));
        }
        // An archive returns rows in any order.
        let mut ledger = LossLedger::default();
        assert_eq!(lose(&mut ledger, OTHERS, OTHERS).0, others);
        for at in 0..LOSS_OWNERS_MAX {
            let told = lose(&mut ledger, &format!("p{at}"), "eve");
            assert!(told.0.contains(&format!("publication=p{at},")), "{told:?}");
        }
        assert_eq!(lose(&mut ledger, "late", "bob").1, Value::Int(14));
        let known = "{cause=missed,publication=p0,user=eve}";
        let told = lose(&mut ledger, "p0", "eve");
        assert_eq!(told, (known.to_owned(), Value::Int(14)));
    }

    #[test]
    fn what_was_told_long_ago_is_told_again() {
        let mut ledger = LossLedger::default();
        lose(&mut ledger, "p", "eve");
        assert_eq!(ledger.due(REPEAT_NS).count(), 0);
        assert_eq!(ledger.due(REPEAT_NS + 1).count(), 1);
        assert_eq!(ledger.due(REPEAT_NS + 1).count(), 0);
    }
}
