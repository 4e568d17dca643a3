//! `agent.idle` and `source.1khz`: the cost of the whole agent while it observes this machine.

use std::time::Duration;

use barograph_model::Selector;

use super::agent::{Agent, SOURCES, cost};
use crate::measure::{keep, now};
use crate::peers::{node_exporter::Exporter, pcp::Pcp};
use crate::report::{Fault, Report};

const SECONDS: u32 = 20;
/// Time in which an agent still does what only a start needs: it gives memory back after 15 s.
const STARTED_AFTER: Duration = Duration::from_secs(18);

/// Measures all sources at their usual intervals, without SQL.
pub(super) fn idle(report: &mut Report) -> Result<(), Fault> {
    let agent = Agent::start("idle", "")?;
    std::thread::sleep(STARTED_AFTER);
    let ours = cost(agent.pid(), || each_second(|| {}))?;
    drop(agent);
    let (mut cpu_peers, mut rss_peers) = (Vec::new(), Vec::new());
    if let Some(exporter) = Exporter::start(report) {
        let theirs = cost(exporter.server.0.id(), || {
            each_second(|| keep(exporter.scrape("")))
        })?;
        cpu_peers.push(("node_exporter, scraped at 1 s", theirs.cpu));
        rss_peers.push(("node_exporter", theirs.rss));
    }
    if let Some(pcp) = Pcp::start(report) {
        let theirs = cost(pcp.server.0.id(), || each_second(|| keep(pcp.fetch())))?;
        cpu_peers.push(("pcp pmcd and agents, one metric at 1 s", theirs.cpu));
        rss_peers.push(("pcp pmcd and agents", theirs.rss));
    }
    report.row(
        "agent.idle",
        "all sources of this machine, processor",
        ours.cpu,
        "% of core",
        &cpu_peers,
    );
    report.row(
        "agent.idle",
        "resident memory, shared pages included",
        ours.rss,
        "MB",
        &rss_peers,
    );
    Ok(())
}

/// Runs once per second what the agent's users would do.
fn each_second(mut work: impl FnMut()) {
    for _ in 0..SECONDS {
        work();
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Measures one source that is polled a thousand times per second.
pub(super) fn one_khz(report: &mut Report) -> Result<(), Fault> {
    let config = |source: &str| match source {
        "disk" => "[sources.poll.disk]\ninterval_ms = 1\n".to_owned(),
        other => format!("[sources.poll.{other}]\nenabled = false\n"),
    };
    let agent = Agent::start("khz", &SOURCES.map(config).concat())?;
    let observer = agent.observer()?;
    let polls = || -> Result<f64, Fault> {
        let values = observer.latest(&Selector::parse("source.polls.count{source=disk}")?);
        let sample = values
            .into_iter()
            .next()
            .and_then(|v| v.sample)
            .ok_or("no polls are counted")?;
        Ok(sample.value.as_f64().unwrap_or(0.0))
    };
    let (begin, before) = (now(), polls()?);
    let ours = cost(agent.pid(), || each_second(|| {}))?;
    let rate = (polls()? - before) / begin.elapsed().as_secs_f64();
    report.row(
        "source.1khz",
        "disk source at 1 ms: reads",
        rate,
        "reads/s",
        &[],
    );
    report.row(
        "source.1khz",
        "disk source at 1 ms: processor",
        ours.cpu,
        "% of core",
        &[],
    );
    Ok(())
}
