//! One bridged source: a user's service or measurement, with its series and counts.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use barograph_bridge::{
    BridgeProtocol, Distribution, Point, PointSource, PointTags, PointValue, QUANTILES,
    SeriesProperties, label_name, stream_words,
};
use barograph_model::{
    Descriptor, Kind, Labels, Name, Quality, Sample, StreamKey, Value, ValueType, text_start,
};
use barograph_stream::ingest::FRAME_VALUE;
use barograph_stream::{PublicationsRow, value_bytes_max};
use serde_json::{Value as Json, json};

use super::series::{BridgeSeries, HistogramSeries};
use crate::counts::ProcessCounts;
use crate::identity::{Instances, PROCESS, PublicationIdentity};
use crate::ledger::LossCause;
use crate::process::{IntakeRound, REFUSAL_BYTES_MAX};
use crate::scope::NoStream;
use barograph_stream::ScopeReader;

/// Names and labels that have a stream already, so that no two series share one.
pub(super) type TakenSeries = HashSet<(ScopeReader, Name, Labels)>;

/// A series as it was sent: name and labels.
type SeriesKey = (Arc<str>, PointTags);

/// The limits within which a request may make series.
pub(super) struct SeriesAllowance<'a> {
    pub taken: &'a mut TakenSeries,
    /// Series that the user may still make.
    pub series: &'a mut usize,
}

pub(super) struct BridgedSource {
    /// Identifies the source where a process has its incarnation.
    id: String,
    application: String,
    user: String,
    identity: PublicationIdentity,
    reader: ScopeReader,
    owner: ScopeReader,
    series: HashMap<SeriesKey, (BridgeSeries, Descriptor)>,
    histograms: HashMap<SeriesKey, HistogramSeries>,
    pub counts: ProcessCounts,
    lost: Option<(PublicationIdentity, Option<StreamKey>)>,
    lost_told: u64,
    last_refusal: String,
    started_ns: i64,
    newest_ns: i64,
    used_ns: i64,
}

/// The user and the readers of a source.
pub(super) struct SourceOwner<'a> {
    pub user: &'a str,
    pub reader: ScopeReader,
    pub owner: ScopeReader,
}

impl BridgedSource {
    /// Names a source; fails if its name or labels cannot be made valid.
    pub(super) fn new(
        id: String,
        source: &PointSource,
        whose: &SourceOwner<'_>,
        round: &mut IntakeRound<'_, '_>,
    ) -> Result<Self, String> {
        let words = stream_words(&source.name).ok_or("a source has no name")?;
        let name = match &*words {
            // The publication called `process` is the agent's own.
            PROCESS => format!("{PROCESS}_"),
            _ => words,
        };
        // A measurement has no application label: it has tags of its own.
        let application = match source.protocol {
            BridgeProtocol::Otlp => source.name.clone(),
            BridgeProtocol::LineProtocol => String::new(),
        };
        let labels: Vec<(String, String)> = valid(&source.labels)?.into_iter().collect();
        let taken = round
            .instances
            .take(&name, whose.user, &application, &[&labels]);
        Ok(Self {
            id,
            application,
            user: whose.user.to_owned(),
            identity: taken.map_err(|e| e.to_string())?,
            reader: whose.reader,
            owner: whose.owner,
            series: HashMap::new(),
            histograms: HashMap::new(),
            counts: ProcessCounts::default(),
            lost: None,
            lost_told: 0,
            last_refusal: String::new(),
            started_ns: round.now_ns,
            newest_ns: 0,
            used_ns: round.monotonic_ns,
        })
    }

    pub(super) fn reader(&self) -> ScopeReader {
        self.reader
    }

    /// Takes a point, or returns the reason for refusing it; a refusal is counted.
    pub(super) fn take(
        &mut self,
        point: Point,
        round: &mut IntakeRound<'_, '_>,
        allowance: &mut SeriesAllowance<'_>,
    ) -> Result<(), String> {
        self.used_ns = round.monotonic_ns;
        let key = (point.origin.name, point.origin.labels);
        let taken = match point.measured {
            PointValue::Value(value) => {
                self.put(key, &point.about, point.ts, (value, None), round, allowance)
            }
            PointValue::Distribution(distribution) => {
                self.spread(key, &point.about, point.ts, *distribution, round, allowance)
            }
        };
        match taken {
            Ok(()) => self.counts.values += 1,
            Err(ref reason) => self.refuse(1, reason),
        }
        taken
    }

    /// Counts refused values, of this request or from parsing it.
    pub(super) fn refuse(&mut self, count: u64, reason: &str) {
        self.counts.damaged += count;
        text_start(reason, REFUSAL_BYTES_MAX).clone_into(&mut self.last_refusal);
    }

