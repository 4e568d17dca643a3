//! Puts and reads of C, C++ and Fortran programs.

use std::path::{Path, PathBuf};

use barograph_model::{Clock as _, Descriptor, Kind, Labels, Name, Sample, Unit, Value, ValueType};
use barograph_stream::ingest::{
    DrainResult, IngestDeclaration, IngestFile, PublicationReaders, RecordPayload,
};
use barograph_stream::{RunDir, Segment, SegmentConfig, SystemClock};

use crate::build::{self, Language, built, command, must, program, workshop};

/// A file as its process left it.
struct Left {
    declared: Vec<IngestDeclaration>,
    /// Ring, series, content.
    puts: Vec<(u32, u32, Put)>,
    dropped: u64,
    is_closed: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Put {
    Int(i64),
    Float(f64),
    Bool(bool),
    Text(String),
    Json(String),
    Bytes(Vec<u8>),
    Frame(u64),
}

fn left(run_dir: &Path) -> Vec<Left> {
    let found = std::fs::read_dir(RunDir::new(run_dir).ingest_dir()).unwrap();
    let open = |entry: std::io::Result<std::fs::DirEntry>| {
        IngestFile::open(&entry.unwrap().path()).unwrap()
    };
    let mut files: Vec<IngestFile> = found.map(open).collect();
    files.sort_by_key(IngestFile::created_ns);
    files.into_iter().map(drained).collect()
}

fn drained(mut file: IngestFile) -> Left {
    let (mut declared, mut puts) = (Vec::new(), Vec::new());
    file.look().unwrap();
    file.declarations(&mut |d| declared.push(d)).unwrap();
    let drained = file.drain(u64::MAX, &mut |record| {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let put = match record.payload {
            RecordPayload::Int(v) => Put::Int(v),
            RecordPayload::Float(v) => Put::Float(v),
            RecordPayload::Bool(v) => Put::Bool(v),
            RecordPayload::Frame(v) => Put::Frame(v),
            RecordPayload::Ack { .. } | RecordPayload::Missed(_) | RecordPayload::Damaged => return,
            RecordPayload::Text(v) => Put::Text(text(v)),
            RecordPayload::Json(v) => Put::Json(text(v)),
            RecordPayload::Bytes(v) | RecordPayload::Floats(v) => Put::Bytes(v.to_vec()),
        };
        puts.push((record.ring, record.series, put));
    });
    let drained = drained.unwrap();
    assert_eq!((drained.missed, drained.damaged), (0, 0));
    Left {
        declared,
        puts,
        dropped: file.dropped(),
        is_closed: file.is_closed(),
    }
}

fn here(name: &str) -> PathBuf {
    build::here().join("tests/programs").join(name)
}

fn example(name: &str) -> PathBuf {
    build::here().join("../../docs/examples").join(name)
}

#[test]
fn the_examples_of_each_language_publish() {
    let workshop = workshop();
    let module = build::here().join("fortran/baro.f90");
    for (language, sources) in [
        (Language::C, vec![example("publish.c")]),
        (Language::Cpp, vec![example("publish.cpp")]),
        (Language::Fortran, vec![module, example("publish.f90")]),
    ] {
        let built = program(workshop.path(), language, &sources, &["-lbaro"]);
        if let Some(program) = built {
            check_example(&program);
        }
    }
}

/// Without the shared library: one file, as batch systems prefer it.
#[test]
fn the_static_library_suffices() {
    let workshop = workshop();
    let archive = built("libbaro.a");
    let libraries = [archive.to_str().unwrap(), "-lpthread", "-ldl", "-lm"];
    let sources = [example("publish.c")];
    if let Some(program) = program(workshop.path(), Language::C, &sources, &libraries) {
        check_example(&program);
    }
}

fn check_example(program: &Path) {
    let dir = tempfile::tempdir().unwrap();
    must(&command(program, dir.path()).output().unwrap());
    let left = left(dir.path());
    let [left] = &left[..] else {
        panic!("{} files", left.len());
    };
    assert_eq!((left.is_closed, left.dropped), (true, 0));
    let expect = (0..1_000_u32).flat_map(|n| {
        let value = 1.0 / f64::from(n + 1);
        [(0, 0, Put::Float(value)), (0, 0, Put::Frame(n.into()))]
    });
    assert!(
        left.puts.iter().cloned().eq(expect),
        "{}",
        program.display()
    );
    let help = "distance from the solution";
    let expect = IngestDeclaration::Value {
        publication: 0,
        name: "residual".into(),
        value_type: ValueType::Float,
        kind: Kind::Gauge,
        unit: "1".into(),
        help: help.into(),
        bytes_max: 0,
    };
    assert_eq!(left.declared[2], expect);
}

#[test]
fn threads_forks_and_new_openings_of_c_programs() {
    let workshop = workshop();
    let sources = [here("threads.c")];
    let libraries = ["-lbaro", "-lpthread"];
    let Some(program) = program(workshop.path(), Language::C, &sources, &libraries) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    must(&command(&program, dir.path()).output().unwrap());
    let left = left(dir.path());
    assert_eq!(left.len(), 3);
    let (parent, child, anew) = (&left[0], &left[1], &left[2]);
    check_parent(parent);
    let puts = |left: &Left| -> Vec<Put> { left.puts.iter().map(|(_, _, p)| p.clone()).collect() };
    assert_eq!(puts(child), [Put::Float(-1.0), Put::Frame(2_000)]);
    assert_eq!(child.declared, parent.declared);
    assert_eq!(puts(anew), [Put::Float(-4.0), Put::Frame(3_000)]);
}

fn check_parent(parent: &Left) {
    let labels = vec![("phase".to_owned(), "test".to_owned())];
    let process = IngestDeclaration::Process {
        application: "programs".into(),
        labels,
    };
    assert_eq!(parent.declared[0], process);
    let publication = IngestDeclaration::Publication {
        name: "threads".into(),
        readers: PublicationReaders::Group,
        labels: Vec::new(),
    };
    assert_eq!(parent.declared[1], publication);
    assert_eq!(parent.dropped, 1);
    let mut floats: Vec<f64> = parent.puts.iter().filter_map(float).collect();
    floats.sort_by(f64::total_cmp);
    let expect: Vec<f64> = [-2.0]
        .into_iter()
        .chain((0..10_000).map(f64::from))
        .collect();
    assert_eq!(floats, expect);
    let mut numbers: Vec<i64> = parent.puts.iter().filter_map(int).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..10).collect::<Vec<i64>>());
    let floats: Vec<u8> = [1.5_f64, -2.5]
        .iter()
        .flat_map(|v| v.to_le_bytes())
        .collect();
    for put in [
        Put::Bool(true),
        Put::Text("a note".into()),
        Put::Json("[1]".into()),
        Put::Bytes(b"\0b".to_vec()),
        Put::Bytes(floats),
        Put::Frame(1_000),
        Put::Frame(1_001),
    ] {
        let count = parent.puts.iter().filter(|(_, _, p)| *p == put).count();
        assert_eq!(count, 1, "{put:?}");
    }
}

