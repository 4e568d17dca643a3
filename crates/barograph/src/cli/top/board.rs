//! The content of the screen, gathered from the streams, without drawing.

use barograph_agent::tier_place;
use barograph_client::{HistoryRange, Observer};
use barograph_model::{NS_PER_S, Quality, Selector, Value};
use serde_json::{Value as Json, json};

use super::causes::{Cause, causes};

/// Seconds of history that a strip can show.
pub(super) const STRIP_SECONDS: usize = 240;
/// Length of history that is read for a strip, in ns: an unchanged value is appended again within
/// minutes.
const STRIP_NS: i64 = (STRIP_SECONDS as i64 + 300) * NS_PER_S;

/// A strip: one disk.
pub(super) struct Strip {
    /// Device name.
    pub device: String,
    /// Busy share per second, oldest first; `None` where nothing was measured.
    pub busy: Vec<Option<f64>>,
    /// Newest busy share.
    pub busy_now: Option<f64>,
    /// Bytes read per second.
    pub read: Option<f64>,
    /// Bytes written per second.
    pub write: Option<f64>,
    /// Seconds per request.
    pub latency: Option<f64>,
    /// Whether the agent reports it as saturated.
    pub saturated: bool,
    /// Whether the values above are out of date.
    pub stale: bool,
}

/// A tank: one tier of storage.
pub(super) struct Tank {
    /// Name of the tier.
    pub tier: String,
    /// Bytes that users can still write.
    pub available: f64,
    /// Used share of the bytes that users can have, 0 to 1.
    pub used: f64,
    /// Size in bytes.
    pub total: f64,
}

/// Everything on the screen.
pub(super) struct Board {
    /// Node name.
    pub node: String,
    /// Whether the agent lives.
    pub alive: bool,
    /// Age of the last heartbeat, in ns.
    pub heartbeat_age_ns: i64,
    /// The outlook sentence.
    pub outlook: String,
    /// Disks, busiest first.
    pub strips: Vec<Strip>,
    /// Tiers of storage: those on devices first, and of these the largest.
    pub tanks: Vec<Tank>,
    /// The causes of I/O, in one sentence: the stream `node.who.text`.
    pub who: String,
    /// The greatest causes, best evidence first.
    pub causes: Vec<Cause>,
}

impl Board {
    /// Reads everything from shared memory.
    pub(super) fn read(observer: &Observer) -> Self {
        let status = observer.status().ok();
        let alive = status.as_ref().is_some_and(|s| s.alive);
        let mut strips = strips(observer);
        strips.sort_by(|a, b| {
            b.busy_now
                .unwrap_or(0.0)
                .total_cmp(&a.busy_now.unwrap_or(0.0))
        });
        let sentence = match text(observer, "node.outlook.text") {
            Some(sentence) if alive => sentence,
            _ if alive => "calm".into(),
            _ => "the agent is dead: what is shown is old".into(),
        };
        Self {
            node: status.as_ref().map(|s| s.node.clone()).unwrap_or_default(),
            heartbeat_age_ns: status.map_or(0, |s| s.heartbeat_age_ns),
            alive,
            outlook: sentence,
            strips,
            tanks: tanks(observer),
            who: text(observer, "node.who.text").unwrap_or_else(|| "not known yet".into()),
            causes: causes(observer),
        }
    }

    /// The board as JSON, for `--json`.
    pub(super) fn to_json(&self) -> Json {
        json!({
            "node": self.node,
            "alive": self.alive,
            "heartbeat_age_ns": self.heartbeat_age_ns,
            "outlook": self.outlook,
            "disks": self.strips.iter().map(|s| json!({
                "device": s.device, "busy": s.busy_now, "read": s.read, "write": s.write,
                "latency": s.latency, "saturated": s.saturated, "stale": s.stale,
            })).collect::<Vec<_>>(),
            "tiers": self.tanks.iter().map(|t| json!({
                "tier": t.tier, "available": t.available, "used": t.used, "total": t.total,
            })).collect::<Vec<_>>(),
            "who": self.who,
            "causes": self.causes.iter().map(|c| json!({
                "kind": c.kind, "name": c.name, "read": c.read, "write": c.write,
                "device": Some(&c.device).filter(|device| !device.is_empty()),
            })).collect::<Vec<_>>(),
        })
    }
}

fn all(name: &str) -> Selector {
    Selector::parse(name).expect("a literal name")
}

fn text(observer: &Observer, name: &str) -> Option<String> {
    let value = observer.latest(&all(name)).into_iter().next()?;
    match value.sample?.value {
        Value::Text(text) => Some(text.to_string()),
        _ => None,
    }
}

