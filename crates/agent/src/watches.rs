//! Watches: the sources of file events of this node, each with a thread that collects, records and
//! acknowledges them (docs/design/0010-file-events.md).
//!
//! They are apart from the loop that samples: a file system may hang, and a thread of a watch may
//! wait for the disk.

mod collectors;
mod config;
mod pump;
mod source_thread;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use barograph_event::{EVENT_STREAM, RECORD_BYTES_MAX, SOURCE_LABEL};
use barograph_intake::{EventDoor, EventSource};
use barograph_model::{Clock, Descriptor, Kind, Labels, ModelError, Name, Unit, ValueType};
use barograph_recorder::publish;
use barograph_source::HelperConfig;
use barograph_statement::WatchStatement;
use barograph_stream::{RunDir, ScopeReader, WATCHES_DOCUMENT, WatchesRow, user_name};
use serde_json::{Value as Json, json};
use tracing::warn;

use crate::actions::{EventActions, MARKS_SOURCE, MarkBox};
use crate::refusal::{StatementAnswer, StatementRefusal};

use collectors::SourceSpec;
pub use config::{ChangelogConfig, EventConfig, WatchConfig};
use source_thread::SourceThread;

/// Most watches: each has a thread.
const WATCHES_MAX: usize = 64;

/// The watches of an agent.
pub(crate) struct Watches {
    shared: Arc<WatchShared>,
    /// Names of the configured watches, which statements do not change.
    configured: BTreeSet<String>,
    running: Mutex<RunningWatches>,
}

#[derive(Default)]
struct RunningWatches {
    threads: BTreeMap<String, SourceThread>,
    /// Whether the marks of rules are recorded.
    has_marks: bool,
    /// The agent is stopping.
    is_over: bool,
}

/// The parts that the threads share.
pub(crate) struct WatchShared {
    pub door: Arc<EventDoor>,
    pub clock: Arc<dyn Clock>,
    /// The rules that see the events.
    pub actions: Arc<EventActions>,
    node: String,
    run_dir: RunDir,
    /// Directory of what the collectors keep.
    pub state_dir: PathBuf,
    /// The way to the privileged helper, which opens what the agent may not.
    helper: HelperConfig,
    rows: Mutex<BTreeMap<(ScopeReader, String), WatchesRow>>,
}

impl Watches {
    /// Starts a thread for each configured watch and for those of the kept statements. One that
    /// cannot be started is left out with a warning.
    pub(crate) fn start(
        (config, helper, kept): (&EventConfig, &HelperConfig, &BTreeMap<String, String>),
        (node, run_dir, state_dir): (&str, &RunDir, &Path),
        (door, actions): (&Arc<EventDoor>, &Arc<EventActions>),
        clock: &Arc<dyn Clock>,
    ) -> Self {
        let shared = Arc::new(WatchShared {
            door: Arc::clone(door),
            clock: Arc::clone(clock),
            actions: Arc::clone(actions),
            node: node.to_owned(),
            run_dir: run_dir.clone(),
            state_dir: state_dir.join("events"),
            helper: helper.clone(),
            rows: Mutex::default(),
        });
        let watches = Self {
            shared,
            configured: config.sources().collect(),
            running: Mutex::default(),
        };
        let of_watch = |watch| SourceSpec::of_watch(watch, helper);
        let trees = config.watch.iter().map(of_watch);
        let changelogs = config.changelog.iter().flat_map(SourceSpec::of_changelogs);
        for spec in trees.chain(changelogs) {
            let name = spec.name.clone();
            if let Err(error) = watches.add(&mut watches.lock(), spec) {
                warn!(name, error, "the events of a source are not recorded");
            }
        }
        for (name, sql) in kept {
            if let Err(error) = watches.execute(sql) {
                warn!(name, sql, %error, "a watch is left out");
            }
        }
        watches
    }

    /// Executes a statement, and returns the watch as it was made or dropped.
    pub(crate) fn execute(&self, sql: &str) -> StatementAnswer {
        let mut running = self.lock();
        if running.is_over {
            return Err(StatementRefusal::Internal("the agent is stopping".into()));
        }
        let refused = |reason: String| Err(StatementRefusal::Statement(reason));
        match WatchStatement::parse(sql)? {
            WatchStatement::Create { or_replace, watch } => {
                let watch = WatchConfig::of(&watch);
                let name = watch.source();
                if let Err(error) = watch.check() {
                    return refused(error.reason);
                }
                if self.configured.contains(&name) {
                    return refused(format!("the configuration has a watch {name}"));
                }
                if running.threads.contains_key(&name) && !or_replace {
                    return refused(format!(
                        "there is a watch {name} already: CREATE OR REPLACE WATCH replaces it"
                    ));
                }
                if name == MARKS_SOURCE && running.has_marks {
                    return refused(format!("{name} is the source of the marks of rules"));
                }
                // Its stream ends before another one of the same name begins.
                drop(running.threads.remove(&name));
                let spec = SourceSpec::of_watch(&watch, &self.shared.helper);
                let added = self.add(&mut running, spec);
                added.map_err(StatementRefusal::Internal)?;
                Ok(json!({ "name": name, "path": watch.path }))
            }
            WatchStatement::Drop { name, .. } if self.configured.contains(&name) => refused(
                format!("the configuration has the watch {name}: remove it there"),
            ),
            WatchStatement::Drop { name, if_exists } => match running.threads.remove(&name) {
                Some(thread) => {
                    drop(thread);
                    // The next mark has them recorded again.
                    running.has_marks &= name != MARKS_SOURCE;
                    Ok(json!({ "name": name }))
                }
                None if if_exists => Ok(Json::Null),
                None => Err(StatementRefusal::Absent(format!(
                    "there is no watch {name}: see the table watches"
                ))),
            },
        }
    }