fn float((_, _, put): &(u32, u32, Put)) -> Option<f64> {
    match put {
        Put::Float(v) => Some(*v),
        _ => None,
    }
}

fn int((_, _, put): &(u32, u32, Put)) -> Option<i64> {
    match put {
        Put::Int(v) => Some(*v),
        _ => None,
    }
}

/// A reader beside two threads that lap it: its records are whole and in order, and together with
/// the missed ones they are all that were put.
#[test]
fn a_reader_that_is_lapped_sees_no_torn_record() {
    const COUNT: u64 = 1_000_000;
    let workshop = workshop();
    let libraries = ["-lbaro", "-lpthread"];
    let sources = [here("hammer.c")];
    let Some(program) = program(workshop.path(), Language::C, &sources, &libraries) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let mut child = command(&program, dir.path());
    let mut child = child.arg(COUNT.to_string()).spawn().unwrap();
    let (mut newest, mut sum) = ([-1; 2], DrainResult::default());
    let mut file = None;
    let mut is_over = false;
    while !is_over {
        is_over = child.try_wait().unwrap().is_some();
        if file.is_none() {
            file = first_file(dir.path());
        }
        let Some(file) = &mut file else { continue };
        file.look().unwrap();
        let drained = file.drain(u64::MAX, &mut |record| {
            let number = match record.payload {
                RecordPayload::Int(v) => v,
                RecordPayload::Frame(v) => i64::try_from(v).unwrap(),
                other => panic!("{other:?} was never put"),
            };
            let newest = &mut newest[record.ring as usize];
            // A frame has the number of the value before it.
            assert!(*newest <= number, "{number} after {newest}");
            *newest = number;
        });
        let drained = drained.unwrap();
        sum.records += drained.records;
        sum.missed += drained.missed;
        sum.damaged += drained.damaged;
    }
    assert!(child.wait().unwrap().success());
    assert_eq!(newest, [COUNT as i64 - 1; 2]);
    assert_eq!(sum.damaged, 0);
    assert_eq!(sum.records + sum.missed, 2 * (COUNT + COUNT / 7));
}

