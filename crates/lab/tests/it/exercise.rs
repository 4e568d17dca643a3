//! Damaged traces of every format, and every operation on a trace. The tests and the fuzz target
//! share this file.

use barograph_forecast::Shape;
use barograph_forecast::interval::ErrorBound;
use barograph_lab::Trace;
use barograph_lab::suite::{self, Case};

/// Most rows of a trace that is replayed too; all other operations are as long as their input.
const REPLAYED_MAX: usize = 64;

/// A valid trace of each format.
pub(crate) const SPECIMENS: [&[u8]; 4] = [
    b"# trace disk\n# interval_ns 1000000000\ntime_ns,read[B],load[1]\n0,5,0.25\n1000000000,,3\n2000000000,7,1e9\n",
    b"time,v\n2026-11-22T11:25:16Z,1\n2026-11-22T11:25:18.5Z,2\n2026-11-22T11:25:19Z,0\n",
    b"# hostname;interval;timestamp;DEV;tps;rkB/s\nn;1;2026-11-22 11:25:16 UTC;vda;1.5;8\n\
      n;1;2026-11-22 11:25:16 UTC;vdb;0;0\nn;-1;2026-11-22 11:25:17 UTC;LINUX-RESTART\n\
      # hostname;interval;timestamp;kbmemfree\nn;1;2026-11-22 11:25:18 UTC;19492336\n",
    b"# tps_;wr_sec/s_;timestamp\n1.5;300;:2020-10-01 12::00::00 UTC:\n2;0;1601553601\n",
];

/// Overwrites parts of a file; an edit is a position and a length (one byte each) and that many
/// bytes.
pub(crate) fn overlay(good: &[u8], mut edits: &[u8]) -> Vec<u8> {
    let mut file = good.to_vec();
    while let [at, length, rest @ ..] = edits {
        let at = usize::from(*at) * 2 % file.len();
        let (new, others) = rest.split_at(usize::from(*length).min(rest.len()));
        // The replacement may be longer or shorter than the replaced part: an edit may cut and may
        // add.
        let end = file.len().min(at + new.len() / 2);
        file.splice(at..end, new.iter().copied());
        edits = others;
        if file.is_empty() {
            return file;
        }
    }
    file
}

/// Checks that bytes are refused with a reason, or are a consistent trace.
pub(crate) fn read(bytes: &[u8]) {
    let trace = match Trace::parse("t", bytes) {
        Ok(trace) => trace,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    assert!(trace.interval_ns > 0 && !trace.ts_ns.is_empty() && !trace.columns.is_empty());
    assert!(trace.ts_ns.windows(2).all(|pair| pair[0] < pair[1]));
    let rows = trace.ts_ns.len();
    assert!(
        trace
            .columns
            .iter()
            .all(|column| column.values.len() == rows)
    );
    let written = trace.write();
    let again = Trace::parse("t", written.as_bytes());
    let again = again.unwrap_or_else(|error| panic!("{error} in what was written:\n{written}"));
    assert_eq!(again.ts_ns, trace.ts_ns);
    assert_eq!(again.write(), written);
    if rows > REPLAYED_MAX {
        return;
    }
    let case = Case {
        name: "t".to_owned(),
        value: 0,
        counter: (trace.columns.len() > 1).then_some(1),
        bound: ErrorBound::Relative(0.01),
        shape: Shape::Gauge,
        confidence: 0.9,
        trace,
    };
    for score in suite::score(&case, &mut || 0) {
        assert!(score.errors.iter().flatten().all(|error| *error >= 0.0));
    }
    for row in suite::policies(&case, &mut || 0).rows {
        assert!((0.0..=1.0).contains(&row.outcome.cost), "{}", row.policy);
    }
}
