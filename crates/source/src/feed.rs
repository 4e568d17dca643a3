//! The way from a batch to the sink: the stream of each fact, and the interval that each stream
//! asks for.

use barograph_model::{Sink, StreamKey};

use crate::batch::{FactChange, Outbox};
use crate::pace::Wants;
use crate::policy::{IntervalPolicy, PolicyState};

/// The streams of the facts of one batch, indexed by fact.
#[derive(Debug, Default)]
pub(crate) struct FactFeed {
    streams: Vec<Option<Stream>>,
    live: usize,
    refused: usize,
}

#[derive(Debug)]
struct Stream {
    key: StreamKey,
    /// Interval of this stream in ns, if it is not that of its source.
    every_ns: Option<i64>,
    policy: PolicyState,
}

impl Stream {
    /// The interval of this stream in ns when its source is polled every `interval_ns`.
    fn pace_ns(&self, interval_ns: i64) -> i64 {
        self.every_ns
            .map_or(interval_ns, |every_ns| every_ns.max(interval_ns))
    }
}

impl FactFeed {
    /// Applies one poll: first the declared and retired facts, then the samples.
    pub(crate) fn apply(
        &mut self,
        outbox: &mut Outbox,
        policy: &IntervalPolicy,
        interval_ns: i64,
        sink: &mut dyn Sink,
    ) {
        for change in outbox.changes.drain(..) {
            match change {
                FactChange::Declare {
                    id,
                    descriptor,
                    depth,
                    every_ns,
                } => {
                    let stream = sink.declare(&descriptor, depth).map(|key| Stream {
                        key,
                        every_ns,
                        policy: policy.start(),
                    });
                    if let Some(stream) = &stream {
                        sink.expect_interval(stream.key, stream.pace_ns(interval_ns));
                    }
                    self.set(id.0 as usize, stream);
                }
                FactChange::Retire(id) => {
                    if let Some(stream) = self.streams.get_mut(id.0 as usize).and_then(Option::take)
                    {
                        self.live -= 1;
                        sink.retire(stream.key);
                    }
                }
            }
        }
        let adaptive = !matches!(policy, IntervalPolicy::Fixed { .. });
        for (id, sample) in &outbox.samples {
            let Some(Some(stream)) = self.streams.get_mut(id.0 as usize) else {
                continue;
            };
            sink.put(stream.key, sample);
            if adaptive && let Some(value) = sample.value.as_f64() {
                stream.policy = policy.next(stream.policy, value);
            }
        }
        outbox.samples.clear();
    }

    fn set(&mut self, index: usize, stream: Option<Stream>) {
        match &stream {
            Some(_) => self.live += 1,
            None => self.refused += 1,
        }
        if self.streams.len() <= index {
            self.streams.resize_with(index + 1, || None);
        }
        self.streams[index] = stream;
    }

    /// The shortest interval that any stream asks for, in ns; attributes with an interval of their
    /// own do not ask.
    pub(crate) fn wanted_interval_ns(&self, policy: &IntervalPolicy) -> i64 {
        let start = policy.start().interval_ns;
        if matches!(policy, IntervalPolicy::Fixed { .. }) {
            return start;
        }
        let asking = self
            .streams
            .iter()
            .flatten()
            .filter(|s| s.every_ns.is_none());
        asking.map(|s| s.policy.interval_ns).min().unwrap_or(start)
    }

    /// The wishes of the policies for these streams, combined; attributes with an interval of their
    /// own do not count.
    pub(crate) fn wants(&self, sink: &dyn Sink) -> Option<Wants> {
        let streams = self.streams.iter().flatten();
        let asking = streams.filter(|s| s.every_ns.is_none());
        let wants = asking.filter_map(|s| sink.wanted(s.key));
        wants.map(|w| Wants::of(&w)).reduce(|a, b| a.and(&b))
    }

    /// Announces to readers that the source is polled at another interval from now on.
    pub(crate) fn announce(&self, interval_ns: i64, sink: &mut dyn Sink) {
        for stream in self.streams.iter().flatten() {
            sink.expect_interval(stream.key, stream.pace_ns(interval_ns));
        }
    }

    /// The number of streams.
    pub(crate) fn live(&self) -> usize {
        self.live
    }

    /// The number of streams that the sink refused.
    pub(crate) fn refused(&self) -> usize {
        self.refused
    }
}