/// The newest numbers of a metric, by the value of one of its labels.
fn by_label(observer: &Observer, name: &str, label: &str) -> Vec<(String, f64)> {
    let values = observer.latest(&all(name)).into_iter();
    values
        .filter_map(|v| {
            let key = v.descriptor.labels.get(label)?.to_owned();
            Some((key, v.sample?.value.as_f64()?))
        })
        .collect()
}

fn strips(observer: &Observer) -> Vec<Strip> {
    let newest = observer.latest(&all("disk.busy.ratio"));
    let rates = |name| by_label(observer, name, "device");
    let read = rates("disk.read.bytes_per_second");
    let write = rates("disk.write.bytes_per_second");
    let latencies = [
        rates("disk.read.latency.seconds"),
        rates("disk.write.latency.seconds"),
    ];
    let saturated = rates("node.saturated.seconds");
    let of = |list: &[(String, f64)], device: &str| {
        list.iter().find(|(d, _)| d == device).map(|(_, v)| *v)
    };
    newest
        .iter()
        .filter_map(|v| {
            let device = v.descriptor.labels.get("device")?.to_owned();
            let selector = all("disk.busy.ratio").with_label("device", device.clone());
            let window = HistoryRange {
                start_ns: v.looked_ns.saturating_sub(STRIP_NS),
                ..HistoryRange::default()
            };
            let history = observer.history(&selector, &window).into_iter().next();
            let samples = history.map(|h| h.samples).unwrap_or_default();
            let points: Vec<(i64, f64)> = samples
                .iter()
                .filter(|s| s.quality != Quality::Predicted)
                .filter_map(|s| Some((s.ts, s.value.as_f64()?)))
                .collect();
            let latency = latencies
                .iter()
                .filter_map(|l| of(l, &device))
                .reduce(f64::max);
            Some(Strip {
                busy: per_second(&points, v.looked_ns, STRIP_SECONDS),
                busy_now: v.sample.as_ref().and_then(|s| s.value.as_f64()),
                read: of(&read, &device),
                write: of(&write, &device),
                latency,
                saturated: of(&saturated, &device).is_some_and(|s| s > 0.0),
                stale: v.stale,
                device,
            })
        })
        .collect()
}

/// Converts samples, which exist only for changes, to one value per second up to `end_ns`: a value
/// holds until the next change, and there is none before the first.
fn per_second(points: &[(i64, f64)], end_ns: i64, seconds: usize) -> Vec<Option<f64>> {
    let mut next = 0;
    let mut held = None;
    (0..seconds)
        .map(|i| {
            let until_ns = end_ns - (seconds - 1 - i) as i64 * NS_PER_S;
            while let Some(&(ts, value)) = points.get(next).filter(|p| p.0 <= until_ns) {
                held = Some((ts, value));
                next += 1;
            }
            held.map(|(_, value)| value)
        })
        .collect()
}

fn tanks(observer: &Observer) -> Vec<Tank> {
    let totals = by_label(observer, "tier.total.bytes", "tier");
    let shares = by_label(observer, "tier.used.ratio", "tier");
    let of = |all: &[(String, f64)], tier: &str| {
        let found = all.iter().find(|(of, _)| of == tier);
        found.map(|(_, value)| *value)
    };
    let available = by_label(observer, "tier.available.bytes", "tier").into_iter();
    let tanks = available.filter_map(|(tier, available)| {
        Some(Tank {
            available,
            used: of(&shares, &tier)?,
            total: of(&totals, &tier)?,
            tier,
        })
    });
    in_order(tanks.collect())
}

fn in_order(mut tanks: Vec<Tank>) -> Vec<Tank> {
    tanks.sort_by(|a, b| {
        let by_place = tier_place(&a.tier).cmp(&tier_place(&b.tier));
        by_place.then_with(|| b.total.total_cmp(&a.total))
    });
    tanks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiers_on_devices_lead_by_size() {
        let tanks = [
            ("memory", 9.0),
            ("other", 8.0),
            ("nvme", 1.0),
            ("pfs", 5.0),
            ("hdd", 2.0),
        ];
        let tanks = tanks.map(|(tier, total)| Tank {
            tier: tier.to_owned(),
            available: 0.0,
            used: 0.0,
            total,
        });
        let tiers: Vec<_> = in_order(tanks.into()).into_iter().map(|t| t.tier).collect();
        assert_eq!(tiers, ["pfs", "hdd", "nvme", "other", "memory"]);
    }

    #[test]
    fn a_value_holds_until_the_next_change() {
        let s = NS_PER_S;
        let points = [(2 * s, 0.5), (4 * s, 0.9)];
        let expect = [None, Some(0.5), Some(0.5), Some(0.9), Some(0.9)];
        assert_eq!(per_second(&points, 5 * s, 5), expect);
        assert_eq!(per_second(&[], 5 * s, 2), [None, None]);
    }
}
