//! `stream.append`: the samples per second that one core appends.

use barograph_model::Sample;

use super::{Scratch, descriptor, segment};
use crate::measure::cpu_ns;
use crate::peers;
use crate::report::{Fault, Report};

const SAMPLES: usize = 20_000_000;

/// Measures raw appends, appends with a sample made, and looks that change nothing.
pub(super) fn run(report: &mut Report) -> Result<(), Fault> {
    let scratch = Scratch::new("append")?;
    let mut segment = segment(&scratch)?;
    let mut writer = segment.register(&descriptor(0), None, 0)?;
    let mut ts = 0;
    let per_second = |ns: f64| 1e9 / ns;
    let redis: Vec<(&str, f64)> = peers::redis::appends_per_s(report)
        .map(|v| ("redis XADD, pipelined", v))
        .into_iter()
        .collect();
    let raw = cpu_ns(SAMPLES, || {
        ts += 1;
        let _ = writer.append_f64(ts, ts as f64);
    });
    report.row(
        "stream.append",
        "doubles, one core",
        per_second(raw),
        "samples/s",
        &redis,
    );
    let made = cpu_ns(SAMPLES / 4, || {
        ts += 1;
        let _ = writer.look(&Sample::measured(ts, ts as f64));
    });
    report.row(
        "stream.append",
        "samples with change detection, one core",
        per_second(made),
        "samples/s",
        &[],
    );
    let same = cpu_ns(SAMPLES / 4, || {
        ts += 1;
        let _ = writer.look(&Sample::measured(ts, 1.5));
    });
    report.row(
        "stream.append",
        "looks that change nothing, one core",
        per_second(same),
        "looks/s",
        &[],
    );
    Ok(())
}
