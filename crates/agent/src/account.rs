//! The reason why an insight has no value, and the remedy: one text for the documents, SQL, HTTP,
//! the command line and the page.
//!
//! This module connects the graph, which knows the missing inputs of an insight, with the sources,
//! which know why they do not have them. Neither knows the other.

use barograph_insight::{InsightReport, InsightState, NoValueReason};
use barograph_model::{Kind, ValueType};
use barograph_source::{MissingPart, SourceReport, SourceState, catalogue, cost_of, source_of};
use serde::Serialize;

/// Most causes in the text of a reason. The rest are counted.
const CAUSES_MAX: usize = 4;
/// Most inputs of one source that are named in a cause. The rest are counted.
const INPUTS_MAX: usize = 3;

/// The state of an insight, in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct InsightAccount {
    /// `live`, `waiting` (its sources were not read often enough yet), `unavailable` or `failed`.
    pub state: &'static str,
    /// Reason why it is not live; empty if it is live.
    pub reason: String,
    /// Remedy; empty if it is live.
    pub remedy: String,
}

/// Combines the graph's report of an insight with the sources' reports of its inputs.
pub(crate) fn account(report: &InsightReport, sources: &[SourceReport]) -> InsightAccount {
    match report.state {
        InsightState::Live => InsightAccount {
            state: "live",
            reason: String::new(),
            remedy: String::new(),
        },
        InsightState::Failed => InsightAccount {
            state: "failed",
            reason: report.reason.clone(),
            remedy: format!(
                "see what it computes: `baro insight explain {}`",
                report.name
            ),
        },
        InsightState::Waiting => lacking(report, sources),
    }
}

/// Returns everything of a source's report on which accounts depend.
pub(crate) fn grounds(report: &SourceReport) -> impl PartialEq + '_ {
    let is_read = report.polls.min(2);
    let texts = (&report.sees, &report.missing, &report.last_error);
    (report.source, report.state, report.streams, is_read, texts)
}

fn lacking(report: &InsightReport, sources: &[SourceReport]) -> InsightAccount {
    let mut causes: Vec<Cause> = Vec::new();
    for lack in &report.lacks {
        let cause = Cause::of(lack, &report.name, sources);
        match causes.iter_mut().find(|c| c.is_like(&cause)) {
            Some(like) => like.inputs.extend(cause.inputs),
            None => causes.push(cause),
        }
    }
    let pending = causes.iter().any(|c| c.pending);
    causes.retain(|c| c.pending == pending);
    let left_out = causes.len().saturating_sub(CAUSES_MAX);
    causes.truncate(CAUSES_MAX);
    let mut reason: Vec<String> = causes.iter().map(Cause::text).collect();
    if left_out > 0 {
        reason.push(format!("and {left_out} more causes"));
    }
    let mut remedy: Vec<&str> = Vec::new();
    for cause in &causes {
        if !remedy.contains(&cause.remedy.as_str()) {
            remedy.push(&cause.remedy);
        }
    }
    InsightAccount {
        state: if pending { "waiting" } else { "unavailable" },
        reason: reason.join("; "),
        remedy: remedy.join("; "),
    }
}

/// One cause, with all the inputs that are missing because of it.
struct Cause {
    inputs: Vec<String>,
    /// Text that follows the list of inputs.
    why: String,
    remedy: String,
    /// Whether the only cause is that the source has not been read often enough yet.
    pending: bool,
}

impl Cause {
    fn of(lack: &NoValueReason, asked: &str, sources: &[SourceReport]) -> Self {
        match lack {
            NoValueReason::Metric { name, says } => Self::of_metric(name, says, sources),
            NoValueReason::Row { insight, says } => Self::of_row(insight, says, asked),
            NoValueReason::Failure { insight, reason } => Self {
                inputs: vec![insight.clone()],
                why: format!(" fails: {reason}"),
                remedy: format!("see what it computes: `baro insight explain {insight}`"),
                pending: false,
            },
        }
    }

