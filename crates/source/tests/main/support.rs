//! Fixture trees in a temporary directory, a reader that keeps the batch, and a sink that is a map.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use barograph_model::{Descriptor, IntervalRequest, NS_PER_S, Sample, Sink, StreamKey};
use barograph_source::sources::filesystem::{Filesystems, Space, StatFn};
use barograph_source::{
    FactId, FilesystemConfig, Source, SourceBatch, SourceConfig, SourceError, SourcesConfig,
    all_sources,
};
use rustix::io::Errno;

/// Wall time of the first poll of a test.
pub(crate) const START_NS: i64 = 1_700_000_000 * NS_PER_S;

/// The machines under `tests/fixtures`.
pub(crate) const MACHINES: [&str; 8] = [
    "nvme-v2",
    "hdd-v1",
    "container",
    "empty",
    "nvme-four",
    "hdd-raid",
    "lustre-client",
    "lustre-server",
];

/// A copy of a machine's tree.
pub(crate) struct Tree {
    dir: tempfile::TempDir,
    fixture: PathBuf,
}

impl Tree {
    pub(crate) fn of(machine: &str) -> Self {
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/fixtures")
            .join(machine);
        let tree = Self {
            dir: tempfile::tempdir().unwrap(),
            fixture,
        };
        copy(&tree.fixture.join("first"), tree.path());
        tree
    }

    /// Changes the files to those one second later.
    pub(crate) fn advance(&self) {
        copy(&self.fixture.join("later"), self.path());
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn write(&self, path: &str, bytes: impl AsRef<[u8]>) {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    pub(crate) fn read(&self, path: &str) -> Vec<u8> {
        std::fs::read(self.path().join(path)).unwrap()
    }

    /// The configuration with every source enabled, including those that are off by default.
    pub(crate) fn config(&self) -> SourcesConfig {
        let on = |name: String| {
            let enabled = Some(true);
            (
                name,
                SourceConfig {
                    enabled,
                    ..Default::default()
                },
            )
        };
        SourcesConfig {
            poll: source_names().into_iter().map(on).collect(),
            sys_root: self.path().to_owned(),
            filesystem: FilesystemConfig {
                timeout_ms: 30_000,
                ..Default::default()
            },
            ..Default::default()
        }
    }

    /// Creates one source; file systems give made-up numbers.
    pub(crate) fn source(&self, name: &str) -> Box<dyn Source> {
        source(&self.config(), name)
    }
}

pub(crate) fn source(config: &SourcesConfig, name: &str) -> Box<dyn Source> {
    if name == "filesystem" {
        return Box::new(Filesystems::with_stat(
            &config.sys_root,
            &config.tiers,
            &config.filesystem,
            made_up_space(),
        ));
    }
    all_sources(config)
        .into_iter()
        .find(|s| s.name() == name)
        .expect("a source of this name")
}

pub(crate) fn source_names() -> Vec<String> {
    barograph_source::source_names()
        .map(str::to_owned)
        .collect()
}

fn made_up_space() -> Arc<StatFn> {
    Arc::new(|path: &CStr| {
        let path = Path::new(std::ffi::OsStr::from_bytes(path.to_bytes()));
        if path.ends_with("denied") {
            return Err(Errno::ACCESS);
        }
        if path.ends_with("hung") {
            return Err(Errno::STALE);
        }
        Ok(Space {
            total_bytes: 1000 << 20,
            free_bytes: 600 << 20,
            available_bytes: 400 << 20,
            files_total: 1000,
            files_free: 900,
            block_bytes: 4096,
            readonly: path.ends_with("disk"),
        })
    })
}

/// Copies files. Existing files keep their inode, like those of `/proc` for a process that holds
/// them open.
fn copy(from: &Path, to: &Path) {
    let Ok(entries) = std::fs::read_dir(from) else {
        return;
    };
    for entry in entries.map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            std::fs::create_dir_all(&target).unwrap();
            copy(&entry.path(), &target);
        } else {
            std::fs::write(target, std::fs::read(entry.path()).unwrap()).unwrap();
        }
    }
}

/// Polls a source repeatedly, and keeps the descriptors of its facts.
pub(crate) struct Reader {
    pub source: Box<dyn Source>,
    pub batch: SourceBatch,
    pub names: BTreeMap<FactId, Descriptor>,
    pub reads: i64,
}

impl Reader {
    pub(crate) fn new(source: Box<dyn Source>) -> Self {
        Self {
            source,
            batch: SourceBatch::new(),
            names: BTreeMap::new(),
            reads: 0,
        }
    }

    /// Polls one second after the last poll.
    pub(crate) fn read(&mut self) -> Result<(), SourceError> {
        self.read_after(NS_PER_S)
    }

