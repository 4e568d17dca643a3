//! A writer at full speed with readers in other processes: nothing is torn, and every gap is
//! counted exactly.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use barograph_model::{Sample, Value, ValueType};
use barograph_stream::{LatestSample, Segment, SegmentConfig, SegmentReader, StreamReader};

use crate::child;
use crate::pattern::{TYPES, check, descriptor, rounds, sample};

const READERS: usize = 3;
/// Samples that the writer appends to one stream before it goes on to the next.
const BURST: u64 = 512;

#[test]
fn readers_in_other_processes_see_whole_samples_only() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("segment");
    with_writer(&path, || {
        let readers: Vec<_> = (0..READERS)
            .map(|_| child::command("reader", &path).spawn().unwrap())
            .collect();
        for reader in readers {
            let output = reader.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{said}");
        }
    });
}

/// Runs `body` while a thread appends to a segment at `path` as fast as it can, to streams of every
/// type, with the smallest possible rings and with larger ones.
pub(crate) fn with_writer(path: &Path, body: impl FnOnce()) {
    let mut segment = Segment::create(path, SegmentConfig::new("n1"), 1).unwrap();
    let mut writers = Vec::new();
    for value_type in TYPES {
        for depth in [2, 5, 256] {
            let stream = descriptor(&format!("d{depth}.{}", value_type.as_str()), value_type);
            let mut writer = segment.register(&stream, Some(depth), 1).unwrap();
            writer.append(&sample(value_type, 1)).unwrap();
            writers.push((value_type, writer));
        }
    }
    let stream = descriptor("d5.long.string", ValueType::Text);
    let writer = segment.register_sized(&stream, Some(5), Some(200), 1);
    let mut writer = writer.unwrap();
    writer.append(&sample(ValueType::Text, 1)).unwrap();
    writers.push((ValueType::Text, writer));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut n = 2;
            while !stop.load(Ordering::Relaxed) {
                for (value_type, writer) in &mut writers {
                    // Many in a row, so that the reader of one stream meets its writer at full
                    // speed.
                    for next in n..n + BURST {
                        writer.append(&sample(*value_type, next)).unwrap();
                    }
                }
                n += BURST;
            }
        });
        let _stop = StopOnDrop(&stop);
        body();
    });
}

/// Stops the writer's thread even if the body panics; otherwise the scope would wait for it for
/// ever.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The readers' side: a child process.
pub(crate) fn read_for_a_while(path: &Path) {
    let reader = SegmentReader::open(path).unwrap();
    let directory = reader.directory();
    assert_eq!(directory.entries.len(), TYPES.len() * 3 + 1);
    let mut followers: Vec<_> = directory
        .entries
        .iter()
        .map(|e| Follower::new(reader.stream(e)))
        .collect();
    // Long enough at each stream to meet the writer there.
    for _ in 0..rounds(3_000, 60_000) {
        for follower in &mut followers {
            for _ in 0..64 {
                follower.look();
            }
            for _ in 0..16 {
                follower.catch_up();
            }
        }
    }
    for follower in &followers {
        assert_eq!(
            follower.seen + follower.lost,
            follower.cursor,
            "{follower:?}"
        );
        assert!(follower.seen > 0, "{follower:?}");
    }
}

/// A stream as a reader follows it.
#[derive(Debug)]
struct Follower {
    handle: StreamReader,
    newest: u64,
    cursor: u64,
    seen: u64,
    lost: u64,
}

impl Follower {
    fn new(handle: StreamReader) -> Self {
        Self {
            handle,
            newest: 0,
            cursor: 0,
            seen: 0,
            lost: 0,
        }
    }

    fn look(&mut self) {
        let LatestSample::Sample {
            sample: found,
            looked_ns,
            count,
        } = self.handle.latest()
        else {
            panic!("the newest sample is always readable: {self:?}");
        };
        check(&found);
        assert_eq!(found.ts, count as i64, "a sample under another's number");
        assert_eq!(looked_ns, found.ts, "a look of another sample");
        assert!(count >= self.newest, "time went back");
        self.newest = count;
        if self.handle.value_type() == ValueType::Float {
            let (ts, value) = self.handle.latest_f64().unwrap();
            let expect = sample(ValueType::Float, ts as u64);
            assert_eq!(Value::Float(value), expect.value);
        }
    }

    fn catch_up(&mut self) {
        let mut samples: Vec<Sample> = Vec::new();
        let scan = self.handle.scan(self.cursor, &mut samples).unwrap();
        let first = self.cursor + scan.lost + 1;
        for (found, number) in samples.iter().zip(first..) {
            check(found);
            assert_eq!(found.ts, number as i64, "a gap that was not counted");
        }
        assert_eq!(first + samples.len() as u64, scan.cursor + 1);
        self.seen += samples.len() as u64;
        self.lost += scan.lost;
        self.cursor = scan.cursor;
    }
}
