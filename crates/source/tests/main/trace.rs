//! Tests of traces of requests: counts computed by hand, traces that are cut and broken, and this
//! machine's own requests if tracing is permitted.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use barograph_source::{BlockTraceMode, MissingPart, SourcesConfig};
use rustix::fs::{Mode, OFlags};

use crate::support::{Reader, Tree, source};

const PIPE: &str = "sys/kernel/tracing/instances/barograph/trace_pipe";

fn hot(reader: &Reader, device: &str, rank: usize) -> Option<(f64, f32, f64)> {
    let labels = format!("{{device={device},rank={rank}}}");
    let ops = reader.get(&format!("block_trace.hot.ops{labels}"))?;
    let offset = reader.number(&format!("block_trace.hot.offset.bytes{labels}"))?;
    Some((ops.value.as_f64()?, ops.error, offset))
}

fn all(reader: &Reader) -> BTreeMap<String, f64> {
    let samples = reader.batch.samples().iter();
    let named = samples.map(|(id, s)| (reader.names[id].to_string(), s.value.as_f64()));
    named.filter_map(|(name, v)| Some((name, v?))).collect()
}

/// Checks that a quantile is as accurate as documented.
fn check_latency(reader: &Reader, stream: &str, truth: f64) {
    let value = reader.number(stream).unwrap_or_else(|| panic!("{stream}"));
    let below = (truth - value) / truth;
    assert!(
        (0.0..=1.0 / 32.0).contains(&below),
        "{stream}: {value}, truly {truth}"
    );
}

#[test]
fn what_the_events_of_a_recording_come_to() {
    let tree = Tree::of("nvme-four");
    let mut reader = Reader::new(tree.source("block_trace"));
    reader.read().unwrap();
    assert_eq!(
        hot(&reader, "nvme0n1", 1),
        Some((10.0, 0.0, 8.0 * 1048576.0))
    );
    assert_eq!(
        hot(&reader, "nvme0n1", 2),
        Some((3.0, 0.0, 3072.0 * 1048576.0))
    );
    assert_eq!(hot(&reader, "nvme0n1", 3), None);
    assert_eq!(hot(&reader, "nvme1n1", 1), Some((4.0, 0.0, 1048576.0)));
    // 13 reads: 10 of 100 us and 3 of 400 us.
    check_latency(
        &reader,
        "block_trace.read.latency.p50.seconds{device=nvme0n1}",
        100e-6,
    );
    check_latency(
        &reader,
        "block_trace.read.latency.p90.seconds{device=nvme0n1}",
        400e-6,
    );
    check_latency(
        &reader,
        "block_trace.write.latency.p99.seconds{device=nvme1n1}",
        50e-6,
    );
    let number = |stream: &str| reader.number(stream);
    assert_eq!(
        number("block_trace.read.size.p50.bytes{device=nvme0n1}"),
        Some(4096.0)
    );
    assert_eq!(
        number("block_trace.read.size.p99.bytes{device=nvme0n1}"),
        Some(131072.0)
    );
    assert_eq!(
        number("block_trace.write.size.p50.bytes{device=nvme1n1}"),
        Some(65536.0)
    );
    // 17 pairs, a discard and a flush of two events each, and one end whose beginning was not seen.
    assert_eq!(number("block_trace.events.count"), Some(39.0));
    assert_eq!(number("block_trace.unmatched.count"), Some(1.0));
    assert_eq!(number("block_trace.lost.count"), Some(0.0));
    assert_eq!(
        number("block_trace.cost.seconds"),
        None,
        "a recording costs nothing"
    );
    assert!(
        reader.streams("nvme2n1").is_empty(),
        "a discard is no access"
    );
}

#[test]
fn what_a_loss_does_to_a_recording() {
    let tree = Tree::of("nvme-four");
    let mut reader = Reader::new(tree.source("block_trace"));
    reader.read().unwrap();
    tree.advance();
    reader.read().unwrap();
    let number = |stream: &str| reader.number(stream);
    assert_eq!(number("block_trace.events.count"), Some(48.0));
    assert_eq!(number("block_trace.lost.count"), Some(12.0));
    // The requests in flight at the loss, and the end of one.
    assert_eq!(number("block_trace.unmatched.count"), Some(3.0));
    // After one second with a half-life of 60, ten are 9.89, and one was added.
    let (ops, error, _) = hot(&reader, "nvme0n1", 1).unwrap();
    assert_eq!((ops, error), (11.0, 1.0));
    check_latency(
        &reader,
        "block_trace.write.latency.p50.seconds{device=nvme3n1}",
        2e-3,
    );
    let missing = reader.source.report().missing;
    assert!(missing.iter().any(|m| m.what == "12 events"), "{missing:?}");
    reader.read().unwrap();
    assert_eq!(reader.source.report().missing, []);
}

