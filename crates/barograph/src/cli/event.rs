//! `baro event`: what happened to files: the watched trees, past events, and new ones as they come.
//! Watching a tree anew needs the control right.

use std::path::{Path, PathBuf};
use std::time::Duration;

use barograph_client::{
    Cell, EventFilter, EventGap, EventStart, FeedItem, Observer, Rows, SystemClock, event_json,
};
use barograph_event::{EventFlags, EventKind, FileEvent, SOURCE_LABEL, decode};
use barograph_model::{Clock as _, SqlLimits, instant_ns};
use clap::{Args, Subcommand};

use super::statement::{carry_out, done, drop_of};
use super::{Target, Usage, output};

/// The path to which statements go.
const STATEMENTS: &str = "/api/v1/statements";
/// Longest wait before the command checks whether it should end.
const SLICE: Duration = Duration::from_millis(500);

/// Arguments of `baro event`.
#[derive(Args)]
pub(super) struct Event {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// List the watched trees, and what each has seen and missed
    #[command(visible_alias = "ls")]
    List {
        #[command(flatten)]
        target: Target,
    },
    /// Watch a tree from now on: baro event add /data
    Add(Add),
    /// Watch a tree no longer; its past events are kept
    Drop {
        /// Name of the watch
        name: String,
        #[command(flatten)]
        target: Target,
    },
    /// Show past events, the newest last
    History(History),
    /// Follow events as they happen, one line each. A path that no watch covers is watched from
    /// now on
    Watch(Watch),
}

/// A tree that is to be watched.
#[derive(Args)]
struct Add {
    /// The directory, which is watched with everything below it
    path: PathBuf,
    /// Name of the watch [default: words of the path]
    #[arg(long)]
    name: Option<String>,
    /// Users who may read its events: owner or all
    #[arg(long, default_value = "owner")]
    readers: String,
    /// How it is watched [default: inotify]
    #[arg(long, value_name = "COLLECTOR")]
    by: Option<String>,
    /// Time between two walks, where walks are compared, like '5 min' [default: 5 min]
    #[arg(long, value_name = "TIME")]
    every: Option<String>,
    /// Threads of a walk with `--by scan`, 1 to 64: more pay where the file system answers slowly
    /// [default: 1]
    #[arg(long, value_name = "N")]
    threads: Option<u32>,
    #[command(flatten)]
    target: Target,
}

/// Which events are shown.
#[derive(Args)]
struct Filter {
    /// File or directory: events of it and of what is below it [default: all]
    path: Option<PathBuf>,
    /// Kinds of events: create,unlink,rename
    #[arg(long, value_name = "KIND,…", value_delimiter = ',', value_parser = kind)]
    kind: Vec<EventKind>,
    /// Name of a source, as `baro event list` has it
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
}

#[derive(Args)]
struct History {
    #[command(flatten)]
    filter: Filter,
    /// Start of the range: nanoseconds, RFC 3339 or a time ago
    #[arg(
        long,
        value_name = "TIME",
        default_value = "-1h",
        allow_hyphen_values = true
    )]
    start: String,
    /// End of the range [default: now]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    stop: Option<String>,
    /// Most events: the newest ones are shown
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    limit: u32,
    #[command(flatten)]
    target: Target,
}

#[derive(Args)]
struct Watch {
    #[command(flatten)]
    filter: Filter,
    /// Begin with past events from this time on: nanoseconds, RFC 3339 or a time ago [default: new
    /// events only]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    since: Option<String>,
    /// End after this many events
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    #[command(flatten)]
    target: Target,
}

fn kind(word: &str) -> Result<EventKind, String> {
    EventKind::parse(word).ok_or_else(|| {
        let all: Vec<&str> = EventKind::ALL.iter().map(|kind| kind.as_str()).collect();
        format!("the kinds are {}", all.join(", "))
    })
}

impl Event {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self.verb {
            Verb::List { target } => list(&target),
            Verb::Add(add) => add.run(),
            Verb::Drop { name, target } => {
                let dropped = carry_out(&target, STATEMENTS, &drop_of("WATCH", &name))?;
                done(&target, &dropped, &format!("dropped {}", name.trim()))
            }
            Verb::History(history) => history.run(),
            Verb::Watch(watch) => watch.run(),
        }
    }
}

