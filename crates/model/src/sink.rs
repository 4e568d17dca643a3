//! Where facts and insights put their samples, without knowing what a stream is made of.

use crate::{Descriptor, Sample};

/// A stream as its writer's side names it: dense, never reused while its stream lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamKey(pub u32);

/// What a policy wants of a stream that may be looked at seldom.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wanted {
    /// The next look is so long after the newest one, in ns; 0: as soon as may be.
    pub wait_ns: i64,
    /// How often per second what is said of it between looks goes wrong.
    pub wrong_per_s: f64,
    /// What its wrong time counts, relative to that of others.
    pub weight: f64,
    /// The shortest time between looks, in ns, whatever is wanted.
    pub min_ns: i64,
    /// The longest.
    pub max_ns: i64,
}

/// Takes the samples of many streams. `agent` implements it over a segment; tests over a map.
pub trait Sink {
    /// Makes a stream of this descriptor that holds its newest `depth` samples (`None`: as
    /// configured). `None` back means that a limit was reached; the loss has been counted, and the
    /// caller goes on without this stream.
    fn declare(&mut self, descriptor: &Descriptor, depth: Option<u32>) -> Option<StreamKey>;

    /// Ends a stream: its readers see that it is gone.
    fn retire(&mut self, key: StreamKey);

    /// Says that the resource was looked at and found so. A value equal to the newest is not
    /// appended again, but the look is recorded. The sample's value must be of the declared type.
    fn put(&mut self, key: StreamKey, sample: &Sample);

    /// Says that what is known held until `looked_ns` at least, without a sample in hand: the looks of
    /// an insight are those of its inputs. Sinks that keep no looks need not do anything.
    fn confirm(&mut self, _key: StreamKey, _looked_ns: i64) {}

    /// Tells readers when to expect the next look, in nanoseconds after the last.
    fn expect_interval(&mut self, key: StreamKey, interval_ns: i64);

    /// When a stream is to be looked at again. `None` where no policy says so: then its source is read as configured.
    fn wanted(&self, _key: StreamKey) -> Option<Wanted> {
        None
    }

    /// Another number whenever [`Sink::wanted`] has changed of a stream that was not looked at; 0 while nothing has ever been
    /// wanted. So whoever reads sources need not ask of each stream all the time.
    fn wishes(&self) -> u64 {
        0
    }
}
