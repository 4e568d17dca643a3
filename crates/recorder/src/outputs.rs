//! The sink for computed and published samples: they go to the streams and to their forecasts.
//!
//! It is a module of its own because both insights and the scopes of applications use it.

use barograph_model::{Descriptor, Sample, Sink, StreamKey};

use crate::{Forecasts, Streams};

/// The sink for computed and published samples: they go to the streams and to their forecasts.
pub struct Outputs<'a, 'c> {
    /// The streams to which samples are appended.
    pub streams: &'a mut Streams<'c>,
    /// The forecasts of these streams.
    pub forecasts: &'a mut Forecasts,
}

impl Sink for Outputs<'_, '_> {
    fn declare(&mut self, descriptor: &Descriptor, depth: Option<u32>) -> Option<StreamKey> {
        let key = self.streams.declare(descriptor, depth)?;
        self.forecasts.stream_added(key, descriptor, self.streams);
        Some(key)
    }

    fn retire(&mut self, key: StreamKey) {
        self.forecasts.stream_removed(key, self.streams);
        self.streams.retire(key);
    }

    fn put(&mut self, key: StreamKey, sample: &Sample) {
        self.streams.look(key, sample);
        self.forecasts.looked(key, sample);
    }

    fn confirm(&mut self, key: StreamKey, looked_ns: i64) {
        self.streams.confirm(key, looked_ns);
        self.forecasts.held(key, looked_ns, self.streams);
    }

    fn expect_interval(&mut self, key: StreamKey, interval_ns: i64) {
        self.forecasts.interval(key, interval_ns);
        self.streams.expect_interval(key, interval_ns);
    }
}
