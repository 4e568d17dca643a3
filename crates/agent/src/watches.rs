//! Watches: the sources of file events of this node, each with a thread that collects, records and
//! acknowledges them (docs/design/0010-file-events.md).
//!
//! They are apart from the loop that samples: a file system may hang, and a thread of a watch may
//! wait for the disk.

mod collectors;
mod config;
mod last_event;
mod pump;
mod source_thread;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use barograph_event::{EVENT_STREAM, RECORD_BYTES_MAX, SOURCE_LABEL};
use barograph_intake::{EventDoor, EventSource};
use barograph_model::{Clock, Descriptor, Kind, Labels, ModelError, Name, Unit, ValueType};
use barograph_recorder::publish;
use barograph_stream::{RunDir, ScopeReader, WATCHES_DOCUMENT, WatchesRow, user_name};
use tracing::warn;

pub use config::{EventConfig, WatchConfig};
use source_thread::SourceThread;

/// The watches of an agent. Dropping them stops their threads.
pub(crate) struct Watches {
    shared: Arc<WatchShared>,
    threads: BTreeMap<String, SourceThread>,
}

/// The parts that the threads share.
pub(crate) struct WatchShared {
    pub door: Arc<EventDoor>,
    pub clock: Arc<dyn Clock>,
    node: String,
    run_dir: RunDir,
    /// Directory of what the collectors keep.
    pub state_dir: std::path::PathBuf,
    rows: Mutex<BTreeMap<(ScopeReader, String), WatchesRow>>,
}

impl Watches {
    /// Starts a thread for each configured watch. One that cannot be started is left out with a
    /// warning.
    pub(crate) fn start(
        config: &EventConfig,
        (node, run_dir, state_dir): (&str, &RunDir, &std::path::Path),
        door: &Arc<EventDoor>,
        clock: &Arc<dyn Clock>,
    ) -> Self {
        let shared = Arc::new(WatchShared {
            door: Arc::clone(door),
            clock: Arc::clone(clock),
            node: node.to_owned(),
            run_dir: run_dir.clone(),
            state_dir: state_dir.join("events"),
            rows: Mutex::default(),
        });
        let mut watches = Self {
            shared,
            threads: BTreeMap::new(),
        };
        for watch in &config.watch {
            if let Err(error) = watches.add(watch) {
                warn!(watch = watch.source(), %error, "a tree is not watched");
            }
        }
        watches
    }

    fn add(&mut self, watch: &WatchConfig) -> Result<(), String> {
        let source = event_source(watch).map_err(|error| error.to_string())?;
        let thread = SourceThread::start(&self.shared, watch.clone(), Arc::new(source));
        let thread = thread.map_err(|error| error.to_string())?;
        self.threads.insert(watch.source(), thread);
        Ok(())
    }
}

impl WatchShared {
    fn rows(&self) -> MutexGuard<'_, BTreeMap<(ScopeReader, String), WatchesRow>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
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
        publish(
            &self.run_dir.scope(&reader.scope()),
            WATCHES_DOCUMENT,
            &of_reader,
        );
    }
}

/// The stream of a watch.
fn event_source(watch: &WatchConfig) -> Result<EventSource, ModelError> {
    let uid = rustix::process::getuid().as_raw();
    let descriptor = Descriptor {
        name: Name::new(EVENT_STREAM)?,
        labels: Labels::new([(SOURCE_LABEL.to_owned(), watch.source())])?,
        value_type: ValueType::Bytes,
        unit: Unit::new("record")?,
        kind: Kind::State,
        help: "What happened to files, as records: the table events has their parts.".into(),
    };
    Ok(EventSource {
        descriptor,
        value_bytes_max: RECORD_BYTES_MAX as u32,
        reader: match &*watch.readers {
            "all" => ScopeReader::All,
            _ => ScopeReader::User(uid),
        },
        user: user_name(uid),
    })
}
