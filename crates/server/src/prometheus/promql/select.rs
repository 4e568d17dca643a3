//! Turns streams into samples such as a scraper would have taken.
//!
//! A stream appends a value when it changes, and an unchanged one again after some minutes;
//! Prometheus has a sample of every scrape. The values in between are known: the value held at
//! every look. A selector therefore reads *looks*: the samples, and the held value at each interval
//! of the stream after them, until the next sample or the last look. A time without looks that is
//! longer than the look-back stays a gap. A stream that has ended is not seen after its last look,
//! like a scraped series after its stale marker.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use barograph_model::{
    Columns, Descriptor, NS_PER_S, Past, PastRequest, PastSamples, PastSeries, Span,
    TEXT_BYTES_MAX, ValueType, Values, text_start,
};
use promql_parser::label::{MatchOp, Matcher};

use super::{LabelSet, NAME, PromFault, QueryContext};
use crate::prometheus::names::{self, ExposedName};

/// Time after the last look for which a value holds, as in Prometheus…
const LOOK_BACK_NS: i64 = 300 * NS_PER_S;
/// …or this many intervals, if looks are rare…
const LOOK_BACK_INTERVALS: i64 = 3;
/// …but never longer than this, so that a wrong interval does not make a query read all history.
const LOOK_BACK_NS_MAX: i64 = 86_400 * NS_PER_S;

/// The time after a look for which its value counts, in ns.
pub fn look_back_ns(interval_ns: i64) -> i64 {
    let rare = interval_ns.saturating_mul(LOOK_BACK_INTERVALS);
    rare.clamp(LOOK_BACK_NS, LOOK_BACK_NS_MAX)
}

/// Matchers of a selector.
#[derive(Clone, Debug)]
pub struct Matching(Vec<Matcher>);

impl Matching {
    /// Makes a selector of matchers that must all match.
    pub(super) fn new(matchers: Vec<Matcher>) -> Self {
        Self(matchers)
    }

    /// The matchers that ask for one value: the labels that `absent()` can know.
    pub fn equalities(&self) -> impl Iterator<Item = (&str, &str)> {
        let equal = self.0.iter().filter(|m| m.op == MatchOp::Equal);
        equal.map(|m| (m.name.as_str(), m.value.as_str()))
    }

    /// Whether all matchers match these labels. A missing label is the same as an empty one.
    fn all<'a>(&self, get: impl Fn(&str) -> Option<&'a str>, skip: Option<&str>) -> bool {
        let asked = self.0.iter().filter(|m| Some(m.name.as_str()) != skip);
        asked
            .into_iter()
            .all(|m| m.is_match(get(&m.name).unwrap_or("")))
    }

    /// The name under which a stream matches: that of the exposition, unless a matcher asks for its
    /// other name. A matcher that only excludes the exposition's name excludes the stream.
    fn name_of(&self, node: &str, descriptor: &Descriptor) -> Option<ExposedName> {
        let mut known = names::both(node, descriptor);
        let at = known.iter().position(|e| self.asks_for(&e.name))?;
        let exposed = known.swap_remove(at);
        let get = |name: &str| match name {
            NAME => Some(exposed.name.as_str()),
            _ => exposed.label(name),
        };
        let is_meant = self.all(get, exposed.text_label.as_deref());
        is_meant.then_some(exposed)
    }

    /// Whether every matcher that asks for a name matches this one.
    fn asks_for(&self, name: &str) -> bool {
        let says = |m: &&Matcher| m.name == NAME && matches!(m.op, MatchOp::Equal | MatchOp::Re(_));
        self.0.iter().filter(says).all(|m| m.is_match(name))
    }
}

/// The label sets of the matching series (of text streams, without the text), each with its stream.
pub fn identities(
    context: &QueryContext<'_>,
    wanted: &[Matching],
    span: Span,
) -> Result<Vec<(LabelSet, PastSeries)>, PromFault> {
    // Many selectors over many series take time, so nothing matches any more once the time is up.
    let meant = |node: &str, d: &Descriptor| {
        let is_meant = |w: &Matching| w.name_of(node, d).is_some();
        !is_up(context) && (wanted.is_empty() || wanted.iter().any(is_meant))
    };
    let request = PastRequest {
        wanted: &meant,
        span,
        samples_max: context.samples_max,
        cancel: context.cancel,
        holds: context.holds,
    };
    let mut found = Vec::new();
    let known = context.past.series(&request)?;
    for series in known {
        context.check()?;
        let named = match wanted {
            [] => names::both(&series.node, &series.descriptor)
                .into_iter()
                .next(),
            some => some
                .iter()
                .find_map(|w| w.name_of(&series.node, &series.descriptor)),
        };
        if let Some(exposed) = named {
            found.push((exposed.labels(), series));
        }
    }
    context.check()?;
    Ok(found)
}

fn is_up(context: &QueryContext<'_>) -> bool {
    context.cancel.load(Ordering::Relaxed)
}

