//! The document `policies.json` with the state of policies, which is also the table `policies`.

use barograph_forecast::interval::ValueBasis;
use barograph_model::{Descriptor, NS_PER_MS, NS_PER_S, seconds};
use barograph_source::{PolicySpec, PolicySpecKind};
use serde::ser::SerializeSeq as _;
use serde::{Serialize, Serializer};
use serde_json::{Value as Json, json};

use super::governed::Governed;
use super::roster::RosterEntry;
use super::{GOVERNED_MAX, Policies, Policy};
use barograph_stream::LabelsJson;

impl Policies {
    /// Returns the rows of the document: one for each policy and stream. A policy without streams
    /// has one row too, with the reason.
    pub(crate) fn document(&self) -> impl Serialize + '_ {
        Document(self)
    }

    fn governed_by<'a>(&'a self, policy: &'a Policy) -> impl Iterator<Item = Row<'a>> {
        let slots = self.known.iter().zip(&self.slots);
        slots.filter_map(move |(known, slot)| {
            let governed = slot.as_ref()?.governed.as_deref()?;
            let is_its = std::ptr::eq(&*governed.policy, policy);
            is_its.then_some(Row {
                of: Of::new(policy),
                stream: Stream::new(known.as_ref()?, governed),
                reason: self.reason(governed),
            })
        })
    }

    /// Explains the time of the next look, and what keeps the policy from being followed.
    fn reason(&self, governed: &Governed) -> String {
        let policy = &governed.policy;
        let mut reasons = vec![plan_reason(governed)];
        if policy.sentinel.is_some() && governed.cheap.is_none() {
            reasons.push("no stream is its sentinel".into());
        }
        if policy.spec.min_ns() < governed.min_ns {
            reasons.push(format!(
                "its source is read every {} at most (interval_min_ms)",
                duration(governed.min_ns)
            ));
        }
        if policy.spec.max_ns() > governed.max_ns {
            reasons.push(format!(
                "its source is read every {} at least (interval_max_ms)",
                duration(governed.max_ns)
            ));
        }
        let refused = policy.pressure.as_ref();
        let refused = refused.and_then(|trigger| self.pressure.reason(trigger));
        if let Some(refused) = refused {
            reasons.push(format!("no call under pressure: {refused}"));
        }
        reasons.join("; ")
    }
}

fn plan_reason(governed: &Governed) -> String {
    let Some(plan) = governed.planner.plan() else {
        return "it has not been looked at yet".into();
    };
    let wait = duration(plan.wait_ns);
    if governed.policy.spec.kind != PolicySpecKind::ErrorBounded {
        return format!("the next look is {wait} after the last");
    }
    let what = match plan.said {
        ValueBasis::Held => "the last value is assumed",
        ValueBasis::Forecast => "the forecast is assumed",
        ValueBasis::Derived => "the value is derived from the sentinel",
    };
    format!("{what}, and the next look is {wait} after the last")
}

struct Document<'a>(&'a Policies);

impl Serialize for Document<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut rows = serializer.serialize_seq(None)?;
        for standing in self.0.roster.iter() {
            let mut is_alone = true;
            for row in self.0.governed_by(&standing.policy) {
                rows.serialize_element(&row)?;
                is_alone = false;
            }
            if standing.beyond > 0 || is_alone {
                rows.serialize_element(&Row::without(standing))?;
            }
        }
        rows.end()
    }
}

/// A policy, and its state for one stream.
#[derive(Serialize)]
struct Row<'a> {
    #[serde(flatten)]
    of: Of<'a>,
    #[serde(flatten)]
    stream: Stream<'a>,
    reason: String,
}

impl<'a> Row<'a> {
    fn without(standing: &'a RosterEntry) -> Self {
        let reason = match standing.beyond {
            0 => "no stream of a source is of this name and has numbers, or another policy comes first".into(),
            beyond => format!(
                "{beyond} more of its streams are read as configured: at most {GOVERNED_MAX} have a policy"
            ),
        };
        Self {
            of: Of::new(&standing.policy),
            stream: Stream::default(),
            reason,
        }
    }
}

