//! The sink: the place where sources and insights put their samples, without knowing how streams
//! are stored.

use crate::{Descriptor, Sample};

/// The key of a stream on its writer's side: keys are dense, and not reused while the stream lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamKey(pub u32);

/// The request of an interval policy for a stream that may be looked at seldom.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IntervalRequest {
    /// Time from the newest look to the next one, in ns; 0 means as soon as possible.
    pub wait_ns: i64,
    /// Wrong values per second among those that are assumed between looks.
    pub wrong_per_s: f64,
    /// Weight of the stream's wrong time, relative to other streams.
    pub weight: f64,
    /// The shortest time between looks, in ns, whatever is wanted.
    pub min_ns: i64,
    /// The longest time between looks, in ns.
    pub max_ns: i64,
}

/// A receiver of the samples of many streams. `agent` implements it over a segment, tests over a
/// map.
pub trait Sink {
    /// Creates a stream of this descriptor that holds its newest `depth` samples (`None`: as
    /// configured). Returns `None` if a limit is reached; the loss has then been counted, and the
    /// caller goes on without this stream.
    fn declare(&mut self, descriptor: &Descriptor, depth: Option<u32>) -> Option<StreamKey>;

    /// Ends a stream: its readers see that it is gone.
    fn retire(&mut self, key: StreamKey);

    /// Records that a look found this sample. A value equal to the newest one is not appended
    /// again, but the look is recorded. The sample's value must be of the declared type.
    fn put(&mut self, key: StreamKey, sample: &Sample);

    /// Records that the newest value held until at least `looked_ns`, without a sample: the looks
    /// of an insight are those of its inputs. Sinks that keep no looks need not implement it.
    fn confirm(&mut self, _key: StreamKey, _looked_ns: i64) {}

    /// Publishes the expected interval to the next look, in nanoseconds after the last one.
    fn expect_interval(&mut self, key: StreamKey, interval_ns: i64);

    /// The time at which a stream is to be looked at again. `None` if no policy sets it: its source
    /// is then polled as configured.
    fn wanted(&self, _key: StreamKey) -> Option<IntervalRequest> {
        None
    }

    /// A number that changes whenever [`Sink::wanted`] has changed for a stream that was not looked
    /// at; 0 as long as nothing has ever been wanted. With it, the poller need not query every
    /// stream all the time.
    fn wishes(&self) -> u64 {
        0
    }
}
