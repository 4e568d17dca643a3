//! What the agent says about a process itself: how far it has come with it, what was lost, and how well its
//! times are known.

use barograph_model::{Kind, Quality, Sample, StreamKey, Value, ValueType};

use super::{Process, Round};
use crate::applications::identity::{Identity, PROCESS};

/// The streams about a process.
pub struct About {
    pub identity: Identity,
    pub received: Option<StreamKey>,
    pub stored: Option<StreamKey>,
    pub clock_error: Option<StreamKey>,
    pub lost: Option<StreamKey>,
    lost_told: Option<u64>,
}

impl About {
    /// All that were declared.
    pub fn keys(&self) -> impl Iterator<Item = StreamKey> {
        let all = [self.received, self.stored, self.clock_error, self.lost];
        all.into_iter().flatten()
    }
}

impl Process {
    /// What a look has brought: up to when, and how far its times may be off.
    pub(super) fn tell_received(&mut self, round: &mut Round<'_, '_>, error_ns: Option<i64>) {
        let newest_ns = self.newest_ns;
        self.tell(round, |about| about.received, Value::Int(newest_ns));
        if let Some(error_ns) = error_ns {
            self.tell(round, |about| about.clock_error, Value::Int(error_ns));
        }
    }

    pub(super) fn tell_loss(&mut self, round: &mut Round<'_, '_>) {
        let lost = self.counts.lost();
        if self.about.as_ref().and_then(|about| about.lost_told) == Some(lost) {
            return;
        }
        let value = Value::Int(i64::try_from(lost).unwrap_or(i64::MAX));
        self.tell(round, |about| about.lost, value);
        if let Some(about) = &mut self.about {
            about.lost_told = Some(lost);
        }
    }

    /// Appends to a stream about the process itself; those are declared with the first publication.
    pub(super) fn tell(
        &mut self,
        round: &mut Round<'_, '_>,
        which: impl FnOnce(&About) -> Option<StreamKey>,
        value: Value,
    ) {
        if self.about.is_none() && !self.publications.is_empty() && !self.is_retired {
            self.about = self.introduce(round);
        }
        let key = self.about.as_ref().and_then(which);
        if let (Some(key), Some(scope)) = (key, round.scopes.of(self.owner)) {
            scope.append(
                key,
                &Sample {
                    ts: round.now_ns,
                    value,
                    quality: Quality::Measured,
                    error: 0.0,
                },
                None,
            );
        }
    }

    fn introduce(&self, round: &mut Round<'_, '_>) -> Option<About> {
        let labels = [&self.labels[..]];
        let taken = round
            .instances
            .take(PROCESS, &self.user, &self.application, &labels);
        let identity = taken.ok()?;
        let scope = round.scopes.of(self.owner)?;
        let mut declare = |name, kind, unit, help| {
            let stream = identity.stream(name, ValueType::Int, kind, unit, help);
            scope.declare(&stream.ok()?, 0, &self.user).ok()
        };
        let received = "Time of the newest put that the agent had at this time.";
        let stored = "Time of the newest put that was safe at this time.";
        let clock_error = "How far times of puts that were read at this time may be from what this node's \
            clock showed; that clock's own distance from true time is clock.error.max.seconds.";
        let lost = "Values that were put and are not there.";
        Some(About {
            received: declare("received.ns", Kind::Gauge, "ns", received),
            stored: declare("stored.ns", Kind::Gauge, "ns", stored),
            clock_error: declare("clock.error.ns", Kind::Gauge, "ns", clock_error),
            lost: declare("lost.count", Kind::Counter, "count", lost),
            lost_told: None,
            identity,
        })
    }
}