#[test]
fn hotness_follows_the_present_and_ends() {
    let tree = Tree::of("nvme-four");
    let mut reader = Reader::new(tree.source("block_trace"));
    reader.read().unwrap();
    tree.write(PIPE, "");
    // After a half-life without requests, half is left.
    reader.reads += 59;
    reader.read().unwrap();
    assert_eq!(hot(&reader, "nvme0n1", 1).unwrap().0, 5.0);
    // After twenty half-lives, devices are forgotten.
    reader.reads += 1200;
    reader.read().unwrap();
    assert_eq!(reader.streams("device="), [] as [&str; 0]);
    assert_eq!(reader.number("block_trace.events.count"), Some(39.0));
}

#[test]
fn a_trace_cut_at_every_byte() {
    let tree = Tree::of("nvme-four");
    tree.advance();
    let whole = tree.read(PIPE);
    let read = |bytes: &[u8]| {
        // The file is new, because a file system may write an old one out when it is cut.
        std::fs::remove_file(tree.path().join(PIPE)).unwrap();
        tree.write(PIPE, bytes);
        let mut reader = Reader::new(tree.source("block_trace"));
        reader.read().unwrap();
        reader
    };
    let expect = all(&read(&whole));
    let mut lines = 0;
    for end in 0..whole.len() {
        lines += usize::from(end > 0 && whole[end - 1] == b'\n');
        let cut = all(&read(&whole[..end]));
        let events = cut["block_trace.events.count"];
        assert!(
            events <= lines as f64 && events >= lines as f64 - 1.0,
            "{end}: {events} of {lines}"
        );
        for (stream, value) in &cut {
            assert!(
                value.is_finite() && *value >= 0.0,
                "{end}: {stream} is {value}"
            );
            let counts = stream.contains(".count") || stream.contains("hot.ops");
            assert!(
                !counts
                    || stream.contains("unmatched")
                    || stream.contains("rank")
                    || *value <= expect[stream],
                "{end}: {stream}"
            );
        }
    }
}

/// The pipe gives lines in pieces: wherever they are cut, nothing is lost or counted twice.
#[test]
fn a_trace_that_grows_by_pieces_is_the_same_trace() {
    let tree = Tree::of("nvme-four");
    tree.advance();
    let whole = tree.read(PIPE);
    let mut once = Reader::new(tree.source("block_trace"));
    once.read().unwrap();
    for piece in [1, 7, 100, 1000] {
        std::fs::remove_file(tree.path().join(PIPE)).unwrap();
        tree.write(PIPE, "");
        let path = tree.path().join(PIPE);
        let mut pipe = std::fs::File::options().append(true).open(path).unwrap();
        let mut reader = Reader::new(tree.source("block_trace"));
        for piece in whole.chunks(piece) {
            pipe.write_all(piece).unwrap();
            reader.read_after(0).unwrap();
        }
        assert_eq!(all(&reader), all(&once), "{piece}");
    }
}

fn by(command: &str, pid: u32, operation: &str, sectors: u64) -> String {
    format!(
        " {command}-{} ( {pid}) [000] ..... 5000.000000: block_rq_issue: 259,0 {operation} {} () 8 + {sectors} none,0,0 [{command}]\n",
        pid + 1,
        sectors * 512
    )
}

