//! `baro control phases`: the phases of I/O on scheduled volumes.

use barograph_agent::{IO_PHASES_DOCUMENT, IoPhasesRow};
use barograph_client::SystemClock;
use barograph_model::Clock as _;
use clap::Args;

use super::super::documents::{DocumentRow, document, rows_of_scopes};
use super::super::output::plain;
use super::super::{Target, format, output};

const NS_PER_S: f64 = 1e9;

/// Arguments of `baro control phases`.
#[derive(Args)]
pub(super) struct Phases {
    /// Name of the volume, as the configuration has it [default: all]
    volume: Option<String>,
    /// Only those that are not over
    #[arg(long)]
    open: bool,
    #[command(flatten)]
    target: Target,
}

impl Phases {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let run_dir = self.target.run_dir();
        // The agent's own document is for its user alone; others have theirs in their scopes.
        let ours = document(&run_dir, IO_PHASES_DOCUMENT).ok().flatten();
        let mut rows: Vec<DocumentRow<IoPhasesRow>> = ours.unwrap_or_default();
        rows.extend(rows_of_scopes(&self.target, IO_PHASES_DOCUMENT)?);
        rows.retain(|row| {
            let is_of_volume = self.volume.as_ref().is_none_or(|it| *it == row.volume);
            is_of_volume && !(self.open && row.ended_ts.is_some())
        });
        if self.target.json {
            return output::print_json(&rows);
        }
        if rows.is_empty() {
            return output::print(
                "no phases of I/O: no program has begun one on a volume of [schedule.volumes] \
                 (docs/guide/scheduling.md says how they do)\n",
            );
        }
        let now_ns = SystemClock::new().now_ns();
        let cells: Vec<Vec<String>> = rows.iter().map(|row| cells(row, now_ns)).collect();
        output::print_table(
            &[
                "ID",
                "VOLUME",
                "APPLICATION",
                "JOB",
                "USER",
                "STATE",
                "SHARE",
                "BEGUN",
                "WAITED",
                "TOOK",
                "DONE",
                "OF",
                "WHY",
            ],
            &[0, 6, 7, 8, 9, 10, 11],
            &cells,
        )
    }
}

fn cells(row: &IoPhasesRow, now_ns: i64) -> Vec<String> {
    let text = |text: &str| plain(text).into_owned();
    let seconds = |seconds: f64| format::age((seconds * NS_PER_S) as i64);
    let since = |from: i64, to: i64| to.saturating_sub(from) as f64 / NS_PER_S;
    let started_ts = row.started_ts.unwrap_or(now_ns);
    let waited = row
        .waited_s
        .unwrap_or_else(|| since(row.begun_ts, started_ts));
    let took = match (row.took_s, row.started_ts) {
        (Some(took), _) => seconds(took),
        (None, Some(started)) => seconds(since(started, now_ns)),
        (None, None) => "-".to_owned(),
    };
    let share = match row.share > 0.0 {
        true => format::number(row.share, "ratio"),
        false => "-".to_owned(),
    };
    let declared = row.declared_bytes;
    vec![
        row.id.to_string(),
        text(&row.volume),
        text(&row.application),
        text(&row.job),
        text(&row.user),
        text(&row.state),
        share,
        format::age(now_ns.saturating_sub(row.begun_ts)),
        seconds(waited.max(0.0)),
        took,
        format::number(row.done_bytes as f64, "bytes"),
        declared.map_or_else(|| "-".into(), |bytes| format::number(bytes as f64, "bytes")),
        text(&row.reason),
    ]
}
