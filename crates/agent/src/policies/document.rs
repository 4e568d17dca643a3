//! What came of policies: the document `policies.json`, which is the table `policies`.

use barograph_forecast::interval::Said;
use barograph_model::{Descriptor, NS_PER_S};
use barograph_source::PolicySpecKind;
use serde_json::{Map, Value as Json, json};

use super::engine::{Governed, seconds};
use super::roster::Standing;
use super::{GOVERNED_MAX, Policies, Policy};

impl Policies {
    /// One row for each policy and stream; a policy without streams has one too, which says why.
    pub fn document(&self) -> Json {
        let mut rows = Vec::new();
        for standing in self.roster.iter() {
            let before = rows.len();
            let slots = self.known.iter().zip(&self.slots);
            for (known, slot) in slots {
                let governed = slot.as_ref().and_then(|slot| slot.governed.as_deref());
                if let (Some(known), Some(governed)) = (known, governed)
                    && std::ptr::eq(&*governed.policy, &*standing.policy)
                {
                    rows.push(self.row(known, governed));
                }
            }
            if standing.beyond > 0 || rows.len() == before {
                rows.push(row_without(standing));
            }
        }
        Json::Array(rows)
    }

    fn row(&self, known: &Descriptor, governed: &Governed) -> Json {
        let labels = known.labels.iter();
        let labels: Map<String, Json> = labels.map(|(k, v)| (k.to_owned(), v.into())).collect();
        let plan = governed.plan;
        let is_bounded = governed.policy.spec.kind == PolicySpecKind::ErrorBounded;
        let said = plan.map(|plan| match plan.said {
            Said::Held => "held",
            Said::Forecast => "forecast",
            Said::Derived => "derived",
        });
        let elapsed_ns = governed.newest_ns.saturating_sub(governed.first_ns);
        let rate = (governed.looks > 1 && elapsed_ns > 0)
            .then(|| (governed.looks - 1) as f64 / seconds(elapsed_ns));
        let configured = seconds(governed.caps.interval_ns);
        let saved = rate.filter(|_| configured > 0.0);
        let mut row = row_of(&governed.policy);
        row["stream"] = known.name.as_str().into();
        row["labels"] = Json::Object(labels);
        row["source"] = json!(governed.source);
        row["interval_ns"] = governed.interval_ns.into();
        row["wait_ns"] = json!(plan.map(|plan| plan.wait_ns));
        row["said"] = json!(said.filter(|_| is_bounded));
        let wrong = plan.map(|plan| plan.wrong_share);
        row["wrong_share"] = json!(wrong.filter(|share| share.is_finite()));
        row["looks"] = governed.looks.into();
        row["looks_per_s"] = json!(rate);
        row["saved_share"] = json!(saved.map(|rate| 1.0 - rate * configured));
        row["reason"] = self.reason(governed).into();
        row
    }

    /// Why it is looked at when it is, and what keeps its policy from being followed.
    fn reason(&self, governed: &Governed) -> String {
        let policy = &governed.policy;
        let mut reasons = vec![plan_reason(governed)];
        if policy.sentinel.is_some() && governed.cheap().is_none() {
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
    let Some(plan) = &governed.plan else {
        return "it was not looked at yet".into();
    };
    let wait = duration(plan.wait_ns);
    if governed.policy.spec.kind != PolicySpecKind::ErrorBounded {
        return format!("the next look is {wait} after the last");
    }
    let what = match plan.said {
        Said::Held => "what was seen is held",
        Said::Forecast => "what is forecast is said",
        Said::Derived => "what its sentinel says is derived",
    };
    format!("{what}, and the next look is {wait} after the last")
}

impl Policy {
    /// As it was meant, and where it comes from.
    pub fn document(&self) -> Json {
        let mut document = json!(self.spec);
        self.tell(&mut document);
        document
    }

    /// Where it comes from, its statement, and what it asks for beside the error.
    fn tell(&self, row: &mut Json) {
        let Self { spec, made, .. } = self;
        let made = made.as_ref();
        row["origin"] = made.map_or("configured", |_| "made").into();
        row["sql"] = json!(made.map(|made| &made.sql));
        row["help"] = made.map_or("", |made| &made.help).into();
        row["interval_min_ms"] = spec.interval_min_ms.into();
        row["interval_max_ms"] = spec.interval_max_ms.into();
        row["sentinel"] = json!(spec.sentinel);
        row["pressure"] = json!(spec.pressure);
        row["weight"] = spec.weight.into();
    }
}

fn row_of(policy: &Policy) -> Json {
    let spec = &policy.spec;
    let mut row = json!({
        "name": spec.name,
        "streams": spec.streams.join(", "),
        "kind": spec.kind.as_str(),
        "error": spec.error,
        "confidence": spec.confidence,
        "stream": null,
        "labels": null,
        "source": null,
        "interval_ns": null,
        "wait_ns": null,
        "said": null,
        "wrong_share": null,
        "looks": null,
        "looks_per_s": null,
        "saved_share": null,
        "reason": null,
    });
    policy.tell(&mut row);
    row
}

fn row_without(standing: &Standing) -> Json {
    let mut row = row_of(&standing.policy);
    row["reason"] = match standing.beyond {
        0 => "no stream of a source is of this name and has numbers, or another policy comes first".into(),
        beyond => format!(
            "{beyond} more of its streams are read as configured: at most {GOVERNED_MAX} have a policy"
        )
        .into(),
    };
    row
}

fn duration(ns: i64) -> String {
    match ns {
        ns if ns < NS_PER_S => format!("{} ms", ns / 1_000_000),
        ns => format!("{:.1} s", seconds(ns)),
    }
}