    /// Appends a value. With a half width of its interval it is derived and has that error.
    fn put(
        &mut self,
        key: SeriesKey,
        about: &Arc<SeriesProperties>,
        ts: Option<i64>,
        (value, half): (Value, Option<f32>),
        round: &mut IntakeRound<'_, '_>,
        allowance: &mut SeriesAllowance<'_>,
    ) -> Result<(), String> {
        if !self.series.contains_key(&key) {
            let made = self.declare(&key, about, round, allowance)?;
            self.series.insert(key.clone(), made);
        }
        let Some((series, _)) = self.series.get_mut(&key) else {
            return Ok(());
        };
        series.used_ns = round.monotonic_ns;
        let Some((ts, value)) = series.next(about, ts, value, round.now_ns)? else {
            return Ok(());
        };
        if let Value::Text(text) = &value {
            self.counts.cut += u64::from(text.len() > value_bytes_max(ValueType::Text, 0) as usize);
        }
        self.newest_ns = self.newest_ns.max(ts);
        let sample = Sample {
            ts,
            value,
            quality: half.map_or(Quality::Measured, |_| Quality::Derived),
            error: half.unwrap_or(0.0),
        };
        if let Some(scope) = round.scopes.of(self.reader) {
            scope.append(series.key, &sample, None);
        }
        Ok(())
    }

    /// Appends the quantiles of the counts since the point before.
    fn spread(
        &mut self,
        key: SeriesKey,
        about: &Arc<SeriesProperties>,
        ts: Option<i64>,
        sent: Distribution,
        round: &mut IntakeRound<'_, '_>,
        allowance: &mut SeriesAllowance<'_>,
    ) -> Result<(), String> {
        if !self.histograms.contains_key(&key) {
            spend(allowance.series)?;
            let histogram = HistogramSeries::new(round.monotonic_ns);
            self.histograms.insert(key.clone(), histogram);
        }
        let Some(histogram) = self.histograms.get_mut(&key) else {
            return Ok(());
        };
        histogram.used_ns = round.monotonic_ns;
        let Some((ts, since)) = histogram.next(ts, sent, round.now_ns)? else {
            return Ok(());
        };
        for (q, ending) in QUANTILES {
            if let Some((value, half)) = since.quantile(q) {
                let key = (format!("{}.{ending}", key.0).into(), Arc::clone(&key.1));
                let value = (Value::Float(value), Some(half));
                self.put(key, about, Some(ts), value, round, allowance)?;
            }
        }
        Ok(())
    }

    fn declare(
        &mut self,
        (name, labels): &SeriesKey,
        about: &Arc<SeriesProperties>,
        round: &mut IntakeRound<'_, '_>,
        allowance: &mut SeriesAllowance<'_>,
    ) -> Result<(BridgeSeries, Descriptor), String> {
        let descriptor = self.descriptor(name, labels, about)?;
        let place = (
            self.reader,
            descriptor.name.clone(),
            descriptor.labels.clone(),
        );
        if allowance.taken.contains(&place) {
            self.counts.refused += 1;
            return Err(format!(
                "{descriptor} is the stream of another series: names that are made valid may meet"
            ));
        }
        if *allowance.series == 0 {
            self.counts.refused += 1;
        }
        spend(allowance.series)?;
        let bytes_max = value_bytes_max(descriptor.value_type, 0);
        let scope = round.scopes.of(self.reader);
        let made = scope.ok_or(NoStream::NoScope).and_then(|scope| {
            let key = scope.declare(&descriptor, bytes_max, &self.user)?;
            Ok((key, scope.take_newest(&descriptor)))
        });
        let (key, newest_ns) = made.map_err(|why| {
            *allowance.series += 1;
            self.counts.refused += 1;
            format!("{descriptor}: {why}")
        })?;
        allowance.taken.insert(place);
        let series = BridgeSeries::new(key, Arc::clone(about), round.monotonic_ns).after(newest_ns);
        Ok((series, descriptor))
    }

    fn descriptor(
        &self,
        name: &str,
        labels: &[(String, String)],
        about: &SeriesProperties,
    ) -> Result<Descriptor, String> {
        let mut words = stream_words(name).ok_or("a value has no name")?;
        // The stream that counts frames has this name.
        if words == FRAME_VALUE {
            words.push('_');
        }
        let mut all: BTreeMap<String, String> = self
            .identity
            .labels()
            .iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        // The labels of a point win over those of its source.
        all.extend(valid(labels)?);
        let stream = self.identity.stream(
            &words,
            about.value_type,
            about.kind,
            &about.unit,
            &about.help,
        );
        Ok(Descriptor {
            labels: Labels::new(all).map_err(|e| e.to_string())?,
            ..stream.map_err(|e| e.to_string())?
        })
    }

