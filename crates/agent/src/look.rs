//! One read of all sources without an agent, for `baro doctor` on a node without one.

use std::sync::Arc;
use std::time::Duration;

use barograph_insight::Graph;
use barograph_model::{Descriptor, Sample, Sink, StreamKey};
use barograph_source::{Poller, with_those_that_are_off};
use serde_json::{Value as Json, json};
use tracing::warn;

use crate::assemble::graph;
use crate::start::FIRST_ROUND_WAIT;
use crate::{AgentError, Config, documents};
use barograph_recorder::World;

/// Longest time between two turns of the poller while slow sources are waited for.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The result of [`look`], in the form of an agent's documents.
pub struct LookDocuments {
    /// Contents as of `sources.json`.
    pub sources: Json,
    /// Contents as of `insights.json`. Insights that need two looks at a source are waiting.
    pub insights: Json,
}

/// Reads every source of a configuration once, and computes the insights from the samples.
pub fn look(config: Config) -> Result<LookDocuments, AgentError> {
    let config = config.resolve()?;
    let World { clock, .. } = World::real();
    let mut poller = Poller::new(&config.sources, Arc::clone(&clock));
    let mut looked = Sight {
        graph: graph(&config, &clock),
        next: 0,
    };
    let insights = config.insights_by_name();
    for (name, error) in looked.graph.become_these(&insights, &mut Nowhere(0)) {
        warn!(%error, name, "an insight is left out");
    }
    poller.run_due(&mut looked);
    let until_ns = clock.monotonic_ns() + FIRST_ROUND_WAIT.as_nanos() as i64;
    while poller.reports().iter().any(|r| r.polls == 0) && clock.monotonic_ns() < until_ns {
        poller.wait_for_batch(LOOK_EVERY);
        poller.run_due(&mut looked);
    }
    let reports = poller.reports();
    poller.stop();
    looked.graph.evaluate(clock.now_ns(), &mut Nowhere(0));
    let insights = documents::Insights {
        graph: &looked.graph,
        sources: &reports,
    };
    Ok(LookDocuments {
        sources: json!(with_those_that_are_off(&reports)),
        insights: json!(insights),
    })
}

/// A sink that passes the samples of sources on to the graph, and keeps nothing.
struct Sight {
    graph: Graph,
    next: u32,
}

impl Sink for Sight {
    fn declare(&mut self, descriptor: &Descriptor, _: Option<u32>) -> Option<StreamKey> {
        self.next += 1;
        let key = StreamKey(self.next);
        self.graph.stream_added(key, descriptor);
        Some(key)
    }
    fn retire(&mut self, key: StreamKey) {
        self.graph.stream_removed(key);
    }
    fn put(&mut self, key: StreamKey, sample: &Sample) {
        self.graph.sample(key, sample);
    }
    fn expect_interval(&mut self, _: StreamKey, _: i64) {}
}

/// A sink that discards the samples of insights. It only counts their streams.
struct Nowhere(u32);

impl Sink for Nowhere {
    fn declare(&mut self, _: &Descriptor, _: Option<u32>) -> Option<StreamKey> {
        self.0 += 1;
        Some(StreamKey(self.0))
    }
    fn retire(&mut self, _: StreamKey) {}
    fn put(&mut self, _: StreamKey, _: &Sample) {}
    fn expect_interval(&mut self, _: StreamKey, _: i64) {}
}
