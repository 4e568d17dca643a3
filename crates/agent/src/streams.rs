//! The sink that is a segment: keys to writers, changes to the insight graph, wakes to readers.

use barograph_insight::Graph;
use barograph_model::{Clock, Descriptor, Sample, Sink, StreamKey};
use barograph_stream::{Segment, StreamError, StreamWriter};
use tracing::warn;

/// Every stream of this node by its key.
pub struct Streams<'c> {
    segment: Segment,
    clock: &'c dyn Clock,
    writers: Vec<Option<StreamWriter>>,
    free: Vec<u32>,
    wake_mask: u32,
    refused_logged: bool,
}

impl<'c> Streams<'c> {
    /// Over an empty segment.
    pub fn new(segment: Segment, clock: &'c dyn Clock) -> Self {
        Self {
            segment,
            clock,
            writers: Vec::new(),
            free: Vec::new(),
            wake_mask: 0,
            refused_logged: false,
        }
    }

    /// Appends if changed; whether it was.
    pub fn look(&mut self, key: StreamKey, sample: &Sample) -> bool {
        let Some(Some(writer)) = self.writers.get_mut(key.0 as usize) else {
            return false;
        };
        match writer.look(sample) {
            Ok(appended) => {
                if appended {
                    self.wake_mask |= writer.wake_bit();
                }
                appended
            }
            Err(error) => {
                // A writer that breaks its own declaration is a defect, not an operating condition.
                debug_assert!(false, "{error}");
                warn!(%error, "sample dropped");
                false
            }
        }
    }

    /// Wakes the readers of all that changed since the last call.
    pub fn wake(&mut self) {
        self.segment.wake(std::mem::take(&mut self.wake_mask));
    }

    /// The segment.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    fn register(
        &mut self,
        descriptor: &Descriptor,
        depth: Option<u32>,
    ) -> Result<StreamKey, StreamError> {
        let writer = self
            .segment
            .register(descriptor, depth, self.clock.now_ns())?;
        let key = self.free.pop().unwrap_or_else(|| {
            self.writers.push(None);
            u32::try_from(self.writers.len() - 1).expect("bounded by the segment")
        });
        self.writers[key as usize] = Some(writer);
        Ok(StreamKey(key))
    }
}

impl Sink for Streams<'_> {
    fn declare(&mut self, descriptor: &Descriptor, depth: Option<u32>) -> Option<StreamKey> {
        match self.register(descriptor, depth) {
            Ok(key) => Some(key),
            Err(error) => {
                // Once, not per stream: the count is in the segment's header and a stream.
                if !self.refused_logged {
                    self.refused_logged = true;
                    warn!(%error, "a stream is refused; more will be counted in agent.refused.streams.count");
                }
                None
            }
        }
    }

    fn retire(&mut self, key: StreamKey) {
        if let Some(writer) = self.writers.get_mut(key.0 as usize).and_then(Option::take) {
            self.segment.retire(writer);
            self.free.push(key.0);
        }
    }

    fn put(&mut self, key: StreamKey, sample: &Sample) {
        self.look(key, sample);
    }

    fn confirm(&mut self, key: StreamKey, looked_ns: i64) {
        if let Some(Some(writer)) = self.writers.get_mut(key.0 as usize) {
            writer.confirm(looked_ns);
        }
    }

    fn expect_interval(&mut self, key: StreamKey, interval_ns: i64) {
        if let Some(Some(writer)) = self.writers.get(key.0 as usize) {
            self.segment.expect_interval(writer, interval_ns);
        }
    }
}

/// What sources write to: the streams, with the graph and the outlook looking on.
pub struct Facts<'a, 'c> {
    /// Where the samples go.
    pub streams: &'a mut Streams<'c>,
    /// Who computes from them.
    pub graph: &'a mut Graph,
    /// Who says how the node is.
    pub outlook: &'a mut crate::outlook::Outlook,
}

impl Sink for Facts<'_, '_> {
    fn declare(&mut self, descriptor: &Descriptor, depth: Option<u32>) -> Option<StreamKey> {
        let key = self.streams.declare(descriptor, depth)?;
        self.graph.stream_added(key, descriptor);
        self.outlook.stream_added(key, descriptor);
        Some(key)
    }

    fn retire(&mut self, key: StreamKey) {
        self.graph.stream_removed(key);
        self.outlook.stream_removed(key);
        self.streams.retire(key);
    }

    fn put(&mut self, key: StreamKey, sample: &Sample) {
        if self.streams.look(key, sample) {
            self.graph.sample(key, sample);
            self.outlook.sample(key, sample);
        } else {
            self.graph.looked(key, sample.ts);
        }
    }

    fn expect_interval(&mut self, key: StreamKey, interval_ns: i64) {
        self.graph.interval(key, interval_ns);
        self.streams.expect_interval(key, interval_ns);
    }
}
