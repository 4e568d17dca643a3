//! An archive of real files, written as the agent writes it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use barograph_archive::{
    ArchiveConfig, ArchiveReader, DeclaredStream, DiskStorage, JournalEntry, KeepConfig, Keeper,
    SampleChunk, View,
};
use barograph_model::{
    Descriptor, Kind, Past as _, PastRequest, Span, StreamKey, Value, ValueType,
};
use barograph_query::{Database, PastReader, ScopeChoice};
use barograph_stream::{RunDir, SystemClock};

use crate::answer;
use crate::demo::{Demo, S, START_NS, descriptor};

const CENTURY_NS: i64 = 100 * 365 * 86_400 * S;

/// The keeper of node `Node-1`'s archive: all streams are durable, no file is too old.
pub(crate) fn keeper(root: &Path) -> Keeper {
    let config = ArchiveConfig {
        durable: vec![barograph_model::Selector::parse("*").unwrap()],
        commit_ns: 1_000_000,
        keep: KeepConfig {
            raw_ns: CENTURY_NS,
            second_ns: CENTURY_NS,
            minute_ns: CENTURY_NS,
            hour_ns: CENTURY_NS,
        },
        free_bytes_min: 0,
        ..ArchiveConfig::new(root, "Node-1")
    };
    Keeper::start(config, Arc::new(DiskStorage), Arc::new(SystemClock::new())).unwrap()
}

/// Submits entries, and waits until they are in the log.
pub(crate) fn submit(keeper: &Keeper, mut entries: Vec<JournalEntry>) {
    let journal = keeper.journal();
    let position = journal.submit(&mut entries);
    assert!(journal.wait_durable(position, Duration::from_secs(60)));
}

/// The samples that an archive is to have, by stream and life.
#[derive(Default)]
pub(crate) struct Past {
    pub streams: Vec<Arc<Descriptor>>,
    /// The indexes are those of the streams.
    pub chunks: Vec<SampleChunk>,
}

impl Past {
    /// A view of an archive that has the samples in its log.
    pub(crate) fn view(&self, root: &Path) -> Arc<View> {
        drop(write(root, self, &[]));
        ArchiveReader::open(root).view().unwrap()
    }
}

/// Writes samples, life by life, and seals after each of these numbers of samples.
pub(crate) fn write(root: &Path, past: &Past, seals: &[usize]) -> Keeper {
    let keeper = keeper(root);
    let mut chunks: Vec<_> = past.chunks.iter().collect();
    chunks.sort_by_key(|chunk| chunk.life);
    let mut written = 0;
    for (key, chunk) in (0..).map(StreamKey).zip(chunks) {
        let declared = DeclaredStream {
            descriptor: Arc::clone(&past.streams[chunk.series]),
            life: chunk.life,
            depth: 8,
        };
        let mut entries = vec![JournalEntry::Declare(key, declared)];
        for row in 0..chunk.columns.len() {
            let sample = chunk.columns.sample(row).unwrap();
            entries.push(JournalEntry::Sample(
                key,
                chunk.columns.numbers[row],
                sample,
            ));
            written += 1;
            if seals.contains(&written) {
                submit(&keeper, std::mem::take(&mut entries));
                keeper.seal().unwrap();
            }
        }
        entries.push(JournalEntry::Retire(key));
        submit(&keeper, entries);
    }
    if seals.len() == 2 {
        keeper.compact().unwrap();
    }
    keeper
}

