//! `baro control replay`: how the recorded phases of I/O would have fared under each policy.

use anyhow::Context as _;
use barograph_client::{Cell, Rows, SystemClock};
use barograph_control::{AdaptiveConfig, SchedulePolicy};
use barograph_lab::io_record::{IoRecord, PhaseFrame};
use barograph_lab::storage::{ScheduleQuality, replay};
use barograph_model::{Clock as _, SqlLimits, instant_ns};
use clap::Args;
use serde_json::json;

use super::super::event::quoted;
use super::super::{Target, Usage, format, output};

/// The columns of a frame that are no labels of its process.
const FIELDS: [&str; 11] = [
    "ts",
    "frame",
    "stage",
    "declared_bytes",
    "done_bytes",
    "priority",
    "volume",
    "user",
    "application",
    "job",
    "left_out",
];

/// Arguments of `baro control replay`.
#[derive(Args)]
pub(super) struct Replay {
    /// The volume, as programs have named it: a path, or a name [default: all, as if they were one]
    volume: Option<String>,
    /// Since when: a time, or a span like -1d
    #[arg(
        long,
        value_name = "TIME",
        default_value = "-1d",
        allow_hyphen_values = true
    )]
    since: String,
    /// Bytes/s when one application alone uses the volume [default: what those reached that had it
    /// for themselves]
    #[arg(long, value_name = "BYTES/S")]
    bandwidth: Option<f64>,
    /// How much applications at a time cost each other: k of them get 1 / (1 + this * (k - 1)) of
    /// the bandwidth
    #[arg(long, value_name = "SHARE", default_value_t = 0.1)]
    interference: f64,
    /// Seconds of a turn
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    turn: f64,
    #[command(flatten)]
    target: Target,
}

impl Replay {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let is_possible =
            (0.0..=100.0).contains(&self.interference) && (1e-3..=1e6).contains(&self.turn);
        if !is_possible {
            let text = "--interference must be 0 to 100, and --turn 0.001 to 1000000";
            return Err(Usage(text.into()).into());
        }
        let frames = self.frames()?;
        let record = IoRecord::of(&frames);
        let bandwidth = self.bandwidth.or_else(|| record.bandwidth());
        let Some(bandwidth) = bandwidth.filter(|it| it.is_finite() && *it > 0.0) else {
            let told = match frames.iter().any(|frame| frame.stage == 0) {
                true => "every phase that has ended says that it has read and written nothing",
                false => "no phase of I/O has ended",
            };
            anyhow::bail!(
                "{told} since {}: programs say when they begin and end, and how much they have done \
                 (docs/guide/scheduling.md)",
                self.since
            );
        };
        let phases = record.to_replay();
        let mut rows = vec![("as recorded".to_owned(), record.quality(bandwidth))];
        rows.extend(self.policies().into_iter().map(|policy| {
            let quality = replay(&policy, bandwidth, self.interference, &phases);
            (policy.name().to_owned(), quality)
        }));
        rows.push((
            "all at a time".to_owned(),
            replay(
                &SchedulePolicy::Fair { most: usize::MAX },
                bandwidth,
                self.interference,
                &phases,
            ),
        ));
        if self.target.json {
            return output::print_json(&json!({
                "since": self.since,
                "phases": record.len(),
                "applications": record.applications(),
                "bandwidth": bandwidth,
                "interference": self.interference,
                "policies": rows.iter().map(json_row).collect::<Vec<_>>(),
            }));
        }
        output::print(&format!(
            "{} phases of {} applications since {}, on a volume of {}\n",
            record.len(),
            record.applications(),
            self.since,
            format::number(bandwidth, "bytes/s"),
        ))?;
        let cells: Vec<Vec<String>> = rows.iter().map(row).collect();
        output::print_table(
            &[
                "POLICY",
                "UTILISATION",
                "SLOWDOWN",
                "WORST",
                "STRETCH",
                "WORST",
            ],
            &[1, 2, 3, 4, 5],
            &cells,
        )
    }

    fn policies(&self) -> Vec<SchedulePolicy> {
        let turn_s = self.turn;
        vec![
            SchedulePolicy::Fcfs,
            SchedulePolicy::RoundRobin { turn_s },
            SchedulePolicy::Fair { most: 2 },
            SchedulePolicy::ShortestFirst,
            SchedulePolicy::LeastLeft { ageing_s: 100.0 },
            SchedulePolicy::Priority,
            SchedulePolicy::WorstSlowdown { turn_s },
            SchedulePolicy::Set10 {
                most: 4,
                by_left: false,
            },
            SchedulePolicy::Set10 {
                most: 4,
                by_left: true,
            },
            SchedulePolicy::Adaptive(AdaptiveConfig {
                turn_s,
                ..AdaptiveConfig::default()
            }),
        ]
    }

    /// The frames of phases that this user may read.
    fn frames(&self) -> anyhow::Result<Vec<PhaseFrame>> {
        let since = instant_ns(&self.since, SystemClock::new().now_ns())
            .map_err(|error| Usage(format!("--since {error}")))?;
        let of_volume = self.volume.as_ref().map_or_else(String::new, |volume| {
            let volume = quoted(volume);
            let below = format!("{}/", volume.trim_end_matches('/'));
            format!("WHERE volume = '{volume}' OR substr(volume, 1, length('{below}')) = '{below}'")
        });
        let sql = format!("SELECT * FROM frames('io.phase', {since}) {of_volume} ORDER BY ts");
        let limits = SqlLimits {
            rows_max: usize::MAX,
            ..SqlLimits::default()
        };
        let rows = self.target.observer()?.sql(&sql, &limits);
        let rows = rows.context("cannot read the recorded phases")?;
        Ok((0..rows.len())
            .filter_map(|row| frame(&rows, row))
            .collect())
    }
}

