//! `baro interference`: the bandwidth that a reader will get from a device to which others write,
//! and the schedules of those writers.

use std::fmt::Write as _;

use barograph_agent::{INTERFERENCE_DOCUMENT, InterferenceRow};
use barograph_client::SystemClock;
use barograph_model::Clock as _;
use clap::Args;

use super::documents::{DocumentRow, document_of_agent};
use super::{Target, format, output};

/// Most steps ahead that are printed; `--json` has all.
const STEPS_SHOWN_MAX: usize = 12;
const RATE: &str = "bytes/s";

/// Arguments of `baro interference`.
#[derive(Args)]
pub(super) struct Interference {
    /// Name of the device: sda [default: all that are forecast]
    device: Option<String>,
    #[command(flatten)]
    target: Target,
}

impl Interference {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let run_dir = self.target.run_dir();
        let mut rows: Vec<DocumentRow<InterferenceRow>> =
            document_of_agent(&run_dir, INTERFERENCE_DOCUMENT)?;
        if let Some(device) = &self.device {
            let known: Vec<String> = devices(&rows).map(|row| row.device.clone()).collect();
            let name = device.strip_prefix("/dev/").unwrap_or(device);
            rows.retain(|row| row.device == name);
            if rows.is_empty() {
                anyhow::bail!("nothing is forecast of {name}: {}", others(&known));
            }
        }
        if self.target.json {
            return output::print_json(&rows);
        }
        if rows.is_empty() {
            return output::print(
                "no bandwidth is forecast: no control group has written to a disk since the agent \
                 began, or the first step has not passed; `baro doctor` says what is counted\n",
            );
        }
        let now_ns = SystemClock::new().now_ns();
        let pages: Vec<String> = devices(&rows)
            .map(|device| page(device, &rows, now_ns))
            .collect();
        output::print(&pages.join("\n"))
    }
}

/// The rows of the devices themselves.
fn devices(
    rows: &[DocumentRow<InterferenceRow>],
) -> impl Iterator<Item = &DocumentRow<InterferenceRow>> {
    rows.iter().filter(|row| row.writer.is_none())
}

fn others(known: &[String]) -> String {
    match known {
        [] => "no control group has written to a disk since the agent began, or the first step \
               has not passed"
            .to_owned(),
        known => format!(
            "there are {}; interference.devices names those that are wanted",
            known.join(", ")
        ),
    }
}

/// The text about one device.
fn page(device: &InterferenceRow, rows: &[DocumentRow<InterferenceRow>], now_ns: i64) -> String {
    let mut page = headline(device);
    let _ = writeln!(page, "why: {}", output::plain(&device.reason));
    if device.left_out > 0 {
        let _ = writeln!(
            page,
            "{} readings of groups are left out, as there is no room for them",
            device.left_out
        );
    }
    let of_device = rows.iter().filter(|row| row.device == device.device);
    let writers: Vec<Vec<String>> = of_device
        .filter_map(|row| Some(writer(row.writer.as_deref()?, row, now_ns)))
        .collect();
    if !writers.is_empty() {
        page.push('\n');
        page += &output::table(
            &[
                "WRITER",
                "EVERY",
                "NEXT",
                "WITHIN",
                "BURST",
                "MEAN RATE",
                "WHY",
            ],
            &[1, 2, 3, 4, 5],
            &writers,
        );
    }
    let steps: Vec<Vec<String>> = device
        .steps
        .iter()
        .take(STEPS_SHOWN_MAX)
        .map(|step| {
            vec![
                when(step.ts, now_ns),
                format::number(step.bandwidth, RATE),
                format!("± {}", format::number(step.error, RATE)),
                step.follows.clone(),
            ]
        })
        .collect();
    if !steps.is_empty() {
        page.push('\n');
        page += &output::table(
            &["STEP", "BANDWIDTH", "WITHIN", "FOLLOWS"],
            &[0, 1, 2],
            &steps,
        );
    }
    page
}