/// The requests of a device by process, whatever the names of its threads.
#[test]
fn requests_have_issuers() {
    let tree = Tree::of("nvme-four");
    tree.write(PIPE, "");
    let path = tree.path().join(PIPE);
    let mut pipe = std::fs::File::options().append(true).open(path).unwrap();
    let mut reader = Reader::new(tree.source("block_trace"));
    reader.read().unwrap();
    let rate = |reader: &Reader, side: &str, command: &str, pid: u32| {
        let labels = format!("{{command={command},device=nvme0n1,pid={pid}}}");
        reader.number(&format!(
            "block_trace.process.{side}.bytes_per_second{labels}"
        ))
    };
    for line in [
        by("fio", 7, "R", 8),
        by("io-worker", 7, "WS", 16),
        by("dd", 9, "W", 2),
    ] {
        pipe.write_all(line.as_bytes()).unwrap();
    }
    reader.read().unwrap();
    assert_eq!(rate(&reader, "read", "fio", 7), Some(4096.0));
    assert_eq!(rate(&reader, "write", "fio", 7), Some(8192.0));
    assert_eq!(rate(&reader, "write", "dd", 9), Some(1024.0));
    assert_eq!(rate(&reader, "read", "dd", 9), Some(0.0));
    // Of many processes, those that move the most have streams, and counts are not given to others.
    for pid in 100..300 {
        pipe.write_all(by("many", pid, "R", u64::from(pid)).as_bytes())
            .unwrap();
    }
    reader.read().unwrap();
    assert_eq!(rate(&reader, "read", "many", 299), Some(299.0 * 512.0));
    assert_eq!(reader.streams("process.read").len(), 8);
    assert_eq!(rate(&reader, "read", "fio", 7), None);
    // A process that is silent for a while is forgotten.
    for _ in 0..12 {
        reader.read().unwrap();
    }
    assert_eq!(reader.streams("process.").len(), 0);
}

#[test]
fn garbage_in_a_trace_is_a_fault_and_the_rest_is_read() {
    let tree = Tree::of("nvme-four");
    let good = tree.read(PIPE);
    let garbage: [&[u8]; 6] = [
        b"\0\0\0\n",
        b"\xff\xfe\xfd\n",
        b"a-1 [000] ..... 5,000000: block_rq_issue: 259,0 R 4096 () 8 + 8 [a]\n",
        b" a-1 [000] ..... 5.000000: block_rq_issue: 259,0 R 4096 () 99999999999999999999999 + 8 [a]\n",
        b"CPU:0 [LOST -1 EVENTS]\n",
        &[b'x'; 100_000],
    ];
    for bad in garbage {
        tree.write(PIPE, [bad, &good].concat());
        let mut reader = Reader::new(tree.source("block_trace"));
        let fault = reader.read().unwrap_err().to_string();
        assert!(fault.contains("left out: "), "{fault}");
        // The longest line took the next line with it.
        let events = reader.number("block_trace.events.count").unwrap();
        assert!(events >= 38.0, "{fault}: {events}");
        let text = "       a-1 [000] ..... 6.000000: block_rq_issue: 259,0 R 4096 () 18446744073709551615 + 4294967295 [a]\n";
        tree.write(PIPE, [bad, &good, text.as_bytes()].concat());
        reader.read().unwrap();
        assert_eq!(
            reader.number("block_trace.events.count"),
            Some(events + 1.0)
        );
    }
}

#[test]
fn devices_and_work_are_bounded() {
    let tree = Tree::of("nvme-four");
    let line = |device: usize, sector: usize| {
        format!(
            "  a-1 [000] ..... 6.000000: block_rq_issue: 8,{device} R 4096 () {sector} + 8 [a]\n"
        )
    };
    tree.write(PIPE, (0..100).map(|d| line(d, 8)).collect::<String>());
    let mut reader = Reader::new(tree.source("block_trace"));
    let fault = reader.read().unwrap_err().to_string();
    assert!(fault.contains("36 events of further devices"), "{fault}");
    assert_eq!(reader.streams("hot.ops").len(), 64);

    tree.write(
        PIPE,
        (0..50_000).map(|i| line(0, i * 4096)).collect::<String>(),
    );
    let mut config = tree.config();
    config.block_trace.events_max = 1000;
    config.block_trace.counters = 100;
    let mut reader = Reader::new(source(&config, "block_trace"));
    reader.read_after(0).unwrap();
    let first = reader.number("block_trace.events.count").unwrap();
    assert!((1000.0..3000.0).contains(&first), "{first}");
    while reader.number("block_trace.events.count") < Some(50_000.0) {
        reader.read_after(0).unwrap();
    }
    // Each extent had one request, but by its counter could have had as many as all together.
    let (ops, error, _) = hot(&reader, "8:0", 1).unwrap();
    assert!(
        ops <= 501.0 && f64::from(error) >= ops - 1.0,
        "{ops} {error}"
    );
}