    pub(crate) fn read_after(&mut self, step_ns: i64) -> Result<(), SourceError> {
        let at_ns = self.reads * step_ns;
        self.reads += 1;
        self.batch.begin(at_ns);
        let result = self.source.read(START_NS + at_ns, &mut self.batch);
        // Declarations come first: an id may be declared and retired in one poll, but never the
        // reverse.
        let declared: Vec<_> = self
            .batch
            .declared()
            .map(|(id, d)| (id, d.clone()))
            .collect();
        for (id, descriptor) in declared {
            assert!(
                self.names.insert(id, descriptor).is_none(),
                "an id is given twice"
            );
        }
        for (id, sample) in self.batch.samples() {
            let expect = self.names[id].value_type;
            assert_eq!(sample.value.value_type(), expect, "{}", self.names[id]);
        }
        for id in self.batch.retired() {
            assert!(self.names.remove(id).is_some(), "an id is retired twice");
        }
        assert_eq!(self.batch.facts(), self.names.len());
        result
    }

    /// The newest sample of a fact, by its descriptor as text: `disk.read.bytes{device=vda}`.
    pub(crate) fn get(&self, stream: &str) -> Option<&Sample> {
        let id = self.names.iter().find(|(_, d)| d.to_string() == stream)?.0;
        self.batch
            .samples()
            .iter()
            .find(|(of, _)| of == id)
            .map(|(_, sample)| sample)
    }

    pub(crate) fn number(&self, stream: &str) -> Option<f64> {
        self.get(stream)?.value.as_f64()
    }

    /// The live facts whose names contain `part`.
    pub(crate) fn streams(&self, part: &str) -> Vec<String> {
        let mut streams: Vec<_> = self
            .names
            .values()
            .map(Descriptor::to_string)
            .filter(|n| n.contains(part))
            .collect();
        streams.sort();
        streams
    }

    /// All samples, the report and the fault of the newest poll.
    pub(crate) fn render(&self, result: Result<(), SourceError>, root: &Path) -> String {
        let mut lines: Vec<_> = self
            .batch
            .samples()
            .iter()
            .filter_map(|(id, sample)| {
                let d = self.names.get(id)?;
                let (kind, unit, quality) =
                    (d.kind.as_str(), d.unit.as_str(), sample.quality.as_str());
                Some(format!("{d} = {} {unit} ({kind}, {quality})", sample.value))
            })
            .collect();
        lines.sort();
        let report = self.source.report();
        lines.push(format!("sees: {}", report.sees));
        for missing in report.missing {
            lines.push(format!(
                "missing: {}: {} [{}]",
                missing.what, missing.why, missing.remedy
            ));
        }
        if let Err(fault) = result {
            lines.push(format!("fault: {fault}"));
        }
        lines.join("\n").replace(root.to_str().unwrap(), "<root>")
    }
}

/// A sink that keeps everything.
#[derive(Default)]
pub(crate) struct Map {
    pub streams: BTreeMap<u32, (Descriptor, Vec<Sample>)>,
    pub intervals: BTreeMap<u32, i64>,
    pub retired: usize,
    next: u32,
    /// Most streams that it takes.
    pub room: Option<usize>,
    /// The wishes of policies, by stream.
    pub wanted: BTreeMap<String, IntervalRequest>,
    pub wishes: u64,
}

impl Map {
    pub(crate) fn samples(&self, stream: &str) -> &[Sample] {
        let found = self.streams.values().find(|(d, _)| d.to_string() == stream);
        found.map_or(&[], |(_, samples)| samples)
    }

    pub(crate) fn newest(&self, stream: &str) -> Option<f64> {
        self.samples(stream).last()?.value.as_f64()
    }

    pub(crate) fn interval(&self, stream: &str) -> Option<i64> {
        let key = self
            .streams
            .iter()
            .find(|(_, (d, _))| d.to_string() == stream)?
            .0;
        self.intervals.get(key).copied()
    }
}

impl Sink for Map {
    fn declare(&mut self, descriptor: &Descriptor, _depth: Option<u32>) -> Option<StreamKey> {
        if self.room.is_some_and(|room| self.streams.len() >= room) {
            return None;
        }
        let twice = self
            .streams
            .values()
            .any(|(d, _)| d.series_id() == descriptor.series_id());
        assert!(!twice, "{descriptor} is declared twice");
        self.next += 1;
        self.streams
            .insert(self.next, (descriptor.clone(), Vec::new()));
        Some(StreamKey(self.next))
    }

    fn retire(&mut self, key: StreamKey) {
        assert!(self.streams.remove(&key.0).is_some());
        self.retired += 1;
    }

    fn put(&mut self, key: StreamKey, sample: &Sample) {
        self.streams
            .get_mut(&key.0)
            .expect("a living stream")
            .1
            .push(sample.clone());
    }

    fn expect_interval(&mut self, key: StreamKey, interval_ns: i64) {
        self.intervals.insert(key.0, interval_ns);
    }

    fn wanted(&self, key: StreamKey) -> Option<IntervalRequest> {
        let (descriptor, _) = self.streams.get(&key.0)?;
        self.wanted.get(&descriptor.to_string()).copied()
    }

    fn wishes(&self) -> u64 {
        self.wishes
    }
}