    /// Counts new losses in the scope's ledger and in the source's stream of losses, which is made
    /// with the first loss.
    pub(super) fn tell_loss(&mut self, round: &mut IntakeRound<'_, '_>) {
        let lost = self.counts.lost();
        if lost == self.lost_told {
            return;
        }
        let newly = lost - self.lost_told;
        self.lost_told = lost;
        if let Some(scope) = round.scopes.of(self.reader) {
            scope.lose(
                LossCause::Damaged,
                self.identity.name(),
                &self.user,
                newly,
                None,
            );
        }
        if self.lost.is_none() {
            let identity = self.introduce(round.instances);
            self.lost = identity.map(|identity| (identity, None));
        }
        // If there is no room for the stream now, there may be at the next loss.
        if let Some((identity, key)) = &mut self.lost
            && key.is_none()
            && let Some(scope) = round.scopes.of(self.owner)
        {
            let stream = identity.stream(
                "lost.count",
                ValueType::Int,
                Kind::Counter,
                "count",
                "Values that were put and lost.",
            );
            let declared = stream.ok().map(|of| scope.declare(&of, 0, &self.user));
            *key = declared.and_then(Result::ok);
        }
        if let Some((_, Some(key))) = &self.lost
            && let Some(scope) = round.scopes.of(self.owner)
        {
            let value = Value::Int(i64::try_from(lost).unwrap_or(i64::MAX));
            let sample = Sample {
                ts: round.now_ns,
                value,
                quality: Quality::Measured,
                error: 0.0,
            };
            scope.append(*key, &sample, None);
        }
    }

    fn introduce(&self, instances: &mut Instances) -> Option<PublicationIdentity> {
        let application = match &*self.application {
            "" => self.identity.name(),
            application => application,
        };
        let taken = instances.take(PROCESS, &self.user, application, &[]);
        taken.ok()
    }

    /// Retires series that nobody has written to for `idle_ns`; returns their number.
    pub(super) fn retire_idle(
        &mut self,
        idle_ns: i64,
        round: &mut IntakeRound<'_, '_>,
        taken: &mut TakenSeries,
    ) -> usize {
        let before = self.series.len() + self.histograms.len();
        let is_idle = |used_ns: i64| round.monotonic_ns.saturating_sub(used_ns) >= idle_ns;
        self.histograms.retain(|_, h| !is_idle(h.used_ns));
        let reader = self.reader;
        let mut retired = Vec::new();
        let idle = self.series.extract_if(|_, (s, _)| is_idle(s.used_ns));
        for (_, (series, descriptor)) in idle {
            taken.remove(&(reader, descriptor.name.clone(), descriptor.labels.clone()));
            retired.push((series, descriptor));
        }
        // The order of the map is another one in each process.
        retired.sort_unstable_by_key(|(series, _)| series.key.0);
        if let Some(scope) = round.scopes.of(reader) {
            for (series, descriptor) in retired {
                scope.retire(series.key);
                if let Some(newest_ns) = series.newest_ns() {
                    scope.give_newest(&descriptor, newest_ns);
                }
            }
        }
        before - self.series.len() - self.histograms.len()
    }

    /// Whether the source is idle and has no series.
    pub(super) fn is_over(&self, idle_ns: i64, monotonic_ns: i64) -> bool {
        let is_idle = monotonic_ns.saturating_sub(self.used_ns) >= idle_ns;
        is_idle && self.series.is_empty() && self.histograms.is_empty()
    }

    /// Retires the stream of losses, and frees the names of the source.
    pub(super) fn end(self, round: &mut IntakeRound<'_, '_>) {
        round.instances.give_back(&self.identity);
        if let Some((identity, key)) = &self.lost {
            round.instances.give_back(identity);
            if let (Some(key), Some(scope)) = (key, round.scopes.of(self.owner)) {
                scope.retire(*key);
            }
        }
    }

    /// The source's row among the publications, like that of a process without frames.
    pub(super) fn row(&self) -> Json {
        json!(PublicationsRow {
            name: self.identity.name().into(),
            labels: self.identity.label_map(),
            application: self.application.clone(),
            user: self.user.clone(),
            incarnation: self.id.clone(),
            started_ts: self.started_ns,
            values: self.series.len() as u64,
            refusal: self.last_refusal.clone(),
            newest_ts: self.newest_ns,
            ..self.counts.to_row()
        })
    }
}

fn spend(series: &mut usize) -> Result<(), String> {
    match series.checked_sub(1) {
        Some(left) => *series = left,
        None => return Err("its user has as many series as [applications] bridged_max".into()),
    }
    Ok(())
}

/// Labels with valid names; fails if two names become the same.
fn valid(labels: &[(String, String)]) -> Result<BTreeMap<String, String>, String> {
    let mut valid = BTreeMap::new();
    for (raw, value) in labels {
        let name = label_name(raw).ok_or("a label has no name")?;
        if valid.insert(name, value.clone()).is_some() {
            return Err(format!(
                "the label {raw:?} meets another one when its name is made valid"
            ));
        }
    }
    Ok(valid)
}
