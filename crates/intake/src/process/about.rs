//! The streams about a process itself: how far it was taken in, its losses, and the error of its
//! times.

use barograph_model::{Kind, Quality, Sample, StreamKey, Value, ValueType};

use super::{IntakeRound, PublishingProcess};
use crate::identity::{PROCESS, PublicationIdentity};
use crate::scope::OpenScopes;
use barograph_stream::ScopeReader;

/// The streams about a process.
pub(super) struct ProcessStreams {
    pub identity: PublicationIdentity,
    pub received: Option<StreamKey>,
    pub stored: Option<StreamKey>,
    pub clock_error: Option<StreamKey>,
    pub lost: Option<StreamKey>,
    lost_told: Option<u64>,
    /// [`OpenScopes::rooms`] when its streams were last declared.
    seen: Option<u64>,
}

impl ProcessStreams {
    /// Declares the streams that do not exist, if there may be room since the last attempt.
    fn declare(&mut self, user: &str, owner: ScopeReader, scopes: &mut OpenScopes<'_>) {
        let is_whole = self.keys().count() == 4;
        let rooms = (!is_whole).then(|| scopes.rooms());
        if is_whole || self.seen == rooms {
            return;
        }
        self.seen = rooms;
        let Some(scope) = scopes.of(owner) else {
            return;
        };
        let identity = &self.identity;
        let mut declare = |key: &mut Option<StreamKey>, name, kind, unit, help| {
            if key.is_none() {
                let stream = identity.stream(name, ValueType::Int, kind, unit, help);
                let declared = stream.ok().map(|of| scope.declare(&of, 0, user));
                *key = declared.and_then(Result::ok);
            }
        };
        let received =
            "Time of the newest put that the agent had received by the time of this sample.";
        let stored = "Time of the newest put that was on disk by the time of this sample.";
        let clock_error = "Greatest difference between the times of puts and this node's clock, at this \
            sample; the clock's own difference from true time is clock.error.max.seconds.";
        let lost = "Values that were put and lost.";
        let (gauge, counter) = (Kind::Gauge, Kind::Counter);
        declare(&mut self.received, "received.ns", gauge, "ns", received);
        declare(&mut self.stored, "stored.ns", gauge, "ns", stored);
        declare(
            &mut self.clock_error,
            "clock.error.ns",
            gauge,
            "ns",
            clock_error,
        );
        declare(&mut self.lost, "lost.count", counter, "count", lost);
    }

    /// The streams that were declared.
    pub(super) fn keys(&self) -> impl Iterator<Item = StreamKey> {
        let all = [self.received, self.stored, self.clock_error, self.lost];
        all.into_iter().flatten()
    }
}

impl PublishingProcess {
    /// Appends the time up to which records were received, and the error of their times.
    pub(super) fn tell_received(&mut self, round: &mut IntakeRound<'_, '_>, error_ns: Option<i64>) {
        let newest_ns = self.newest_ns;
        self.tell(round, |about| about.received, Value::Int(newest_ns));
        if let Some(error_ns) = error_ns {
            self.tell(round, |about| about.clock_error, Value::Int(error_ns));
        }
    }

    pub(super) fn tell_loss(&mut self, round: &mut IntakeRound<'_, '_>) {
        let lost = self.counts.lost();
        if self.about.as_ref().and_then(|about| about.lost_told) == Some(lost) {
            return;
        }
        let value = Value::Int(i64::try_from(lost).unwrap_or(i64::MAX));
        self.tell(round, |about| about.lost, value);
        if let Some(about) = &mut self.about {
            about.lost_told = about.lost.map(|_| lost);
        }
    }

    /// Appends to a stream about the process itself. These streams are declared with the first
    /// publication.
    pub(super) fn tell(
        &mut self,
        round: &mut IntakeRound<'_, '_>,
        which: impl FnOnce(&ProcessStreams) -> Option<StreamKey>,
        value: Value,
    ) {
        if self.about.is_none() && !self.publications.is_empty() && !self.is_retired {
            self.about = self.introduce(round);
        }
        if let Some(about) = &mut self.about
            && !self.is_retired
        {
            about.declare(&self.user, self.owner, round.scopes);
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

    fn introduce(&self, round: &mut IntakeRound<'_, '_>) -> Option<ProcessStreams> {
        // The scope comes first, since an instance number is given back only at the end of the
        // process.
        round.scopes.of(self.owner)?;
        let labels = [&self.labels[..]];
        let taken = round
            .instances
            .take(PROCESS, &self.user, &self.application, &labels);
        Some(ProcessStreams {
            identity: taken.ok()?,
            received: None,
            stored: None,
            clock_error: None,
            lost: None,
            lost_told: None,
            seen: None,
        })
    }
}