    /// Returns the cause for an insight whose inputs all have values but that has no row.
    fn of_row(insight: &str, (when, helps): &(String, String), asked: &str) -> Self {
        let subject = if insight == asked { "it" } else { insight };
        let (why, remedy) = match when.as_str() {
            "" => (
                " gets values of all its inputs, and no row of them gives one".to_owned(),
                "try its SELECT over the newest samples (WHERE newest) with `baro sql`".to_owned(),
            ),
            when => (format!(" has no value {when}"), helps.clone()),
        };
        Self {
            inputs: vec![subject.to_owned()],
            why,
            remedy,
            pending: false,
        }
    }

    fn of_metric(name: &str, (when, helps): &(String, String), sources: &[SourceReport]) -> Self {
        let cause = |why: String, remedy: String| Self {
            inputs: vec![name.to_owned()],
            why,
            remedy,
            pending: false,
        };
        let Some(source) = source_of(name) else {
            return cause(
                ": no source of this program gives it".into(),
                "put a stream of this name into the node, or drop the insight".into(),
            );
        };
        let Some(report) = sources.iter().find(|r| r.source == source) else {
            return cause(
                format!(": source {source} is off"),
                format!(
                    "set sources.poll.{source}.enabled = true (cost: {})",
                    cost_of(source)
                ),
            );
        };
        if is_pending(name, report) {
            return Self {
                pending: true,
                ..cause(
                    format!(
                        " from source {source}: it has been read {} so far",
                        times(report.polls)
                    ),
                    "wait for its next look".into(),
                )
            };
        }
        let (why, remedy) = told_by(report, name, when, helps);
        cause(format!(" from source {source}: {why}"), remedy)
    }

    fn is_like(&self, other: &Self) -> bool {
        (&self.why, &self.remedy) == (&other.why, &other.remedy)
    }

    fn text(&self) -> String {
        let shown = &self.inputs[..self.inputs.len().min(INPUTS_MAX)];
        let more = match self.inputs.len() - shown.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("{}{more}{}", shown.join(", "), self.why)
    }
}

fn times(polls: u64) -> &'static str {
    match polls {
        0 => "never",
        1 => "once",
        _ => "a few times",
    }
}

/// Returns whether the source sees its devices and has only not been read often enough yet: a value
/// that is measured between two looks first exists after the second.
fn is_pending(metric: &str, report: &SourceReport) -> bool {
    let specs = catalogue().flat_map(|s| s.facts.iter().copied().flatten());
    let between_looks = specs
        .filter(|f| f.name == metric)
        .any(|f| f.kind == Kind::Gauge && f.value_type == ValueType::Float);
    match report.polls {
        0 => report.state != SourceState::Down,
        1 => between_looks && report.streams > 0,
        _ => false,
    }
}

/// Returns the reason and the remedy for a metric that the source does not have, from the source's
/// report.
fn told_by(report: &SourceReport, metric: &str, when: &str, helps: &str) -> (String, String) {
    if let Some(missing) = about(report, metric) {
        let MissingPart { what, why, remedy } = missing;
        return (format!("it cannot see {what}: {why}"), remedy.clone());
    }
    let remedy = if helps.is_empty() {
        format!("see what source {} sees: `baro doctor`", report.source)
    } else {
        helps.to_owned()
    };
    if report.state == SourceState::Down {
        let error = report.last_error.as_deref();
        return (error.unwrap_or("its last read hangs").to_owned(), remedy);
    }
    let why = match when {
        "" => format!("it has none, it sees {}", report.sees),
        when => format!("it has none {when} (it sees {})", report.sees),
    };
    (why, remedy)
}

