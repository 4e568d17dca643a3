//! The Prometheus text exposition format 0.0.4 of all numeric and text streams.
//!
//! A stream whose resource has not been looked at for too long is left out: a scraper must never
//! take an old value for a new one.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;

use barograph_model::{Descriptor, Kind, NS_PER_S, Value, ValueType};
use barograph_stream::Latest;

use crate::Counts;
use crate::view::{Stream, View};

/// The type that scrapers look for.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// A stream is old after so many of its expected intervals without a look…
const OLD_INTERVALS: i64 = 3;
/// …but never before this.
const OLD_NS_MIN: i64 = 10 * NS_PER_S;

#[derive(Debug, Default)]
struct Family {
    kind: &'static str,
    help: String,
    seen: HashSet<String>,
    lines: String,
}

/// The exposition of a view at `now_ns`.
pub fn exposition(view: &View, now_ns: i64, counts: Counts) -> String {
    let node = view.segment().node();
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let (mut old, mut conflicting) = (0u64, 0u64);
    for stream in &view.streams {
        let Latest::Sample {
            sample, looked_ns, ..
        } = stream.handle.latest()
        else {
            continue;
        };
        if is_old(view, stream, looked_ns, now_ns) {
            old += 1;
            continue;
        }
        let descriptor = &stream.entry.descriptor;
        let (name, kind) = family_of(descriptor);
        let family = families.entry(name.clone()).or_insert_with(|| Family {
            kind,
            help: descriptor.help.clone(),
            ..Family::default()
        });
        let labels = labels_of(descriptor, &node);
        if family.kind != kind || !family.seen.insert(labels.clone()) {
            conflicting += 1;
            continue;
        }
        write_sample(&mut family.lines, &name, descriptor, &labels, &sample.value);
    }
    let mut out = String::new();
    for (name, family) in &families {
        write_head(&mut out, name, &family.help, family.kind);
        out.push_str(&family.lines);
    }
    write_own(
        &mut out,
        &node,
        counts,
        [("old", old), ("conflict", conflicting)],
    );
    out
}

/// Whether a stream that was last looked at then is too old to be given away as of now.
pub(crate) fn is_old(view: &View, stream: &Stream, looked_ns: i64, now_ns: i64) -> bool {
    let old_after_ns = view
        .interval_ns(stream)
        .saturating_mul(OLD_INTERVALS)
        .max(OLD_NS_MIN);
    now_ns.saturating_sub(looked_ns) > old_after_ns
}

/// Exposition name and type: counters end in `_total`, texts are the label of an `_info`.
pub(crate) fn family_of(descriptor: &Descriptor) -> (String, &'static str) {
    let name = format!("barograph_{}", descriptor.name.table());
    match (descriptor.value_type, descriptor.kind) {
        (ValueType::Text, _) => (format!("{name}_info"), "gauge"),
        (_, Kind::Counter) if name.ends_with("_total") => (name, "counter"),
        (_, Kind::Counter) => (format!("{name}_total"), "counter"),
        (_, Kind::Gauge | Kind::State) => (name, "gauge"),
    }
}

/// `device="vda",node="n1"`; the node unless the stream says so itself.
fn labels_of(descriptor: &Descriptor, node: &str) -> String {
    let mut out = String::new();
    let own_node = [("node", node)];
    let pairs = own_node
        .into_iter()
        .filter(|_| descriptor.labels.get("node").is_none());
    for (name, value) in descriptor.labels.iter().chain(pairs) {
        write_label(&mut out, name, value);
    }
    out
}

fn write_label(out: &mut String, name: &str, value: &str) {
    let comma = if out.is_empty() { "" } else { "," };
    let _ = write!(out, "{comma}{name}=\"");
    escape(out, value, true);
    out.push('"');
}

fn write_sample(out: &mut String, name: &str, d: &Descriptor, labels: &str, value: &Value) {
    let mut labels = labels.to_owned();
    if let Value::Text(text) = value {
        let mut label = String::from("value");
        while d.labels.get(&label).is_some() {
            label.push('_');
        }
        write_label(&mut labels, &label, text);
    }
    let _ = write!(out, "{name}{{{labels}}} ");
    // Writing to a String cannot fail.
    let _ = match value {
        Value::Int(v) => writeln!(out, "{v}"),
        Value::Bool(v) => writeln!(out, "{}", u8::from(*v)),
        Value::Text(_) => writeln!(out, "1"),
        Value::Float(v) if v.is_nan() => writeln!(out, "NaN"),
        Value::Float(v) if v.is_infinite() => {
            writeln!(out, "{}", if *v > 0.0 { "+Inf" } else { "-Inf" })
        }
        Value::Float(v) => writeln!(out, "{v:?}"),
    };
}

fn write_head(out: &mut String, name: &str, help: &str, kind: &str) {
    let _ = write!(out, "# HELP {name} ");
    escape(out, help, false);
    let _ = write!(out, "\n# TYPE {name} {kind}\n");
}

fn escape(out: &mut String, text: &str, in_quotes: bool) {
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if in_quotes => out.push_str("\\\""),
            c => out.push(c),
        }
    }
}

/// What the server knows of itself. The two underscores keep it apart from every stream: a stream's
/// name begins with a letter.
fn write_own(out: &mut String, node: &str, counts: Counts, left_out: [(&str, u64); 2]) {
    let mut node_label = String::new();
    write_label(&mut node_label, "node", node);
    let name = "barograph__metrics_left_out_streams";
    write_head(
        out,
        name,
        "Streams that have a sample and are not shown here, by reason.",
        "gauge",
    );
    for (reason, n) in left_out {
        let _ = writeln!(out, "{name}{{{node_label},reason=\"{reason}\"}} {n}");
    }
    let watchers = ("watchers", "gauge", "Watchers connected.", counts.watchers);
    let counters = [
        (
            "refused_connections_total",
            "Connections refused for lack of room.",
            counts.refused_connections,
        ),
        (
            "refused_watchers_total",
            "Watchers refused for lack of room.",
            counts.refused_watchers,
        ),
        (
            "skipped_ticks_total",
            "Ticks that watchers were too slow for.",
            counts.skipped_ticks,
        ),
    ];
    let counters = counters.map(|(name, help, n)| (name, "counter", help, n));
    for (name, kind, help, n) in std::iter::once(watchers).chain(counters) {
        let name = format!("barograph__server_{name}");
        write_head(out, &name, help, kind);
        let _ = writeln!(out, "{name}{{{node_label}}} {n}");
    }
}