/// The frame in a row; `None` for one that says nothing of a phase.
fn frame(rows: &Rows, row: usize) -> Option<PhaseFrame> {
    let cell = |name: &str| {
        let at = rows
            .columns()
            .iter()
            .position(|column| column.name == name)?;
        rows.get(row, at)
    };
    let int = |name: &str| match cell(name) {
        Some(Cell::Int(value)) => Some(*value),
        _ => None,
    };
    let text = |name: &str| match cell(name) {
        Some(Cell::Text(text)) => &**text,
        _ => "",
    };
    let labels = rows.columns().iter().enumerate();
    let labels = labels.filter(|(_, column)| !FIELDS.contains(&&*column.name));
    let process = labels.filter_map(|(at, column)| match rows.get(row, at) {
        Some(Cell::Text(text)) => Some(format!("{}={text}", column.name)),
        _ => None,
    });
    Some(PhaseFrame {
        ts: int("ts")?,
        application: [text("user"), text("application"), text("job")].join("\0"),
        process: process.collect::<Vec<_>>().join("\0"),
        phase: int("frame")?,
        stage: int("stage")?,
        declared: int("declared_bytes"),
        done: int("done_bytes").unwrap_or(0),
        priority: int("priority"),
    })
}

fn row((name, quality): &(String, ScheduleQuality)) -> Vec<String> {
    vec![
        name.clone(),
        format!("{:.3}", quality.utilisation),
        format!("{:.2}", quality.slowdown),
        format!("{:.2}", quality.slowdown_worst),
        format!("{:.3}", quality.stretch),
        format!("{:.2}", quality.stretch_worst),
    ]
}

fn json_row((name, quality): &(String, ScheduleQuality)) -> serde_json::Value {
    json!({
        "policy": name,
        "utilisation": quality.utilisation,
        "slowdown": quality.slowdown,
        "slowdown_worst": quality.slowdown_worst,
        "stretch": quality.stretch,
        "stretch_worst": quality.stretch_worst,
    })
}
