//! `baro control events`: control events of programs and agents, past ones and new ones as they
//! come.

use std::time::Duration;

use barograph_client::{Cell, ControlEvent, ControlFilter, Rows, SystemClock, control_event_json};
use barograph_model::{Clock as _, Pattern, Selector, SqlLimits};
use clap::Args;

use super::super::event::quoted;
use super::super::output::plain;
use super::super::{Target, Usage, format, output};

/// Longest wait before the command checks whether it should end.
const SLICE: Duration = Duration::from_millis(500);
/// The columns of a past event.
const COLUMNS: &str = "ts, node, application, job, rank, \"user\", kind, subject, value, confidence, \
                       sequence, pid, properties";

/// Arguments of `baro control events`.
#[derive(Args)]
pub(super) struct Events {
    /// Pattern of the kind: 'io.*' [default: all]
    #[arg(long, value_name = "GLOB")]
    kind: Option<String>,
    /// Pattern of the subject [default: all]
    #[arg(long, value_name = "GLOB")]
    subject: Option<String>,
    /// Labels of the source: job=7,application=lu*,node=n1 [default: all]
    #[arg(long, value_name = "LABELS", default_value = "")]
    source: String,
    /// Show new events as they come, and no past ones
    #[arg(long)]
    follow: bool,
    /// With --follow: properties that an event has: policy=set10*
    #[arg(long, value_name = "PAIRS", default_value = "", requires = "follow")]
    property: String,
    /// With --follow: least confidence, 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, requires = "follow")]
    confidence: f64,
    /// With --follow: end after this many events
    #[arg(long, value_name = "N", requires = "follow")]
    count: Option<u64>,
    /// Start of the range of past events: nanoseconds, RFC 3339 or a time ago
    #[arg(
        long,
        value_name = "TIME",
        default_value = "-1h",
        allow_hyphen_values = true
    )]
    start: String,
    /// Most past events: the newest ones are shown
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: u32,
    #[command(flatten)]
    target: Target,
}

impl Events {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self.follow {
            true => self.follow(),
            false => self.list(),
        }
    }

    fn follow(self) -> anyhow::Result<()> {
        let filter = ControlFilter {
            kind: self.kind.map(Pattern::new),
            subject: self.subject.map(Pattern::new),
            ..ControlFilter::default()
        };
        let filter = filter
            .with_sources(&self.source)
            .and_then(|filter| filter.with_properties(&self.property))
            .and_then(|filter| filter.with_confidence_min(self.confidence));
        let filter = filter.map_err(|fault| Usage(fault.to_string()))?;
        let mut events = self.target.observer()?.control_events(filter)?;
        let mut left = self.count.unwrap_or(u64::MAX);
        while left > 0 {
            let Some(event) = events.wait(SLICE) else {
                continue;
            };
            left -= 1;
            if event.missed > 0 {
                output::tell(&format!(
                    "baro: {} events of {} before this one were lost\n",
                    event.missed,
                    source_of(&event)
                ));
            }
            match self.target.json {
                true => output::print_json(&control_event_json(&event))?,
                false => output::print(&line(&event)?)?,
            }
        }
        Ok(())
    }

    fn list(self) -> anyhow::Result<()> {
        let observer = self.target.observer()?;
        let mut wanted = vec![format!("ts >= '{}'", quoted(&self.start))];
        let mut add = |column: &str, pattern: &str| {
            wanted.push(format!("{column} GLOB '{}'", quoted(&glob(pattern))));
        };
        if let Some(kind) = &self.kind {
            add("kind", kind);
        }
        if let Some(subject) = &self.subject {
            add("subject", subject);
        }
        let sources = Selector::parse(&format!("*{{{}}}", self.source));
        for (label, pattern) in sources.map_err(|fault| Usage(fault.to_string()))?.labels {
            // SQLite takes a name in double quotes that is no column for a text.
            add(&format!("[{}]", label.replace(']', "")), pattern.as_str());
        }
        // The table of all nodes is there as soon as another one is mirrored.
        let table = match observer.nodes().is_empty() {
            true => "control_events",
            false => "cluster_control_events",
        };
        let sql = |table: &str| {
            format!(
                "SELECT {COLUMNS} FROM {table} WHERE {} ORDER BY ts DESC LIMIT {}",
                wanted.join(" AND "),
                self.limit
            )
        };
        let limits = SqlLimits::default();
        let rows = observer.sql(&sql(table), &limits);
        let rows = match table {
            // Nobody else has published any.
            "cluster_control_events" => {
                rows.or_else(|_| observer.sql(&sql("control_events"), &limits))?
            }
            _ => rows?,
        };
        if self.target.json {
            return output::print_json_text(&String::from_utf8_lossy(&rows.to_json_rows()));
        }
        if rows.is_empty() {
            return output::print(
                "no control events since then (docs/guide/control-events.md says who publishes \
                 them)\n",
            );
        }
        let now_ns = SystemClock::new().now_ns();
        let cells: Vec<Vec<String>> = (0..rows.len())
            .rev()
            .map(|row| cells(&rows, row, now_ns))
            .collect();
        output::print_table(
            &[
                "AGE",
                "NODE",
                "SOURCE",
                "KIND",
                "SUBJECT",
                "VALUE",
                "CONFIDENCE",
                "SEQUENCE",
                "PROPERTIES",
            ],
            &[0, 5, 6, 7],
            &cells,
        )
    }
}

/// A pattern of ours as SQLite has it, which knows sets of characters as well.
fn glob(pattern: &str) -> String {
    pattern.replace('[', "[[]")
}

fn cells(rows: &Rows, row: usize, now_ns: i64) -> Vec<String> {
    let text = |column: usize| match rows.get(row, column) {
        Some(Cell::Text(text)) => plain(text).into_owned(),
        _ => String::new(),
    };
    let number = |column: usize| match rows.get(row, column) {
        Some(Cell::Real(value)) => value.to_string(),
        Some(Cell::Int(value)) => value.to_string(),
        _ => "-".to_owned(),
    };
    let age = match rows.get(row, 0) {
        Some(Cell::Int(ts)) => format::age(now_ns.saturating_sub(*ts)),
        _ => String::new(),
    };
    let source = source(&text(2), &text(3), &text(4));
    let properties = match text(12) {
        empty if empty == "{}" => String::new(),
        properties => properties,
    };
    vec![
        age,
        text(1),
        source,
        text(6),
        text(7),
        number(8),
        number(9),
        number(10),
        properties,
    ]
}

/// Who has published an event, in a word.
fn source(application: &str, job: &str, rank: &str) -> String {
    let part = |word: &str, of: &str| match of {
        "" => String::new(),
        of => format!(" {word} {of}"),
    };
    match application {
        "" => "agent".to_owned(),
        application => format!("{application}{}{}", part("job", job), part("rank", rank)),
    }
}

fn source_of(event: &ControlEvent) -> String {
    let label = |name: &str| event.label(name).unwrap_or_default();
    source(label("application"), label("job"), label("rank"))
}

/// An event in one line.
fn line(event: &ControlEvent) -> anyhow::Result<String> {
    let time = jiff::Timestamp::from_nanosecond(i128::from(event.ts))?;
    let value = event
        .value
        .map_or(String::new(), |value| format!(" {value}"));
    let properties = event.properties.iter();
    let properties: String = properties
        .map(|(name, text)| format!("  {name}={text}"))
        .collect();
    let line = format!(
        "{time:.3}  {}  {}  {} {}{value}  confidence {}{properties}",
        event.node,
        source_of(event),
        event.kind,
        event.subject,
        event.confidence
    );
    Ok(format!("{}\n", plain(&line)))
}