/// Returns the entry of the report that is about a metric: the one that shares most words with the
/// metric's name. If a source has no streams at all, the first entry applies even without a shared
/// word.
fn about<'a>(report: &'a SourceReport, metric: &str) -> Option<&'a MissingPart> {
    let words = |missing: &MissingPart| {
        let text = format!("{} {}", missing.what, missing.why).to_lowercase();
        metric
            .split(['.', '_'])
            .filter(|w| text.contains(w))
            .count()
    };
    let mut best: Option<(usize, &MissingPart)> = None;
    for missing in &report.missing {
        let shared = words(missing);
        if best.is_none_or(|(most, _)| shared > most) {
            best = Some((shared, missing));
        }
    }
    let (shared, missing) = best?;
    (shared > 0 || report.streams == 0).then_some(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(name: &'static str, state: SourceState, missing: Vec<MissingPart>) -> SourceReport {
        let streams = if state == SourceState::Unavailable {
            0
        } else {
            4
        };
        SourceReport {
            source: name,
            state,
            sees: "1 thing".into(),
            streams,
            missing,
            polls: 9,
            errors: 0,
            cost_ns_mean: 1,
            interval_ns: 1,
            pace: None,
            last_error: None,
        }
    }

    fn waiting(lacks: Vec<NoValueReason>) -> InsightReport {
        InsightReport {
            name: "my.insight".into(),
            table: "my_insight".into(),
            sql: String::new(),
            builtin: true,
            unit: String::new(),
            help: String::new(),
            inputs: Vec::new(),
            groups: 0,
            state: InsightState::Waiting,
            reason: "no samples".into(),
            lacks,
            evaluations: 0,
            cost_ns: 0,
        }
    }

    fn metric(name: &str) -> NoValueReason {
        NoValueReason::Metric {
            name: name.into(),
            says: ("while there is none".into(), "make one".into()),
        }
    }

    fn check(lacks: Vec<NoValueReason>, sources: &[SourceReport], expect: (&str, &str, &str)) {
        let InsightAccount {
            state,
            reason,
            remedy,
        } = account(&waiting(lacks), sources);
        assert_eq!((state, reason.as_str(), remedy.as_str()), expect);
    }

    #[test]
    fn the_sources_words() {
        let missing = || MissingPart::new("/proc/diskstats", "not there", "mount /proc");
        check(
            vec![metric("disk.read.bytes"), metric("disk.write.bytes")],
            &[source("disk", SourceState::Unavailable, vec![missing()])],
            (
                "unavailable",
                "disk.read.bytes, disk.write.bytes from source disk: it cannot see /proc/diskstats: not there",
                "mount /proc",
            ),
        );
        let other = MissingPart::new("the scheduler of vda", "no sysfs", "mount /sys");
        check(
            vec![metric("disk.queue.depth")],
            &[source("disk", SourceState::Partial, vec![other])],
            (
                "unavailable",
                "disk.queue.depth from source disk: it has none while there is none (it sees 1 thing)",
                "make one",
            ),
        );
    }

    #[test]
    fn off_unknown_and_young() {
        check(
            vec![metric("disk.read.bytes")],
            &[],
            (
                "unavailable",
                "disk.read.bytes: source disk is off",
                "set sources.poll.disk.enabled = true (cost: one more source to read)",
            ),
        );
        check(
            vec![metric("no.such.bytes")],
            &[],
            (
                "unavailable",
                "no.such.bytes: no source of this program gives it",
                "put a stream of this name into the node, or drop the insight",
            ),
        );
        let young = SourceReport {
            polls: 1,
            ..source("disk", SourceState::Ok, Vec::new())
        };
        check(
            vec![
                metric("disk.read.bytes_per_second"),
                metric("no.such.bytes"),
            ],
            &[young],
            (
                "waiting",
                "disk.read.bytes_per_second from source disk: it has been read once so far",
                "wait for its next look",
            ),
        );
    }

    #[test]
    fn values_that_give_none() {
        let row = |insight: &str, when: &str, helps: &str| NoValueReason::Row {
            insight: insight.into(),
            says: (when.into(), helps.into()),
        };
        check(
            vec![row(
                "my.insight",
                "while all is idle (x / 0)",
                "do something",
            )],
            &[],
            (
                "unavailable",
                "it has no value while all is idle (x / 0)",
                "do something",
            ),
        );
        check(
            vec![row("other", "", "")],
            &[],
            (
                "unavailable",
                "other gets values of all its inputs, and no row of them gives one",
                "try its SELECT over the newest samples (WHERE newest) with `baro sql`",
            ),
        );
    }

    #[test]
    fn a_reason_is_bounded() {
        let many = (0..9).map(|n| metric(&format!("m{n}.bytes")));
        check(
            many.collect(),
            &[],
            (
                "unavailable",
                "m0.bytes, m1.bytes, m2.bytes and 6 more: no source of this program gives it",
                "put a stream of this name into the node, or drop the insight",
            ),
        );
    }
}