#[derive(Serialize)]
struct Of<'a> {
    name: &'a str,
    streams: String,
    kind: &'static str,
    error: Option<&'a str>,
    confidence: f64,
    #[serde(flatten)]
    origin: Origin<'a>,
    interval_min_ms: u64,
    interval_max_ms: u64,
    sentinel: Option<&'a str>,
    pressure: Option<&'a str>,
    weight: f64,
}

impl<'a> Of<'a> {
    fn new(policy: &'a Policy) -> Self {
        let spec = &policy.spec;
        Self {
            name: &spec.name,
            streams: spec.streams.join(", "),
            kind: spec.kind.as_str(),
            error: spec.error.as_deref(),
            confidence: spec.confidence,
            origin: Origin::of(policy),
            interval_min_ms: spec.interval_min_ms,
            interval_max_ms: spec.interval_max_ms,
            sentinel: spec.sentinel.as_deref(),
            pressure: spec.pressure.as_deref(),
            weight: spec.weight,
        }
    }
}

/// The origin of a policy: the configuration or a statement.
#[derive(Serialize)]
struct Origin<'a> {
    origin: &'static str,
    sql: Option<&'a str>,
    help: &'a str,
}

impl<'a> Origin<'a> {
    fn of(policy: &'a Policy) -> Self {
        let made = policy.made.as_ref();
        Self {
            origin: made.map_or("configured", |_| "made"),
            sql: made.map(|made| &*made.sql),
            help: made.map_or("", |made| &made.help),
        }
    }
}

/// The columns about one stream; all are null if the policy has no stream. A number that is NaN is
/// null too.
#[derive(Default, Serialize)]
struct Stream<'a> {
    stream: Option<&'a str>,
    labels: Option<LabelsJson<'a>>,
    source: Option<&'static str>,
    interval_ns: Option<i64>,
    wait_ns: Option<i64>,
    said: Option<&'static str>,
    wrong_share: Option<f64>,
    looks: Option<u64>,
    looks_per_s: Option<f64>,
    saved_share: Option<f64>,
}

impl<'a> Stream<'a> {
    fn new(known: &'a Descriptor, governed: &Governed) -> Self {
        let plan = governed.planner.plan();
        let is_bounded = governed.policy.spec.kind == PolicySpecKind::ErrorBounded;
        let said = plan.map(|plan| match plan.said {
            ValueBasis::Held => "held",
            ValueBasis::Forecast => "forecast",
            ValueBasis::Derived => "derived",
        });
        let looks_per_s = governed.planner.looks_per_s();
        let configured_s = seconds(governed.caps.interval_ns);
        let compared = looks_per_s.filter(|_| configured_s > 0.0);
        Self {
            stream: Some(known.name.as_str()),
            labels: Some(LabelsJson(&known.labels)),
            source: governed.source,
            interval_ns: Some(governed.interval_ns),
            wait_ns: plan.map(|plan| plan.wait_ns),
            said: said.filter(|_| is_bounded),
            wrong_share: plan.map(|plan| plan.wrong_share),
            looks: Some(governed.planner.looks()),
            looks_per_s,
            saved_share: compared.map(|rate| 1.0 - rate * configured_s),
        }
    }
}

/// The definition of a policy, and its origin.
#[derive(Serialize)]
struct Meant<'a> {
    #[serde(flatten)]
    spec: &'a PolicySpec,
    #[serde(flatten)]
    origin: Origin<'a>,
}

impl Policy {
    /// Returns the definition of the policy and its origin as JSON.
    pub(crate) fn document(&self) -> Json {
        json!(Meant {
            spec: &self.spec,
            origin: Origin::of(self),
        })
    }
}

fn duration(ns: i64) -> String {
    match ns {
        ns if ns < NS_PER_S => format!("{} ms", ns / NS_PER_MS),
        ns => format!("{:.1} s", seconds(ns)),
    }
}