fn list(target: &Target) -> anyhow::Result<()> {
    let columns = "name, path, collector, state, events, directories, gaps, reconciled, unresolved, \
                   waiting_bytes, trouble";
    let sql = format!("SELECT {columns} FROM watches ORDER BY name");
    let rows = target.observer()?.sql(&sql, &SqlLimits::default())?;
    if target.json {
        return output::print_json_text(&String::from_utf8_lossy(&rows.to_json_rows()));
    }
    if rows.is_empty() {
        return output::print(
            "no tree is watched: `baro event add /data`, or [[event.watch]] in the configuration\n",
        );
    }
    let headings = [
        "WATCH",
        "PATH",
        "BY",
        "STATE",
        "EVENTS",
        "DIRECTORIES",
        "GAPS",
        "RECONCILED",
        "UNRESOLVED",
        "WAITING",
        "TROUBLE",
    ];
    output::print_table(&headings, &[4, 5, 6, 7, 8, 9], &super::sql::texts(&rows))
}

impl Add {
    fn run(self) -> anyhow::Result<()> {
        let path = std::fs::canonicalize(&self.path)
            .map_err(|error| Usage(format!("{}: {error}", self.path.display())))?;
        let name = self.name.unwrap_or_else(|| name_of(&path));
        let by = self.by.map(|by| format!(" BY '{}'", quoted(&by)));
        let every = self
            .every
            .map(|every| format!(" EVERY '{}'", quoted(&every)));
        let threads = self.threads.map(|threads| format!(" THREADS {threads}"));
        let sql = format!(
            "CREATE WATCH {name} ON '{}' READERS '{}'{}{}{}",
            quoted(&path.to_string_lossy()),
            quoted(&self.readers),
            by.unwrap_or_default(),
            every.unwrap_or_default(),
            threads.unwrap_or_default()
        );
        let made = carry_out(&self.target, STATEMENTS, &sql)?;
        done(
            &self.target,
            &made,
            &format!("watching {} as {name}", path.display()),
        )
    }
}

/// A name made of the words of a path.
fn name_of(path: &Path) -> String {
    let text = path.to_string_lossy().to_lowercase();
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let name = words.join("_");
    match name.starts_with(|c: char| c.is_ascii_lowercase()) {
        true => name,
        false => format!("watch_{name}"),
    }
}

/// Has a path watched that no watch covers, and says so.
fn cover(target: &Target, observer: &Observer, path: &Path) -> anyhow::Result<()> {
    let rows = observer.sql("SELECT path FROM watches", &SqlLimits::default())?;
    let is_covered = (0..rows.len()).any(|row| match rows.get(row, 0) {
        Some(Cell::Text(root)) => path.starts_with(&**root),
        _ => false,
    });
    if is_covered || !path.is_dir() {
        return Ok(());
    }
    let name = name_of(path);
    let sql = format!(
        "CREATE WATCH {name} ON '{}'",
        quoted(&path.to_string_lossy())
    );
    carry_out(target, STATEMENTS, &sql)?;
    output::tell(&format!(
        "baro: {} is watched from now on; `baro event drop {name}` ends it\n",
        path.display()
    ));
    Ok(())
}

impl History {
    fn run(self) -> anyhow::Result<()> {
        let observer = self.target.observer()?;
        let mut wanted = vec![format!("ts >= '{}'", quoted(&self.start))];
        if let Some(stop) = &self.stop {
            wanted.push(format!("ts < '{}'", quoted(stop)));
        }
        if let Some(source) = &self.filter.source {
            wanted.push(format!("{SOURCE_LABEL} = '{}'", quoted(source)));
        }
        if !self.filter.kind.is_empty() {
            let kinds: Vec<String> = self.filter.kind.iter().map(|k| format!("'{k}'")).collect();
            wanted.push(format!("kind IN ({})", kinds.join(", ")));
        }
        let printer = Printer::new(self.filter, self.target.json)?;
        if let Some(path) = &printer.filter.path {
            let path = quoted(path.to_string_lossy().trim_end_matches('/'));
            // What begins with `PATH/` is before `PATH0`: 0 follows / in ASCII.
            let is_below = |column: &str| {
                format!("{column} = '{path}' OR {column} >= '{path}/' AND {column} < '{path}0'")
            };
            wanted.push(format!(
                "({} OR {})",
                is_below("path"),
                is_below("old_path")
            ));
        }
        let sql = format!(
            "SELECT ts, value, {SOURCE_LABEL} FROM events WHERE {} ORDER BY ts DESC, idx DESC LIMIT {}",
            wanted.join(" AND "),
            self.limit
        );
        let limits = SqlLimits {
            rows_max: usize::MAX,
            ..SqlLimits::default()
        };
        let rows = observer.sql(&sql, &limits)?;
        let events = (0..rows.len()).rev();
        let events = events.filter_map(|row| event_of(&rows, row));
        if self.target.json {
            let events = events.map(|(event, source)| event_json(&event, &source));
            return output::print_json(&events.collect::<Vec<_>>());
        }
        for (event, source) in events {
            printer.print(&event, &source)?;
        }
        Ok(())
    }
}