/// The looks of one series.
#[derive(Clone, Debug, Default)]
pub(super) struct Sampled {
    pub labels: LabelSet,
    ts: Vec<i64>,
    /// `None` where the series ended: a text that changed, or the last look.
    values: Vec<Option<f64>>,
    interval_ns: i64,
    looked_ns: i64,
    is_living: bool,
}

/// Reads the matching series: enough for every instant of `span`, each reaching back `range_ns`.
///
/// The value that held at an instant follows from the sample before it, which may be one look-back
/// older than the last look, and from the sample after it; so more is read on both sides.
pub(super) fn read(
    context: &QueryContext<'_>,
    wanted: &Matching,
    span: Span,
    range_ns: i64,
) -> Result<Vec<Sampled>, PromFault> {
    let meant = |node: &str, d: &Descriptor| !is_up(context) && wanted.name_of(node, d).is_some();
    let ask = |look_back_ns: i64| PastRequest {
        wanted: &meant,
        span: Span {
            from: span
                .from
                .saturating_sub(range_ns)
                .saturating_sub(2 * look_back_ns),
            to: span.to.saturating_add(look_back_ns),
        },
        samples_max: context.samples_max,
        cancel: context.cancel,
        holds: context.holds,
    };
    let past: &dyn Past = context.past;
    let known = past.series(&ask(LOOK_BACK_NS_MAX))?;
    context.check()?;
    let rarest_ns = known.iter().map(|s| s.interval_ns).max().unwrap_or(0);
    let request = ask(look_back_ns(rarest_ns));
    let mut list: Vec<Sampled> = Vec::new();
    let mut places: HashMap<LabelSet, usize> = HashMap::new();
    let read = past.read(&request)?;
    for PastSamples {
        series, columns, ..
    } in read
    {
        context.check()?;
        let Some(exposed) = wanted.name_of(&series.node, &series.descriptor) else {
            continue;
        };
        for sampled in sampled(&series, &exposed, columns, wanted, request.span.to) {
            // Two streams may be the same series for Prometheus (if the type or unit has changed).
            match places.get(&sampled.labels) {
                Some(&at) => list[at].join(sampled),
                None => {
                    places.insert(sampled.labels.clone(), list.len());
                    list.push(sampled);
                }
            }
        }
    }
    context.check()?;
    list.sort_by(|a, b| a.labels.cmp(&b.labels));
    Ok(list)
}

fn sampled(
    series: &PastSeries,
    exposed: &ExposedName,
    mut columns: Columns,
    wanted: &Matching,
    read_to: i64,
) -> Vec<Sampled> {
    if !columns.ts.is_sorted() {
        columns = in_order(&columns, series.descriptor.value_type);
    }
    // Looks after the end of the read belong to a sample that was not read.
    let looked_ns = match series.known.to {
        to if to <= read_to => to,
        _ => i64::MIN,
    };
    let of = |labels: LabelSet, ts, values| Sampled {
        labels,
        ts,
        values,
        interval_ns: series.interval_ns.max(0),
        looked_ns,
        is_living: series.is_living || series.known.to > read_to,
    };
    let labels = exposed.labels();
    let Some(text_label) = &exposed.text_label else {
        let (mut ts, mut values) = (Vec::new(), Vec::new());
        for row in 0..columns.len() {
            let number = columns.values.number(row);
            ts.push(columns.ts[row]);
            values.push(number.map(|v| exposed.scaled(v)));
            if columns.is_last_look(row) {
                ts.push(columns.ts[row].saturating_add(1));
                values.push(None);
            }
        }
        return vec![of(labels, ts, values)];
    };
    let texts = runs_of_texts(&columns).into_iter();
    let labelled = texts.map(|(text, ts, values)| {
        let mut labels = labels.clone();
        labels.set(text_label, text);
        of(labels, ts, values)
    });
    labelled
        .filter(|s| wanted.all(|name| s.labels.get(name), None))
        .collect()
}

fn in_order(columns: &Columns, value_type: ValueType) -> Columns {
    let mut order: Vec<usize> = (0..columns.len()).collect();
    order.sort_by_key(|&row| columns.ts[row]);
    let mut sorted = Columns::new(value_type);
    for row in order {
        if let Some(sample) = columns.sample(row) {
            sorted.push(columns.numbers.get(row).copied().unwrap_or(0), &sample);
        }
    }
    sorted
}

/// A text, with the times and values of its series.
type Run<'a> = (&'a str, Vec<i64>, Vec<Option<f64>>);