#[test]
fn lines_that_are_no_events_bound_a_read_too() {
    let tree = Tree::of("nvme-four");
    let event = "  a-1 [000] ..... 6.000000: block_rq_issue: 8,0 R 4096 () 8 + 8 [a]\n";
    // Half a MiB of lines that are not understood, then an event.
    tree.write(PIPE, "nothing of ours\n".repeat(1 << 15) + event);
    let mut config = tree.config();
    config.block_trace.events_max = 1000;
    let mut reader = Reader::new(source(&config, "block_trace"));
    let _ = reader.read_after(0);
    assert_eq!(reader.number("block_trace.events.count"), Some(0.0));
    let patience = (0..100).find(|_| {
        let _ = reader.read_after(0);
        reader.number("block_trace.events.count") == Some(1.0)
    });
    assert!(patience.is_some_and(|more| more > 0), "{patience:?}");
}

fn missing_of(reader: &Reader) -> Option<MissingPart> {
    reader.source.report().missing.into_iter().next()
}

/// Reads a file with direct I/O, 4 KiB at a time, all within one MiB of it. Returns the seconds
/// that each call took; `None` if the file system has no direct I/O.
fn read_directly(path: &Path, count: usize) -> Option<Vec<f64>> {
    let flags = OFlags::RDONLY | OFlags::DIRECT;
    let fd = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    let mut room = vec![0; 8192];
    let start = room.as_ptr().align_offset(4096);
    let call = |i: usize| {
        let at = (i % 64 * 4096) as u64;
        let begun = std::time::Instant::now();
        let read = rustix::io::pread(&fd, &mut room[start..start + 4096], at);
        (read == Ok(4096)).then(|| begun.elapsed().as_secs_f64())
    };
    (0..count).map(call).collect()
}

/// Checks quantiles of the trace against the times that a program measured around its own calls,
/// of which the requests are a part. The same rank of parts cannot exceed that rank of the calls;
/// `others` requests of other programs may move the rank. Times in the trace are in microseconds.
fn check_against_calls(reader: &Reader, device: &str, calls: &[f64], others: usize) {
    let mut calls = calls.to_vec();
    calls.sort_by(f64::total_cmp);
    for (name, share) in [("p50", 0.5), ("p90", 0.9)] {
        let stream = format!("block_trace.read.latency.{name}.seconds{{device={device}}}");
        let value = reader.number(&stream).unwrap();
        let rank = (calls.len() as f64 * share) as usize + others;
        let longest = calls[rank.min(calls.len() - 1)];
        // A call is little more than its request: another unit of time would be seen.
        let bounds = calls[0] / 20.0..=longest * 1.05 + 2e-6;
        println!("{name}: {value} s in the trace, of calls {bounds:?}");
        assert!(bounds.contains(&value), "{stream}: {value}, {bounds:?}");
    }
}

fn instance_of(reader: &Reader) -> PathBuf {
    let sees = reader.source.report().sees;
    PathBuf::from(sees.rsplit_once("from ").unwrap().1)
}

fn assert_issuer_is_this_process(reader: &Reader, device: &str) {
    let own = format!("pid={}}}", std::process::id());
    let on = format!("device={device},");
    let streams = reader.streams("process.read");
    let own = streams
        .iter()
        .find(|stream| stream.contains(&on) && stream.ends_with(&own));
    let rate = own.and_then(|own| reader.number(own));
    assert!(rate.is_some_and(|rate| rate > 0.0), "{streams:?}");
}

