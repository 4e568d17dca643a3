//! `baro event`: what happened to files: the watched trees, past events, and new ones as they come.
//! Watching a tree anew needs the control right.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use barograph_client::{Cell, Observer, Rows, Update};
use barograph_event::{EVENT_STREAM, EventFlags, EventKind, FileEvent, SOURCE_LABEL, decode};
use barograph_model::{Labels, NS_PER_S, Pattern, Selector, SqlLimits, Value};
use clap::{Args, Subcommand};
use serde_json::json;

use super::statement::{carry_out, done, drop_of};
use super::{Target, Usage, output};

/// The path to which statements go.
const STATEMENTS: &str = "/api/v1/statements";
/// Longest wait before the command checks whether it should end.
const SLICE: Duration = Duration::from_millis(500);
/// Longest wait for events that the ring no longer had to come to the log.
const LOG_WAIT: Duration = Duration::from_secs(5);
/// Pause between two looks into the log.
const LOG_PAUSE: Duration = Duration::from_millis(200);
/// Time before an event in which events with smaller numbers are looked for, in ns: a source's
/// times may go back.
const BACK_NS: i64 = 60 * NS_PER_S;

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
        let sql = format!(
            "CREATE WATCH {name} ON '{}' READERS '{}'{}",
            quoted(&path.to_string_lossy()),
            quoted(&self.readers),
            by.unwrap_or_default()
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
        if let Some(path) = &printer.path {
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
        let selector = Selector {
            name: Pattern::new(EVENT_STREAM),
            labels: self
                .filter
                .source
                .iter()
                .map(|source| (SOURCE_LABEL.to_owned(), Pattern::new(source)))
                .collect(),
        };
        let printer = Printer::new(self.filter, self.target.json)?;
        if let Some(path) = &printer.path {
            cover(&self.target, &observer, path)?;
        }
        let mut watch = observer.watch(&selector);
        let mut follower = Follower {
            observer: &observer,
            last: HashMap::new(),
        };
        // What is there already was told to others.
        for update in watch.next(Duration::ZERO).into_iter().flatten() {
            if let Some((event, labels)) = event_of_update(&update) {
                follower.last.insert(labels, event.index);
            }
        }
        let mut left = self.count.unwrap_or(u64::MAX);
        while left > 0 {
            for update in watch.next(SLICE).into_iter().flatten() {
                for (event, source) in follower.follow(&update)? {
                    if left > 0 && printer.wants(&event) {
                        printer.print(&event, &source)?;
                        left -= 1;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Follows sources without leaving out an event: what the ring no longer has is read from the log.
struct Follower<'a> {
    observer: &'a Observer,
    /// Number of the last event of each source.
    last: HashMap<Labels, u64>,
}

impl Follower<'_> {
    /// The events up to this one that were not given yet.
    fn follow(&mut self, update: &Update) -> anyhow::Result<Vec<(FileEvent, String)>> {
        let Some((event, labels)) = event_of_update(update) else {
            return Ok(Vec::new());
        };
        let last = self.last.insert(labels.clone(), event.index);
        if last.is_some_and(|last| event.index <= last) {
            // It was recorded again.
            self.last.insert(labels, last.unwrap_or_default());
            return Ok(Vec::new());
        }
        let source = labels.get(SOURCE_LABEL).unwrap_or_default().to_owned();
        let mut events = Vec::new();
        if update.lost > 0 {
            // Of a source that has appeared since, all events are new.
            let last = last.unwrap_or(event.index.saturating_sub(update.lost + 1));
            events = self.missed(&source, (last, event.index), event.ts, update.lost)?;
        }
        events.push((event, source));
        Ok(events)
    }

    /// The events between two numbers, which the ring no longer has.
    #[expect(
        clippy::disallowed_methods,
        reason = "a command waits until events are in the log, for a bounded time"
    )]
    fn missed(
        &self,
        source: &str,
        (last, next): (u64, u64),
        ts: i64,
        lost: u64,
    ) -> anyhow::Result<Vec<(FileEvent, String)>> {
        let sql = format!(
            "SELECT ts, value, {SOURCE_LABEL} FROM events WHERE {SOURCE_LABEL} = '{}' \
             AND ts >= {} AND idx > {last} AND idx < {next}",
            quoted(source),
            ts.saturating_sub(BACK_NS)
        );
        let limits = SqlLimits {
            rows_max: usize::MAX,
            ..SqlLimits::default()
        };
        let mut waited = Duration::ZERO;
        loop {
            let rows = self.observer.sql(&sql, &limits)?;
            let events = (0..rows.len()).filter_map(|row| event_of(&rows, row));
            let mut events: Vec<(FileEvent, String)> = events.collect();
            if events.len() as u64 >= lost || waited >= LOG_WAIT {
                events.sort_by_key(|(event, _)| event.index);
                events.dedup_by_key(|(event, _)| event.index);
                let missing = lost.saturating_sub(events.len() as u64);
                if missing > 0 {
                    output::tell(&format!(
                        "baro: {missing} events of {source} are not in its history yet\n"
                    ));
                }
                return Ok(events);
            }
            std::thread::sleep(LOG_PAUSE);
            waited += LOG_PAUSE;
        }
    }
}

/// The event of a sample, and the labels of its stream.
fn event_of_update(update: &Update) -> Option<(FileEvent, Labels)> {
    let Value::Bytes(record) = &update.sample.value else {
        return None;
    };
    let event = decode(record, update.sample.ts).ok()?;
    Some((event, update.descriptor.labels.clone()))
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

/// Chooses and prints events.
struct Printer {
    path: Option<PathBuf>,
    kinds: Vec<EventKind>,
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
        Ok(Self {
            path: path.transpose()?,
            kinds: filter.kind,
            is_json,
        })
    }

    fn wants(&self, event: &FileEvent) -> bool {
        let is_below = |path: &[u8]| {
            let path = Path::new(std::ffi::OsStr::from_bytes(path));
            self.path
                .as_ref()
                .is_none_or(|wanted| path.starts_with(wanted))
        };
        let is_kind = self.kinds.is_empty() || self.kinds.contains(&event.kind);
        is_kind && (is_below(&event.path) || is_below(&event.old_path))
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

/// An event as JSON, with the fields of the table `events`.
fn event_json(event: &FileEvent, source: &str) -> serde_json::Value {
    let has = |flag| event.flags.has(flag);
    json!({
        "ts": event.ts,
        "kind": event.kind.as_str(),
        "path": text(&event.path),
        "old_path": (!event.old_path.is_empty()).then(|| text(&event.old_path)),
        "size": event.size,
        "uid": event.uid,
        "gid": event.gid,
        "job": (!event.job.is_empty()).then_some(&*event.job),
        "directory": has(EventFlags::DIRECTORY),
        "complete": !has(EventFlags::PATH_INCOMPLETE),
        "idx": event.index,
        "quality": match has(EventFlags::RECONCILED) {
            true => "reconciled",
            false => "measured",
        },
        "source": source,
    })
}
