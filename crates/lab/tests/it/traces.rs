//! Tests of the formats, and of the recorded traces.

use std::fs;
use std::path::{Path, PathBuf};

use barograph_lab::{COLUMNS_MAX, Family, Trace, TraceError, generate};
use proptest::prelude::*;

use crate::exercise;

fn data(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn fault(text: &str) -> String {
    match Trace::parse("t", text.as_bytes()) {
        Ok(trace) => panic!("{trace:?}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn ours_is_read_as_it_is_written() {
    let text = "# trace disk\n# interval_ns 1000000000\n# a remark\ntime_ns,read[B],load[1]\n0,5,0.25\n1000000000,,3\n";
    let trace = Trace::parse("t", text.as_bytes()).unwrap();
    assert_eq!(
        (trace.name.as_str(), trace.interval_ns),
        ("disk", 1_000_000_000)
    );
    assert_eq!(trace.columns[0].unit, "B");
    assert!(trace.columns[0].values[1].is_nan());
    assert_eq!(trace.column("load").unwrap().values, [0.25, 3.0]);
    let again = Trace::parse("t", trace.write().as_bytes()).unwrap();
    assert_eq!(again.write(), trace.write());
    let made = generate(Family::Walk, 100, 7);
    assert_eq!(Trace::parse("t", made.write().as_bytes()).unwrap(), made);
}

#[test]
fn times_may_be_iso_8601() {
    let text = "time,v\n2026-11-22T11:25:16Z,1\n2026-11-22T11:25:18.5Z,2\n";
    let trace = Trace::parse("t", text.as_bytes()).unwrap();
    assert_eq!(trace.ts_ns[0], 1_795_346_716_000_000_000);
    assert_eq!(trace.interval_ns, 2_500_000_000);
}

#[test]
fn what_sadf_prints_is_read() {
    let trace = Trace::parse("sadf", &data("sadf-d.txt")).unwrap();
    assert_eq!(trace.interval_ns, 1_000_000_000);
    assert_eq!(trace.ts_ns.len(), 64);
    let memory = trace.column("kbmemfree").unwrap();
    assert_eq!(
        (memory.unit.as_str(), memory.values[0]),
        ("KiB", 19_492_336.0)
    );
    let written = trace.column("vda.wkB/s").unwrap();
    assert!(written.unit == "KiB/s" && written.values.iter().all(|value| *value >= 0.0));
    assert_eq!(trace.column("vda.%util").unwrap().unit, "%");
}

#[test]
fn what_apollo_replays_is_read() {
    let text = "# tps_;wr_sec/s_;timestamp\n1.5;300;2020-10-01 12:00:00 UTC\n2;0;2020-10-01 12:00:01 UTC\n";
    let trace = Trace::parse("apollo", text.as_bytes()).unwrap();
    assert_eq!(trace.ts_ns[1] - trace.ts_ns[0], 1_000_000_000);
    assert_eq!(trace.column("tps_").unwrap().values, [1.5, 2.0]);
    assert_eq!(trace.column("wr_sec/s_").unwrap().unit, "sectors/s");
}

#[test]
fn faults_say_their_line() {
    let check = |text: &str, expect: &str| {
        assert!(fault(text).starts_with(expect), "{text:?}: {}", fault(text))
    };
    check("", "no values");
    check("time_ns,a\n", "no values");
    check("when,a\n1,2\n", "line 1: a header begins");
    check("time_ns\n1\n", "line 1: a header names");
    check("time_ns,a\n1,2\n1,2\n", "line 3: not later");
    check("time_ns,a\n1,x\n", "line 2: \"x\" is no number");
    check("time_ns,a\n1\n", "line 2: no field for a");
    check("time_ns,a\n1,2,3\n", "line 2: more fields");
    check("# interval_ns 0\n", "line 1: interval_ns");
    check("# a;b\n1;2\n", "line 1: a header without timestamp");
    check("# a;;timestamp\n", "line 1: a column without a name");
    check("# a;timestamp\n1\n", "line 2: 1 fields under a header of 2");
    check("# a;timestamp\n1;noon\n", "line 2: \"noon\" is no time");
    let wide = "a,".repeat(COLUMNS_MAX + 1);
    check(&format!("time_ns,{wide}b\n"), "more than 512 columns");
    assert!(matches!(
        Trace::parse("t", &[0x1f, 0x8b, 8, 0]),
        Err(TraceError::Unreadable(_))
    ));
    assert!(matches!(
        Trace::parse("t", &[0xff, 0xfe]),
        Err(TraceError::Unreadable(_))
    ));
}

proptest! {
    #[test]
    fn no_bytes_are_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Trace::parse("t", &bytes);
    }

    #[test]
    fn no_edits_make_a_trace_unsound(
        format in 0..exercise::SPECIMENS.len(),
        edits in prop::collection::vec(any::<u8>(), 0..40),
        text in "[0-9;,:.eE+\\-\n#\\[\\] a-zA-Z]{0,8}",
        at in any::<u8>(),
    ) {
        let good = exercise::SPECIMENS[format];
        exercise::read(good);
        exercise::read(&exercise::overlay(good, &edits));
        let written = [&[at, text.len() as u8], text.as_bytes()].concat();
        exercise::read(&exercise::overlay(good, &written));
    }

    #[test]
    fn no_lines_are_a_panic(text in "(# )?[a-zA-Z_;,#%/\\[\\]0-9: \\-\n.]{0,300}") {
        let _ = Trace::parse("t", text.as_bytes());
        let _ = Trace::parse("t", format!("# a;timestamp;DEV\n{text}").as_bytes());
        let _ = Trace::parse("t", format!("time_ns,a[B],b\n{text}").as_bytes());
    }
}

fn recorded() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces");
    let files = fs::read_dir(&folder).expect("traces are kept beside the crate");
    let files = files.map(|entry| entry.expect("a folder that can be read").path());
    let mut packed: Vec<PathBuf> = files
        .filter(|path| path.extension().is_some_and(|ending| ending == "gz"))
        .collect();
    packed.sort();
    packed
}

#[test]
fn the_kept_traces_are_read_and_train_and_test_share_no_moment() {
    let paths = recorded();
    assert_eq!(paths.len(), 60);
    for path in paths {
        let name = path.to_string_lossy().into_owned();
        let trace = Trace::parse(&name, &fs::read(&path).unwrap()).unwrap();
        assert!(
            trace.ts_ns.len() >= 300 && trace.columns.len() == 11,
            "{name}"
        );
        if let Some(stem) = name.strip_suffix("-train.csv.gz") {
            let test = fs::read(format!("{stem}-test.csv.gz")).unwrap();
            let test = Trace::parse("test", &test).unwrap();
            assert!(trace.ts_ns.last() < test.ts_ns.first(), "{name}");
        }
    }
}