    /// Has the marks of this box recorded, from the first one on, as a source that the agent's user
    /// reads.
    pub(crate) fn take_marks(self: &Arc<Self>, marks: &Arc<MarkBox>) {
        // The box is of the actions, which the watches hold.
        let (watches, taken) = (Arc::downgrade(self), Arc::downgrade(marks));
        marks.set_source(move || match (watches.upgrade(), taken.upgrade()) {
            (Some(watches), Some(marks)) => watches.add_marks(&marks),
            _ => Err("the agent is stopping".into()),
        });
    }

    fn add_marks(&self, marks: &Arc<MarkBox>) -> Result<(), String> {
        let mut running = self.lock();
        if running.has_marks {
            return Ok(());
        }
        if running.is_over {
            return Err("the agent is stopping".into());
        }
        let spec = SourceSpec::of_marks(marks);
        if running.threads.contains_key(&spec.name) {
            return Err(format!(
                "a watch has the name {} of the source of marks",
                spec.name
            ));
        }
        self.add(&mut running, spec)?;
        running.has_marks = true;
        Ok(())
    }

    /// Stops all threads, which hand over what they have collected.
    pub(crate) fn stop(&self) {
        let threads = {
            let mut running = self.lock();
            running.is_over = true;
            std::mem::take(&mut running.threads)
        };
        threads.values().for_each(SourceThread::tell_to_stop);
        drop(threads);
    }

    fn lock(&self) -> MutexGuard<'_, RunningWatches> {
        // Nothing that holds this lock can leave half a change behind.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, running: &mut RunningWatches, spec: SourceSpec) -> Result<(), String> {
        if running.threads.len() >= WATCHES_MAX {
            return Err(format!("there are {WATCHES_MAX} watches already"));
        }
        let source = event_source(&spec).map_err(|error| error.to_string())?;
        let name = spec.name.clone();
        let thread = SourceThread::start(&self.shared, spec, Arc::new(source));
        let thread = thread.map_err(|error| format!("cannot start its thread: {error}"))?;
        running.threads.insert(name, thread);
        Ok(())
    }
}

impl WatchShared {
    fn rows(&self) -> MutexGuard<'_, BTreeMap<(ScopeReader, String), WatchesRow>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The directories in which the agent writes.
    pub(crate) fn own_directories(&self) -> Vec<PathBuf> {
        let directories = [self.state_dir.parent(), Some(self.run_dir.path())];
        let directories = directories.into_iter().flatten();
        directories
            .filter_map(|dir| dir.canonicalize().ok())
            .collect()
    }

    /// Name of this node.
    pub(crate) fn node(&self) -> &str {
        &self.node
    }

    /// Tells the readers of a watch its state; `None` if it has ended.
    pub(crate) fn tell(&self, reader: ScopeReader, name: &str, row: Option<WatchesRow>) {
        let of_reader: Vec<WatchesRow> = {
            let mut rows = self.rows();
            let place = (reader, name.to_owned());
            match row {
                Some(row) => drop(rows.insert(place, row)),
                None => drop(rows.remove(&place)),
            }
            let of_reader = rows.iter().filter(|((of, _), _)| *of == reader);
            of_reader.map(|(_, row)| row.clone()).collect()
        };
        // The scope begins with the stream of the first source: its state is told again then.
        let scope = self.run_dir.scope(&reader.scope());
        if scope.path().exists() {
            publish(&scope, WATCHES_DOCUMENT, &of_reader);
        }
    }
}

/// The stream of a source.
fn event_source(spec: &SourceSpec) -> Result<EventSource, ModelError> {
    let uid = rustix::process::getuid().as_raw();
    let descriptor = Descriptor {
        name: Name::new(EVENT_STREAM)?,
        labels: Labels::new([(SOURCE_LABEL.to_owned(), spec.name.clone())])?,
        value_type: ValueType::Bytes,
        unit: Unit::new("record")?,
        kind: Kind::State,
        help: "What happened to files, as records: the table events has their parts.".into(),
    };
    Ok(EventSource {
        descriptor,
        value_bytes_max: RECORD_BYTES_MAX as u32,
        reader: match &*spec.readers {
            "all" => ScopeReader::All,
            _ => ScopeReader::User(uid),
        },
        user: user_name(uid),
    })
}
