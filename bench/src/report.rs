//! The rows of results: printed as they come, written as JSON at the end.

use std::fs;
use std::path::PathBuf;

use serde_json::{Map, Value as Json, json};

/// The reason why a case has no figure.
pub(crate) type Fault = Box<dyn std::error::Error>;

/// The results, in the order of running.
pub(crate) struct Report {
    rows: Vec<Json>,
    /// Rows of earlier runs, for the cases that this one leaves out.
    kept: Vec<Json>,
    failures: usize,
}

impl Report {
    /// Prints the conditions under which the run begins. A `whole` run forgets earlier ones.
    pub(crate) fn begin(whole: bool) -> Self {
        println!("{}, load {}", machine(), load());
        println!(
            "{:<15} {:<48} {:>11} {:<10} peers",
            "id", "case", "ours", "unit"
        );
        let kept = if whole {
            Vec::new()
        } else {
            rows().unwrap_or_default()
        };
        Self {
            rows: Vec::new(),
            kept,
            failures: 0,
        }
    }

    /// Adds one figure and those of the peers in the same run.
    pub(crate) fn row(
        &mut self,
        id: &str,
        case: &str,
        ours: f64,
        unit: &str,
        peers: &[(&str, f64)],
    ) {
        let peers: Map<String, Json> = peers
            .iter()
            .map(|(name, v)| ((*name).to_owned(), json!(v)))
            .collect();
        self.row_with(id, case, ours, unit, json!({ "peers": peers }));
    }

    /// Adds one figure with more that a page tells of it; `peers` in `more` is as in [`Self::row`].
    pub(crate) fn row_with(&mut self, id: &str, case: &str, ours: f64, unit: &str, more: Json) {
        let mut row = json!({
            "id": id, "case": case, "ours": ours, "unit": unit, "peers": {}, "load": load(),
        });
        if let (Some(row), Json::Object(more)) = (row.as_object_mut(), more) {
            row.extend(more);
        }
        println!(
            "{id:<15} {case:<48} {:>11} {unit:<10} {}",
            short(ours),
            peers_of(&row, ", ")
        );
        self.rows.push(row);
    }

    /// Adds the versions of programs that a case has used.
    pub(crate) fn versions(&mut self, id: &str, versions: &[String]) {
        println!("{id:<15} {}", versions.join(", "));
        self.rows.push(json!({
            "id": "versions", "case": id, "ours": versions.len(), "unit": "programs", "peers": {},
            "versions": versions, "load": load(),
        }));
    }

    /// Reports a case without a figure; the run continues, and ends in failure.
    pub(crate) fn failed(&mut self, id: &str, fault: &Fault) {
        println!("{id:<18} FAILED: {fault}");
        self.failures += 1;
    }

    /// Reports a peer that this machine does not have.
    pub(crate) fn skipped(&mut self, peer: &str, why: &str) {
        println!("SKIPPED peer {peer}: {why}");
    }

    /// Writes `target/bench.json`.
    pub(crate) fn finish(mut self) -> Result<(), Fault> {
        let same = |a: &Json, b: &Json| a["id"] == b["id"] && a["case"] == b["case"];
        let mut rows: Vec<Json> = Vec::new();
        for old in std::mem::take(&mut self.kept) {
            let new = self.rows.iter().position(|row| same(row, &old));
            rows.push(new.map_or(old, |at| self.rows.remove(at)));
        }
        rows.append(&mut self.rows);
        fs::write(path(), serde_json::to_string_pretty(&rows)?)?;
        println!("load at the end {}; rows in target/bench.json", load());
        match self.failures {
            0 => Ok(()),
            n => Err(format!("{n} cases failed").into()),
        }
    }
}

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target/bench.json")
}

/// Reads the rows of earlier runs.
pub(crate) fn rows() -> Result<Vec<Json>, Fault> {
    Ok(serde_json::from_str(&fs::read_to_string(path())?)?)
}

/// Returns a description of processors and memory.
pub(crate) fn machine() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find_map(|l| l.strip_prefix("model name\t: "))
        .unwrap_or("unknown processor");
    let virtual_ = if cpuinfo.contains(" hypervisor") {
        ", virtual"
    } else {
        ""
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kb = meminfo.lines().find_map(|l| {
        l.strip_prefix("MemTotal:")?
            .trim()
            .strip_suffix(" kB")?
            .parse()
            .ok()
    });
    format!(
        "{cores} x {model}{virtual_}, {:.0} GB",
        kb.unwrap_or(0.0) / 1e6
    )
}

/// Returns the one-minute load average.
fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ')
        .next()
        .and_then(|t| t.parse().ok())
        .unwrap_or(f64::NAN)
}

/// Formats the peers of a row.
pub(crate) fn peers_of(row: &Json, between: &str) -> String {
    let ours = row["ours"].as_f64().unwrap_or(f64::NAN);
    let unit = row["unit"].as_str().unwrap_or_default();
    let peers = row["peers"].as_object().into_iter().flatten();
    let shown: Vec<String> = peers
        .map(|(name, v)| {
            format!(
                "{name}: {}",
                beside(ours, v.as_f64().unwrap_or(f64::NAN), unit)
            )
        })
        .collect();
    shown.join(between)
}

/// Formats a peer's figure, and the factor by which ours is better. Shares have no factor.
pub(crate) fn beside(ours: f64, peer: f64, unit: &str) -> String {
    let factor = if unit.ends_with("/s") {
        ours / peer
    } else {
        peer / ours
    };
    match unit {
        "%" | "share" => short(peer),
        _ => format!("{} ({}x)", short(peer), short(factor)),
    }
}

/// Formats a number for people.
pub(crate) fn short(v: f64) -> String {
    match v.abs() {
        0.0 => "0".to_owned(),
        a if a >= 1e6 => format!("{:.2} M", v / 1e6),
        a if a >= 100.0 => format!("{v:.0}"),
        a if a >= 1.0 => format!("{v:.2}"),
        a if a >= 0.01 => format!("{v:.3}"),
        _ => format!("{v:.5}"),
    }
}