#[test]
fn this_machines_own_requests() {
    const READS: usize = 2000;
    let mut config = SourcesConfig::default();
    let on = barograph_source::SourceConfig {
        enabled: Some(true),
        ..Default::default()
    };
    config.poll.insert("block_trace".to_owned(), on);
    let mut reader = Reader::new(source(&config, "block_trace"));
    reader.read().unwrap();
    if let Some(missing) = missing_of(&reader) {
        println!("no tracing here: {missing:?}");
        assert!(reader.names.is_empty() && !missing.remedy.is_empty());
        return;
    }
    let own = instance_of(&reader);
    let tracefs = own.parent().unwrap().parent().unwrap().to_owned();
    assert!(own.is_dir());

    // An instance whose agent is gone is removed when another agent starts; that of another program
    // is not.
    let left = tracefs.join("instances/barograph-4294967295-1-7");
    let foreign = tracefs.join(format!("instances/somebody-{}", std::process::id()));
    std::fs::create_dir(&left).unwrap();
    std::fs::create_dir(&foreign).unwrap();
    let mut second = Reader::new(source(&config, "block_trace"));
    second.read().unwrap();
    assert!(!left.exists() && foreign.exists() && own.is_dir());
    std::fs::remove_dir(&foreign).unwrap();
    let other = instance_of(&second);
    assert!(other != own && other.is_dir());
    drop(second);
    assert!(!other.exists());

    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("read-directly");
    std::fs::write(&file, vec![1; 1 << 20]).unwrap();
    std::fs::File::open(&file).unwrap().sync_all().unwrap();
    if let Some(calls) = read_directly(&file, READS) {
        reader.read().unwrap();
        let hottest = reader
            .streams("hot.ops{")
            .into_iter()
            .max_by_key(|s| reader.number(s).unwrap() as u64);
        let hottest = hottest.expect("a hot extent");
        let ops = reader.number(&hottest).unwrap();
        // The file's MiB may be in two extents of the disk.
        assert!(ops >= READS as f64 * 0.45, "{hottest}: {ops}");
        let device = hottest
            .split("device=")
            .nth(1)
            .unwrap()
            .split(',')
            .next()
            .unwrap();
        let events = reader.number("block_trace.events.count").unwrap();
        let others = (events as usize / 2).saturating_sub(READS);
        check_against_calls(&reader, device, &calls, others);
        assert_eq!(
            reader.number(&format!(
                "block_trace.read.size.p50.bytes{{device={device}}}"
            )),
            Some(4096.0)
        );
        assert_issuer_is_this_process(&reader, device);
        assert!(events >= 2.0 * READS as f64);
        let cost = reader.number("block_trace.cost.seconds").unwrap();
        println!("{hottest} {ops}; cost {cost} s");
    }
    std::fs::remove_file(&file).unwrap();
    drop(reader);
    assert!(!own.exists(), "the instance is removed at the end");
}

/// There are more events than the smallest buffer holds: exactly the lost ones are counted as lost.
#[test]
fn what_this_machine_loses_is_counted() {
    const READS: usize = 8000;
    let mut config = SourcesConfig::default();
    let on = barograph_source::SourceConfig {
        enabled: Some(true),
        ..Default::default()
    };
    config.poll.insert("block_trace".to_owned(), on);
    config.block_trace.buffer_bytes = 0;
    let mut reader = Reader::new(source(&config, "block_trace"));
    reader.read().unwrap();
    if missing_of(&reader).is_some() {
        return;
    }
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("read-and-lost");
    std::fs::write(&file, vec![1; 1 << 20]).unwrap();
    std::fs::File::open(&file).unwrap().sync_all().unwrap();
    if read_directly(&file, READS).is_some() {
        reader.read().unwrap();
        let number = |stream: &str| reader.number(stream).unwrap();
        let (events, lost) = (
            number("block_trace.events.count"),
            number("block_trace.lost.count"),
        );
        println!("{events} read, {lost} lost");
        assert!(lost > 0.0 && events + lost >= 2.0 * READS as f64);
        let missing = reader.source.report().missing;
        assert!(missing.iter().any(|m| m.remedy.contains("buffer_bytes")));
    }
    std::fs::remove_file(&file).unwrap();
}

/// `/proc/diskstats` of one disk with this number of reads and this busy time.
fn diskstats(ops: u64, busy_ms: u64) -> String {
    format!(" 259 0 nvme0n1 {ops} 0 0 {busy_ms} 0 0 0 0 0 {busy_ms} {busy_ms}\n")
}

fn request(at_us: u64, sector: u64) -> String {
    let at = |us: u64| format!("{}.{:06}", 100 + us / 1_000_000, us % 1_000_000);
    format!(
        "  a-1 [000] ..... {}: block_rq_issue: 259,0 R 4096 () {sector} + 8 [a]\n  a-1 [000] ..... {}: block_rq_complete: 259,0 R () {sector} + 8 [0]\n",
        at(at_us),
        at(at_us + 500)
    )
}