/// A series of ones for every text; it ends where another text begins.
fn runs_of_texts(columns: &Columns) -> Vec<Run<'_>> {
    let Values::Text(texts) = &columns.values else {
        return Vec::new();
    };
    let mut runs: Vec<Run<'_>> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut before: Option<usize> = None;
    for (row, (text, ts)) in texts.iter().zip(&columns.ts).enumerate() {
        // Cut to the same length as in the exposition.
        let text = text_start(text, TEXT_BYTES_MAX);
        let at = *places.entry(text).or_insert_with(|| {
            runs.push((text, Vec::new(), Vec::new()));
            runs.len() - 1
        });
        if let Some(ended) = before.filter(|&ended| ended != at) {
            runs[ended].1.push(*ts);
            runs[ended].2.push(None);
        }
        runs[at].1.push(*ts);
        runs[at].2.push(Some(1.0));
        before = Some(at);
        if columns.is_last_look(row) {
            runs[at].1.push(ts.saturating_add(1));
            runs[at].2.push(None);
            before = None;
        }
    }
    runs
}

impl Sampled {
    fn join(&mut self, other: Self) {
        let here = self.ts.drain(..).zip(self.values.drain(..));
        let mut all: Vec<_> = here.chain(other.ts.into_iter().zip(other.values)).collect();
        all.sort_by_key(|(ts, _)| *ts);
        all.dedup_by_key(|(ts, _)| *ts);
        (self.ts, self.values) = all.into_iter().unzip();
        self.interval_ns = self.interval_ns.max(other.interval_ns);
        self.looked_ns = self.looked_ns.max(other.looked_ns);
        self.is_living |= other.is_living;
    }

    /// The index of the last sample at or before `at`; `from` must be an index that is not later.
    fn last_at(&self, at: i64, from: usize) -> Option<usize> {
        let later = self.ts[from.min(self.ts.len())..].partition_point(|&ts| ts <= at);
        (from + later).checked_sub(1)
    }

    /// The time until which the value of this sample is known to have held.
    fn held_until(&self, row: usize) -> i64 {
        let ts = self.ts[row];
        match self.ts.get(row + 1) {
            Some(&next) if next.saturating_sub(ts) <= look_back_ns(self.interval_ns) => next,
            Some(_) => ts,
            None => self.looked_ns.max(ts),
        }
    }

    /// The time of the last look at this sample's value at or before `at`.
    fn look_before(&self, row: usize, at: i64) -> i64 {
        let ts = self.ts[row];
        if self.interval_ns == 0 {
            return ts;
        }
        ts + (at - ts) / self.interval_ns * self.interval_ns
    }

    /// For each instant, in order, the value that an instant selector gives and the time of its
    /// look.
    pub(super) fn seen(
        &self,
        times: impl Iterator<Item = i64>,
    ) -> impl Iterator<Item = Option<(i64, f64)>> {
        let mut row = 0;
        times.map(move |at| {
            row = self.last_at(at, row)?;
            let held = self.held_until(row);
            let value = self.values[row]?;
            let has_ended = !self.is_living && row + 1 == self.ts.len();
            let is_fresh = match has_ended {
                true => held >= at,
                false => held > at.saturating_sub(look_back_ns(self.interval_ns)),
            };
            is_fresh.then(|| (self.look_before(row, held.min(at)), value))
        })
    }

    /// An iterator over the looks; the instants given to `Looks::skip_to` may only grow.
    pub(super) fn looks(&self) -> Looks<'_> {
        Looks {
            of: self,
            row: 0,
            next: self.ts.first().copied(),
        }
    }
}

/// Walks samples and held values in order of time.
pub(super) struct Looks<'a> {
    of: &'a Sampled,
    row: usize,
    next: Option<i64>,
}

impl Looks<'_> {
    /// Goes to the first look after `after`, never back.
    pub(super) fn skip_to(&mut self, after: i64) {
        if self.next.is_none_or(|next| next > after) {
            return;
        }
        let Some(row) = self.of.last_at(after, self.row) else {
            return;
        };
        self.row = row;
        self.next = Some(self.of.look_before(row, after));
        self.advance();
    }

    /// Returns the next look if it is not after `until`.
    pub(super) fn take(&mut self, until: i64) -> Option<(i64, f64)> {
        loop {
            let next = self.next.filter(|&next| next <= until)?;
            let value = self.of.values[self.row];
            self.advance();
            if let Some(value) = value {
                return Some((next, value));
            }
        }
    }

    /// Goes from the look at `next` to the one after it.
    fn advance(&mut self) {
        let Some(now) = self.next else { return };
        let interval_ns = self.of.interval_ns;
        let sample_ts = self.of.ts.get(self.row + 1).copied();
        let is_held = self.of.values[self.row].is_some() && interval_ns > 0;
        // The last look before the next sample is that sample, a little early or late.
        let until = match sample_ts {
            Some(_) => self
                .of
                .held_until(self.row)
                .saturating_sub(interval_ns / 2 + 1),
            None => self.of.held_until(self.row),
        };
        self.next = match now
            .checked_add(interval_ns)
            .filter(|&at| is_held && at <= until)
        {
            Some(held) => Some(held),
            None => {
                self.row += 1;
                sample_ts
            }
        };
    }
}