#[test]
fn the_agents_archive_is_found_and_followed() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("archive");
    let mut demo = Demo::empty(dir.path());
    let walk = descriptor("random.walk.count", &[], ValueType::Int, Kind::Gauge);
    demo.add_deep(&walk, 8, (0..20).map(|t| (t, Value::from(t))));
    let keeper = keeper(&root);
    let run_dir = RunDir::new(dir.path());
    let open = || {
        Database::open(
            &run_dir,
            ScopeChoice::Readable,
            Arc::new(SystemClock::new()),
        )
        .unwrap()
    };
    let mut database = open();
    assert_eq!(database.archive_dir(), None);
    let count = "SELECT count(*), max(value) FROM random_walk_count";
    assert_eq!(answer(&mut database, count), ["7|19"]);

    // The agent names the archive's directory; a database that is open finds it.
    crate::scopes::name_archive(&run_dir, &root);
    let mut database = open();
    assert_eq!(database.archive_dir(), Some(root.clone()));
    let declared = DeclaredStream {
        descriptor: Arc::new(walk.clone()),
        life: START_NS,
        depth: 8,
    };
    let sample = |t: i64| {
        let sample = barograph_model::Sample::measured(START_NS + t * S, t);
        JournalEntry::Sample(StreamKey(0), t as u64 + 1, sample)
    };
    let declare = JournalEntry::Declare(StreamKey(0), declared);
    submit(
        &keeper,
        std::iter::once(declare)
            .chain((0..15).map(sample))
            .collect(),
    );
    assert_eq!(answer(&mut database, count), ["20|19"]);
    keeper.seal().unwrap();
    assert_eq!(answer(&mut database, count), ["20|19"]);
    submit(&keeper, (15..18).map(sample).collect());
    assert_eq!(answer(&mut database, count), ["20|19"]);
    let parts = "SELECT tier, rows, copied FROM system.archive WHERE rows > 0 ORDER BY tier";
    assert_eq!(
        answer(&mut database, parts),
        ["1h|1|0", "1min|1|0", "log|3|0", "raw|15|0"]
    );
    let lost = "SELECT count(*), sum(count) FROM system.loss WHERE \"where\" LIKE 'archive of %'";
    assert_eq!(answer(&mut database, lost), ["5|0"]);

    // Another node's unreadable part hides nothing of this node's, and is named.
    let bad = root.join("nodes/bad");
    std::fs::create_dir(&bad).unwrap();
    std::fs::write(bad.join("manifest.json"), "{").unwrap();
    assert_eq!(answer(&mut database, count), ["20|19"]);
    let unreadable = "SELECT node FROM system.archive WHERE tier = 'unreadable'";
    assert_eq!(answer(&mut database, unreadable), ["bad"]);
    let why = "SELECT count FROM system.loss WHERE what LIKE 'archives left out: %manifest.json%'";
    assert_eq!(answer(&mut database, why), ["1"]);
    std::fs::remove_dir_all(&bad).unwrap();
    assert_eq!(answer(&mut database, unreadable), [""; 0]);

    a_stream_that_nobody_saw(&mut database, &keeper);
    the_archive_alone(&root);
    the_past_without_sql(&run_dir);
}

fn a_stream_that_nobody_saw(database: &mut Database, keeper: &Keeper) {
    // A stream that began and ended unseen: its table appears with the question.
    let brief = DeclaredStream {
        descriptor: Arc::new(descriptor(
            "brief.job.count",
            &[("job", "7")],
            ValueType::Int,
            Kind::Gauge,
        )),
        life: START_NS,
        depth: 8,
    };
    let one = JournalEntry::Sample(
        StreamKey(1),
        1,
        barograph_model::Sample::measured(START_NS, 7),
    );
    submit(
        keeper,
        vec![JournalEntry::Declare(StreamKey(1), brief), one],
    );
    assert_eq!(
        answer(database, "SELECT job, value, newest FROM brief_job_count"),
        ["7|7|0"]
    );
}

fn the_archive_alone(root: &Path) {
    let count = "SELECT count(*), max(value) FROM random_walk_count";
    let mut alone = Database::open_archive(root, Arc::new(SystemClock::new())).unwrap();
    assert_eq!(answer(&mut alone, count), ["18|17"]);
    assert_eq!(
        answer(
            &mut alone,
            "SELECT value FROM random_walk_count WHERE newest"
        ),
        ["17"]
    );
}

fn the_past_without_sql(run_dir: &RunDir) {
    let reader =
        PastReader::open(run_dir, ScopeChoice::Readable, Arc::new(SystemClock::new())).unwrap();
    let request = PastRequest {
        wanted: &|node, descriptor| {
            node == "Node-1" && descriptor.name.as_str() == "random.walk.count"
        },
        span: Span::ALL,
        samples_max: 100,
        cancel: &std::sync::atomic::AtomicBool::new(false),
        holds: &barograph_model::unbounded,
    };
    let found = reader.read(&request).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].columns.numbers, (1..=20).collect::<Vec<u64>>());
}
