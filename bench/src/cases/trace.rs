//! `block_trace.parse`: the events of the kernel's tracing that one core parses per second, beside
//! only finding their lines.

use barograph_source::sources::block_trace::line::{TraceLine, parse};

use crate::measure::{cpu_ns, keep};
use crate::report::{Fault, Report};

/// Number of requests in the text: two events each, and more than a second-level cache holds.
const REQUESTS: u64 = 10_000;
const ROUNDS: usize = 50;

/// Measures text in the form that `trace_pipe` has on a current kernel.
pub(super) fn run(report: &mut Report) -> Result<(), Fault> {
    let text = text();
    let events = 2.0 * REQUESTS as f64;
    let ours = cpu_ns(ROUNDS, || {
        let understood = lines(&text)
            .filter(|line| matches!(parse(line), TraceLine::Issue(_) | TraceLine::Complete(_)));
        keep(understood.count());
    });
    let floor = cpu_ns(ROUNDS, || {
        keep(lines(&text).map(<[u8]>::len).sum::<usize>())
    });
    let understood =
        lines(&text).filter(|line| !matches!(parse(line), TraceLine::Bad | TraceLine::Other));
    if understood.count() as u64 != 2 * REQUESTS {
        return Err("not every line was understood".into());
    }
    let a_second = |ns: f64| events * 1e9 / ns;
    report.row(
        "block_trace.parse",
        "events understood by one core",
        a_second(ours),
        "events/s",
        &[("lines found only", a_second(floor))],
    );
    Ok(())
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|b| *b == b'\n').filter(|line| !line.is_empty())
}

fn text() -> Vec<u8> {
    let event = |i: u64| {
        let (micros, sector) = (i * 37, i * 7919 % 4_000_000_000 * 8);
        let at = |micros: u64| format!("{:5}.{:06}", 1000 + micros / 1_000_000, micros % 1_000_000);
        format!(
            "         python3-29963   [000]  {}: block_rq_issue: 259,0 RA 4096 () {sector} + 8 be,0,4 [python3]\n          <idle>-0       [001]  {}: block_rq_complete: 259,0 RA () {sector} + 8 be,0,4 [0]\n",
            at(micros),
            at(micros + 80)
        )
    };
    (0..REQUESTS).map(event).collect::<String>().into_bytes()
}