/// A tree whose only disk is traced in turns of 3 s.
fn in_turns(core_percent: u64) -> (Tree, Reader) {
    let tree = Tree::of("nvme-four");
    tree.write(PIPE, "");
    tree.write("proc/diskstats", diskstats(0, 0));
    let mut config = tree.config();
    config.block_trace.mode = BlockTraceMode::Auto;
    config.block_trace.auto_seconds = 3;
    config.block_trace.auto_core_percent = core_percent;
    let mut reader = Reader::new(source(&config, "block_trace"));
    reader.read().unwrap();
    (tree, reader)
}

const P50: &str = "block_trace.read.latency.p50.seconds{device=nvme0n1}";

#[test]
fn the_mode_auto_traces_while_a_disk_is_busy_and_ends_what_it_gave() {
    let (tree, mut reader) = in_turns(5);
    let number = |reader: &Reader, stream: &str| reader.number(&format!("block_trace.{stream}"));
    tree.write(PIPE, request(0, 8));
    tree.write("proc/diskstats", diskstats(10, 100));
    reader.read().unwrap();
    assert_eq!(number(&reader, "events.count"), Some(0.0), "nobody is busy");
    assert_eq!(number(&reader, "turns.count"), Some(0.0));
    assert!(reader.source.report().sees.contains("nothing now"));
    tree.write("proc/diskstats", diskstats(20, 1_100));
    reader.read().unwrap();
    assert_eq!(number(&reader, "turns.count"), Some(1.0));
    reader.read().unwrap();
    check_latency(&reader, P50, 500e-6);
    assert_eq!(number(&reader, "on.flag"), Some(1.0));
    // The turn ends after 3 s, busy or not, and its values with it.
    let mut busy_ms = 1_100;
    for _ in 0..3 {
        busy_ms += 1_000;
        tree.write("proc/diskstats", diskstats(busy_ms, busy_ms));
        reader.read().unwrap();
    }
    assert_eq!(reader.number(P50), None);
    assert_eq!(reader.streams("device="), [] as [&str; 0]);
    assert_eq!(number(&reader, "on.flag"), Some(0.0));
    assert_eq!(number(&reader, "turns.seconds"), Some(3.0));
    // The next turn comes a minute after the first began, not before.
    for _ in 0..55 {
        busy_ms += 1_000;
        tree.write("proc/diskstats", diskstats(busy_ms, busy_ms));
        reader.read().unwrap();
        assert_eq!(number(&reader, "turns.count"), Some(1.0));
    }
    for _ in 0..2 {
        busy_ms += 1_000;
        tree.write("proc/diskstats", diskstats(busy_ms, busy_ms));
        reader.read().unwrap();
    }
    assert_eq!(number(&reader, "turns.count"), Some(2.0));
}

#[test]
fn the_mode_auto_leaves_off_what_it_cannot_pay() {
    let (tree, mut reader) = in_turns(1);
    let number = |reader: &Reader, stream: &str| reader.number(&format!("block_trace.{stream}"));
    // There are more requests than 1 % of a core can trace: no turn begins.
    tree.write("proc/diskstats", diskstats(100_000, 1_000));
    reader.read().unwrap();
    assert_eq!(number(&reader, "turns.count"), Some(0.0));
    assert_eq!(number(&reader, "unaffordable.count"), Some(1.0));
    // A turn begins with few requests, and then there are many: the budget is used up, and it ends.
    tree.write("proc/diskstats", diskstats(100_100, 2_000));
    reader.read().unwrap();
    assert_eq!(number(&reader, "turns.count"), Some(1.0));
    tree.write(
        PIPE,
        (0..50_000)
            .map(|i| request(i * 10, i * 8))
            .collect::<String>(),
    );
    reader.read().unwrap();
    assert_eq!(number(&reader, "unaffordable.count"), Some(2.0));
    assert_eq!(number(&reader, "on.flag"), Some(0.0));
    let events = number(&reader, "events.count").unwrap();
    assert!((2_000.0..6_000.0).contains(&events), "{events}");
    check_latency(&reader, P50, 500e-6);
    reader.read().unwrap();
    assert_eq!(reader.number(P50), None, "what was read is told once");
}