fn first_file(run_dir: &Path) -> Option<IngestFile> {
    let mut found = std::fs::read_dir(RunDir::new(run_dir).ingest_dir()).ok()?;
    // The file may not be complete yet.
    IngestFile::open(&found.next()?.ok()?.path()).ok()
}

/// The same program with the slow path only, as on machines without a time-stamp counter.
#[test]
fn puts_that_are_not_inline_are_the_same() {
    let workshop = workshop();
    let source = workshop.path().join("slow.c");
    let text = format!(
        "#define BARO_NO_INLINE\n#include \"{}\"\n",
        example("publish.c").display()
    );
    std::fs::write(&source, text).unwrap();
    if let Some(program) = program(workshop.path(), Language::C, &[source], &["-lbaro"]) {
        check_example(&program);
    }
}

#[test]
fn nulls_and_nonsense_are_refused_with_a_reason() {
    let workshop = workshop();
    let sources = [here("abi.c")];
    if let Some(program) = program(workshop.path(), Language::C, &sources, &["-lbaro"]) {
        let dir = tempfile::tempdir().unwrap();
        let mut command = command(&program, dir.path());
        must(&command.env("BAROGRAPH", "off").output().unwrap());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

#[test]
fn a_library_that_is_closed_stays_for_its_threads() {
    let workshop = workshop();
    let sources = [here("closes.c")];
    let libraries = ["-lpthread", "-ldl"];
    if let Some(program) = program(workshop.path(), Language::C, &sources, &libraries) {
        let dir = tempfile::tempdir().unwrap();
        let mut command = command(&program, dir.path());
        command.arg(built("libbaro.so"));
        must(&command.output().unwrap());
        assert_eq!(left(dir.path())[0].puts, [(0, 0, Put::Int(7))]);
    }
}

#[test]
fn a_thread_that_is_cancelled_ends_after_its_put() {
    let workshop = workshop();
    let sources = [here("cancelled.c")];
    let libraries = ["-lbaro", "-lpthread"];
    if let Some(program) = program(workshop.path(), Language::C, &sources, &libraries) {
        let dir = tempfile::tempdir().unwrap();
        must(&command(&program, dir.path()).output().unwrap());
        let puts = &left(dir.path())[0].puts;
        assert_eq!(puts[..], [(0, 0, Put::Float(1.0)), (0, 0, Put::Frame(1))]);
    }
}

#[test]
fn the_newest_values_and_sql_are_read_from_c() {
    let workshop = workshop();
    let sources = [here("read.c")];
    let Some(program) = program(workshop.path(), Language::C, &sources, &["-lbaro"]) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let _segments = (segment(dir.path()), mirrors(dir.path()));
    let mut command = command(&program, dir.path());
    must(&command.arg(dir.path()).output().unwrap());
}

/// The mirrors of two other nodes: n2, and n3, of which nothing was heard for a minute.
fn mirrors(run_dir: &Path) -> [Segment; 2] {
    let now_ns = SystemClock::new().now_ns();
    let mirror = |node: &str, number: f64, heard_ns: i64| {
        let dir = RunDir::new(run_dir).mirror(node);
        std::fs::create_dir_all(dir.path()).unwrap();
        let config = SegmentConfig::new(node);
        let mut segment = Segment::create(&dir.segment(), config, heard_ns).unwrap();
        segment.heartbeat(heard_ns);
        let stream = descriptor("disk.read.bytes", &[("device", "vda")], ValueType::Float);
        let mut writer = segment.register(&stream, Some(16), heard_ns).unwrap();
        let sample = Sample::measured(heard_ns, Value::Float(number));
        writer.append(&sample).unwrap();
        segment
    };
    let minute_ns = 60_000_000_000;
    [
        mirror("n2", 7.5, now_ns),
        mirror("n3", 8.5, now_ns - minute_ns),
    ]
}

fn descriptor(name: &str, labels: &[(&str, &str)], value_type: ValueType) -> Descriptor {
    Descriptor {
        name: Name::new(name).unwrap(),
        labels: Labels::new(labels.iter().copied()).unwrap(),
        value_type,
        unit: Unit::new("bytes").unwrap(),
        kind: Kind::Gauge,
        help: "what it is".into(),
    }
}

/// A segment with a number, a text, a stream without a sample, and a stream with a forecast: 10 was
/// measured a second ago, and half a second after that it is 12, give or take 2.
fn segment(run_dir: &Path) -> Segment {
    let now_ns = SystemClock::new().now_ns();
    let path = RunDir::new(run_dir).segment();
    let mut segment = Segment::create(&path, SegmentConfig::new("n1"), now_ns).unwrap();
    segment.heartbeat(now_ns);
    for (name, labels, value) in [
        (
            "disk.read.bytes",
            &[("device", "vda")][..],
            Some(Value::Float(42.5)),
        ),
        ("name", &[], Some(Value::text("n"))),
        ("memory.free.bytes", &[], Some(Value::Float(10.0))),
        (
            "forecast.memory.free.bytes",
            &[],
            Some(Value::Floats(
                vec![0.0, 10.0, 0.0, 0.5, 12.0, 2.0, 9e4, 12.0, 2.0].into(),
            )),
        ),
        ("empty", &[], None),
    ] {
        let value_type = value.as_ref().map_or(ValueType::Float, Value::value_type);
        let descriptor = descriptor(name, labels, value_type);
        let mut writer = segment.register(&descriptor, Some(16), now_ns).unwrap();
        if let Some(value) = value {
            let before_ns = if name.ends_with("memory.free.bytes") {
                1_000_000_000
            } else {
                0
            };
            let sample = Sample::measured(now_ns - before_ns, value);
            writer.append(&sample).unwrap();
        }
    }
    segment
}

#[test]
fn each_class_of_cpp_does_what_it_says() {
    let workshop = workshop();
    let sources = [here("classes.cpp")];
    let Some(program) = program(workshop.path(), Language::Cpp, &sources, &["-lbaro"]) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let _segments = (segment(dir.path()), mirrors(dir.path()));
    let mut command = command(&program, dir.path());
    must(&command.arg(dir.path()).output().unwrap());
    let bytes = Put::Bytes(b"\0b".to_vec());
    check_kinds(&left(dir.path()), &[bytes]);
}

#[test]
fn each_procedure_of_fortran_does_what_it_says() {
    let workshop = workshop();
    let sources = [build::here().join("fortran/baro.f90"), here("kinds.f90")];
    if let Some(program) = program(workshop.path(), Language::Fortran, &sources, &["-lbaro"]) {
        let dir = tempfile::tempdir().unwrap();
        let _segments = (segment(dir.path()), mirrors(dir.path()));
        must(&command(&program, dir.path()).output().unwrap());
        check_kinds(&left(dir.path()), &[]);
    }
}

/// One frame with a value of each type.
fn check_kinds(left: &[Left], bytes: &[Put]) {
    let [left] = left else {
        panic!("{} files", left.len());
    };
    let array = [1.5_f64, -2.5].iter().flat_map(|v| v.to_le_bytes());
    let before = [
        Put::Int(-1),
        Put::Float(0.5),
        Put::Bool(true),
        Put::Text("text".into()),
        Put::Json("[1]".into()),
    ];
    let after = [Put::Bytes(array.collect()), Put::Frame(1)];
    let expect = before.iter().chain(bytes).chain(&after);
    assert!(
        left.puts.iter().map(|(_, _, put)| put).eq(expect),
        "{:?}",
        left.puts
    );
    assert_eq!((left.dropped, left.is_closed), (0, true));
    let first = IngestDeclaration::Value {
        publication: 0,
        name: "i".into(),
        value_type: ValueType::Int,
        kind: Kind::Counter,
        unit: "1".into(),
        help: "a number".into(),
        bytes_max: 0,
    };
    assert_eq!(left.declared[2], first);
}
