//! Records the values of a policy at each tick, for figures.

use crate::replay::{Policy, PolicyAction};

/// One tick of a replay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplayTick {
    /// Time from the first tick, in nanoseconds.
    pub ts_ns: i64,
    /// The value of the policy's outlook, or the value that was seen.
    pub value: f64,
    /// Half width of the interval that probably contains the true value: infinite if unknown, 0 at
    /// a look.
    pub half_width: f64,
    /// Whether the policy looked at this tick.
    pub is_look: bool,
}

/// Wraps a policy and records its outlooks and looks.
pub struct TickRecorder<'a> {
    policy: &'a mut dyn Policy,
    moments: Vec<ReplayTick>,
}

impl<'a> TickRecorder<'a> {
    /// Records `policy`.
    pub fn new(policy: &'a mut dyn Policy) -> Self {
        Self {
            policy,
            moments: Vec::new(),
        }
    }

    /// The recorded ticks, in order.
    pub fn moments(self) -> Vec<ReplayTick> {
        self.moments
    }
}

impl Policy for TickRecorder<'_> {
    fn tick(&mut self, ts_ns: i64, counter: f64) -> PolicyAction {
        let act = self.policy.tick(ts_ns, counter);
        if let PolicyAction::Say(said) = act {
            self.moments.push(ReplayTick {
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
        // A policy that has an outlook before the first look is made to look, which replaces it.
        self.moments.pop_if(|last| last.ts_ns == ts_ns);
        self.moments.push(ReplayTick {
            ts_ns,
            value,
            half_width: 0.0,
            is_look: true,
        });
    }
}
