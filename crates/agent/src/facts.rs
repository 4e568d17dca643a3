//! The sink of the sources. Each sample goes to the streams, and from there to the parts that
//! compute from it.
//!
//! This module is separate because it is the one place where the parts of the sampling thread meet.

use barograph_insight::Graph;
use barograph_model::{Descriptor, IntervalRequest, Sample, Sink, StreamKey};
use barograph_recorder::{Forecasts, Streams};

use crate::interference::BandwidthWatch;
use crate::outlook::Outlook;
use crate::policies::Policies;

/// The sink of the sources: the streams, and the parts that follow them.
pub(crate) struct FactSink<'a, 'c> {
    /// The streams, to which samples are appended.
    pub streams: &'a mut Streams<'c>,
    /// The insights, which are computed from samples.
    pub graph: &'a mut Graph,
    /// The outlook, which summarizes the state of the node.
    pub outlook: &'a mut Outlook,
    /// The forecasters of streams.
    pub forecasts: &'a mut Forecasts,
    /// The bandwidths of devices, which are forecast from the bytes of their writers.
    pub bandwidths: &'a mut BandwidthWatch,
    /// The policies, which decide when to look again.
    pub policies: &'a mut Policies,
}

impl Sink for FactSink<'_, '_> {
    fn declare(&mut self, descriptor: &Descriptor, depth: Option<u32>) -> Option<StreamKey> {
        let key = self.streams.declare(descriptor, depth)?;
        self.graph.stream_added(key, descriptor);
        self.outlook.stream_added(key, descriptor);
        self.bandwidths.stream_added(key, descriptor);
        self.forecasts.stream_added(key, descriptor, self.streams);
        self.policies
            .stream_added(key, descriptor, self.forecasts, self.streams);
        Some(key)
    }

    fn retire(&mut self, key: StreamKey) {
        self.graph.stream_removed(key);
        self.outlook.stream_removed(key);
        self.bandwidths.stream_removed(key);
        self.forecasts.stream_removed(key, self.streams);
        self.policies.stream_removed(key);
        self.streams.retire(key);
    }

    fn put(&mut self, key: StreamKey, sample: &Sample) {
        if self.streams.look(key, sample) {
            self.graph.sample(key, sample);
            self.outlook.sample(key, sample);
        } else {
            self.graph.looked(key, sample.ts);
        }
        self.bandwidths.looked(key, sample);
        self.policies.looked(key, sample, self.forecasts);
    }

    fn expect_interval(&mut self, key: StreamKey, interval_ns: i64) {
        self.graph.interval(key, interval_ns);
        self.forecasts.interval(key, interval_ns);
        self.policies.interval(key, interval_ns);
        self.streams.expect_interval(key, interval_ns);
    }

    fn wanted(&self, key: StreamKey) -> Option<IntervalRequest> {
        self.policies.wanted(key)
    }

    fn wishes(&self) -> u64 {
        self.policies.wishes()
    }
}