/// The first line: the device, what it can do, and what a reader gets of it.
fn headline(device: &InterferenceRow) -> String {
    let capacity = match (device.capacity, &device.capacity_source) {
        (Some(capacity), Some(source)) => format!(
            "of at most {} ({})",
            format::number(capacity, RATE),
            output::plain(source)
        ),
        _ => "whose greatest bandwidth is not known".to_owned(),
    };
    let name = output::plain(&device.device);
    match (device.bandwidth, device.error) {
        (Some(bandwidth), Some(error)) => format!(
            "{name}, {capacity}: a reader gets {} ± {} in this step\n",
            format::number(bandwidth, RATE),
            format::number(error, RATE)
        ),
        _ => format!("{name}, {capacity}: no forecast\n"),
    }
}

fn writer(name: &str, row: &InterferenceRow, now_ns: i64) -> Vec<String> {
    let span = |ns: Option<i64>| ns.map_or_else(|| "-".to_owned(), format::span);
    vec![
        name.to_owned(),
        span(row.period_ns),
        next(row, now_ns).map_or_else(|| "-".to_owned(), |ts| when(ts, now_ns)),
        span(row.jitter_ns),
        row.burst_bytes
            .map_or_else(|| "-".to_owned(), |bytes| format::number(bytes, "bytes")),
        row.rate
            .map_or_else(|| "-".to_owned(), |rate| format::number(rate, RATE)),
        row.reason.clone(),
    ]
}

/// The next start of a writer as seen from now. The rows may be some periods old; a start that is
/// late by less than half a period is still to come.
fn next(row: &InterferenceRow, now_ns: i64) -> Option<i64> {
    let (next_ts, period_ns) = (row.next_ts?, row.period_ns.filter(|period| *period > 0)?);
    let late_ns = now_ns.saturating_sub(next_ts).max(0);
    let missed = late_ns.saturating_add(period_ns / 2) / period_ns;
    Some(next_ts.saturating_add(missed.saturating_mul(period_ns)))
}

/// A time as seen from now.
fn when(ts: i64, now_ns: i64) -> String {
    let ahead_ns = ts.saturating_sub(now_ns);
    match ahead_ns > 0 {
        true => format!("in {}", format::span(ahead_ns)),
        false => format!("{} ago", format::span(ahead_ns.saturating_neg())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const S: i64 = 1_000_000_000;

    fn rows() -> Vec<DocumentRow<InterferenceRow>> {
        let rows = json!([
            {
                "device": "sda", "capacity": 1.2e8, "capacity_source": "probed",
                "bandwidth": 6e7, "error": 1e7, "follows": "schedules", "reason": "step 1: x",
                "ts": 0, "left_out": 0,
                "steps": [{"ts": 60 * S, "bandwidth": 6e7, "error": 1e7, "follows": "schedules"}],
            },
            {
                "device": "sda", "writer": "/job\u{1b}", "periodic": true, "period_ns": 150 * S,
                "next_ts": 110 * S, "jitter_ns": S, "burst_bytes": 2e9, "rate": 1e7,
                "reason": "9 bursts keep to a period", "ts": 0,
            },
            {"device": "sdb", "reason": "not known", "ts": 0},
        ]);
        serde_json::from_value(rows).unwrap()
    }

    #[test]
    fn a_start_that_has_passed_is_followed_by_the_next() {
        let check = |now_s: i64, expect: Option<i64>| {
            let row = InterferenceRow {
                next_ts: Some(110 * S),
                period_ns: Some(10 * S),
                ..InterferenceRow::default()
            };
            assert_eq!(next(&row, now_s * S).map(|ts| ts / S), expect, "{now_s}");
        };
        check(100, Some(110));
        check(114, Some(110));
        check(115, Some(120));
        check(139, Some(140));
        assert_eq!(next(&InterferenceRow::default(), 0), None);
    }

    #[test]
    fn a_page_says_what_is_known_and_what_is_not() {
        let rows = rows();
        let text = page(&rows[0], &rows, 100 * S);
        for part in [
            "sda, of at most",
            "(probed): a reader gets",
            "why: step 1: x",
            "in 10 s",
            "2 min 30 s",
            "9 bursts keep to a period",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let unknown = page(&rows[2], &rows, 100 * S);
        let expect = "sdb, whose greatest bandwidth is not known: no forecast\nwhy: not known\n";
        assert_eq!(unknown, expect);
        assert_eq!(devices(&rows).count(), 2);
        assert!(others(&["sda".into()]).contains("there are sda;"));
    }
}