impl Watch {
    fn run(self) -> anyhow::Result<()> {
        let observer = self.target.observer()?;
        let start = match self.since.as_deref() {
            Some(since) => EventStart::Since(
                instant_ns(since, SystemClock::new().now_ns())
                    .map_err(|error| Usage(format!("--since {error}")))?,
            ),
            None => EventStart::Now,
        };
        let printer = Printer::new(self.filter, self.target.json)?;
        if let Some(path) = &printer.filter.path {
            cover(&self.target, &observer, path)?;
        }
        let mut feed = observer.events(printer.filter.clone(), start)?;
        let mut left = self.count.unwrap_or(u64::MAX);
        while left > 0 {
            match feed.next(SLICE) {
                Some(FeedItem::Event(event, source)) => {
                    printer.print(&event, &source)?;
                    left -= 1;
                }
                Some(FeedItem::Gap(gap)) => tell_gap(&gap),
                None => {}
            }
        }
        Ok(())
    }
}

/// Tells that events are missing.
fn tell_gap(gap: &EventGap) {
    let count = gap
        .missing
        .map_or("events".to_owned(), |count| format!("{count} events"));
    let until = gap
        .before
        .map_or(String::new(), |index| format!(" and before {index}"));
    output::tell(&format!(
        "baro: {count} of {} after {}{until} are missing: {}\n",
        gap.source, gap.after, gap.reason
    ));
}

/// The event of a row of `ts`, `value` and source.
pub(super) fn event_of(rows: &Rows, row: usize) -> Option<(FileEvent, String)> {
    let (Cell::Int(ts), Cell::Blob(record)) = (rows.get(row, 0)?, rows.get(row, 1)?) else {
        return None;
    };
    let source = match rows.get(row, 2)? {
        Cell::Text(source) => source.to_string(),
        _ => String::new(),
    };
    Some((decode(record, *ts).ok()?, source))
}

pub(super) fn quoted(text: &str) -> String {
    text.replace('\'', "''")
}

/// Prints the events that are wanted.
struct Printer {
    filter: EventFilter,
    is_json: bool,
}

impl Printer {
    fn new(filter: Filter, is_json: bool) -> anyhow::Result<Self> {
        let path = filter.path.map(|path| match std::fs::canonicalize(&path) {
            Ok(path) => Ok(path),
            // It may have been removed: then it is taken as it is written.
            Err(_) if path.is_absolute() => Ok(path),
            Err(error) => Err(Usage(format!("{}: {error}", path.display()))),
        });
        let filter = EventFilter {
            kinds: filter.kind,
            path: path.transpose()?,
            glob: None,
            source: filter.source,
        };
        Ok(Self { filter, is_json })
    }

    fn print(&self, event: &FileEvent, source: &str) -> anyhow::Result<()> {
        let is_reconciled = event.flags.has(EventFlags::RECONCILED);
        let is_complete = !event
            .flags
            .has(barograph_event::EventFlags::PATH_INCOMPLETE);
        if self.is_json {
            return output::print_json(&event_json(event, source));
        }
        let time = jiff::Timestamp::from_nanosecond(i128::from(event.ts))?;
        let path = match event.old_path.is_empty() {
            true => text(&event.path),
            false => format!("{} -> {}", text(&event.old_path), text(&event.path)),
        };
        let beginning = if is_complete { "" } else { "…/" };
        let found = if is_reconciled { "  (found later)" } else { "" };
        let line = format!(
            "{time:.3}  {:<11}  {beginning}{path}{found}",
            event.kind.as_str()
        );
        output::print(&format!("{}\n", output::plain(&line)))
    }
}

pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
