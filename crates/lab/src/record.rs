//! What a policy said at each tick, for figures.

use crate::replay::{Act, Policy};

/// One tick of a replay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    /// When, from the first tick.
    pub ts_ns: i64,
    /// What was said, or seen.
    pub value: f64,
    /// Within this the true value is likely to be; infinite where nothing is said of it, 0 at a look.
    pub half_width: f64,
    /// Whether it was looked at.
    pub is_look: bool,
}

/// A policy that remembers what it said.
pub struct Recorder<'a> {
    policy: &'a mut dyn Policy,
    moments: Vec<Moment>,
}

impl<'a> Recorder<'a> {
    /// Of this one.
    pub fn new(policy: &'a mut dyn Policy) -> Self {
        Self {
            policy,
            moments: Vec::new(),
        }
    }

    /// Tick by tick.
    pub fn moments(self) -> Vec<Moment> {
        self.moments
    }
}

impl Policy for Recorder<'_> {
    fn tick(&mut self, ts_ns: i64, counter: f64) -> Act {
        let act = self.policy.tick(ts_ns, counter);
        if let Act::Say(said) = act {
            self.moments.push(Moment {
                ts_ns,
                value: said.value,
                half_width: said.half_width,
                is_look: false,
            });
        }
        act
    }

    fn look(&mut self, ts_ns: i64, counter: f64, value: f64) {
        self.policy.look(ts_ns, counter, value);
        // Who says something before the first look is made to look.
        self.moments.pop_if(|last| last.ts_ns == ts_ns);
        self.moments.push(Moment {
            ts_ns,
            value,
            half_width: 0.0,
            is_look: true,
        });
    }
}
