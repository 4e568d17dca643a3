//! Who predicts for a forecaster: persistence, and the predictors beside it.

use std::sync::Arc;

use crate::delphi::{Repaired, Weights};
use crate::predictor::Predictor;
use crate::predictors::{Holt, Kalman, Rls, Spectral};

/// Persistence and others, at most.
pub(crate) const MEMBERS_MAX: usize = 12;

/// What persistence is called, which is member 0 of all.
pub(crate) const PERSISTENCE: &str = "persistence";

/// A predictor. A closed enum, as it is asked for each sample; what is large has a box of its own.
pub(crate) enum Member {
    /// The last value.
    Persistence,
    Holt(Holt),
    Kalman(Kalman),
    Rls(Box<Rls<8>>),
    Spectral(Box<Spectral>),
    /// With weights of somebody's own training.
    Delphi(Box<Repaired>),
    /// What a laboratory brings.
    Other(Box<dyn Predictor + Send>),
}

/// `$of` for whatever predictor it is, `$none` for persistence.
macro_rules! each {
    ($member:expr, $predictor:ident => $of:expr, $none:expr) => {
        match $member {
            Member::Persistence => $none,
            Member::Holt($predictor) => $of,
            Member::Kalman($predictor) => $of,
            Member::Rls($predictor) => $of,
            Member::Spectral($predictor) => $of,
            Member::Delphi($predictor) => $of,
            Member::Other($predictor) => $of,
        }
    };
}

impl Member {
    pub(crate) fn name(&self) -> &'static str {
        each!(self, predictor => predictor.name(), PERSISTENCE)
    }

    fn observe(&mut self, value: f64) {
        each!(self, predictor => predictor.observe(value), ());
    }

    fn predict(&self, last: f64, steps: u32) -> f64 {
        each!(self, predictor => predictor.predict(steps), last)
    }

    fn path(&self, last: f64, expected: &mut [f64]) {
        each!(self, predictor => predictor.path(expected), expected.fill(last));
    }

    fn forget(&mut self) {
        each!(self, predictor => predictor.forget(), ());
    }
}

/// Persistence first, then the others.
pub(crate) struct Members {
    all: Vec<Member>,
    /// What they saw last.
    last: f64,
}

impl Members {
    /// Persistence and the default ones: those without which the error is greater (`examples/selector.rs`, with
    /// letters). NLMS is ahead of RLS nowhere by more than a hundredth, and the sum of both is dear; Delphi repaired
    /// is never the best for long, unless it was trained on such streams: it is one more where weights are given.
    pub(crate) fn default_set(delphi: Option<Arc<Weights>>) -> Self {
        let set = [
            Member::Holt(Holt::default()),
            Member::Kalman(Kalman::default()),
            Member::Rls(Box::default()),
            Member::Spectral(Box::default()),
        ];
        let delphi = delphi.map(|weights| Member::Delphi(Box::new(Repaired::new(weights))));
        Self::new(set.into_iter().chain(delphi))
    }

    /// What is not wanted twice is left out, as is what is one too many.
    pub(crate) fn new(others: impl IntoIterator<Item = Member>) -> Self {
        let mut all = vec![Member::Persistence];
        for other in others {
            if all.len() < MEMBERS_MAX && all.iter().all(|known| known.name() != other.name()) {
                all.push(other);
            }
        }
        Self { all, last: 0.0 }
    }

    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn name(&self, member: usize) -> &'static str {
        self.all.get(member).map_or(PERSISTENCE, Member::name)
    }

    pub(crate) fn observe(&mut self, value: f64) {
        self.last = value;
        for member in &mut self.all {
            member.observe(value);
        }
    }

    /// What each says of the value `steps` after the last. What is not finite is the last.
    #[inline]
    pub(crate) fn predict(&self, steps: u32, said: &mut [f64; MEMBERS_MAX]) {
        for (member, said) in self.all.iter().zip(said) {
            let value = member.predict(self.last, steps);
            *said = if value.is_finite() { value } else { self.last };
        }
    }

    /// How far from the last value one of them says the next ones will be.
    pub(crate) fn moves(&self, member: usize, path: &mut [f64]) {
        match self.all.get(member) {
            Some(member) => member.path(self.last, path),
            None => path.fill(self.last),
        }
        for value in path {
            *value -= self.last;
            if !value.is_finite() {
                *value = 0.0;
            }
        }
    }

    pub(crate) fn forget(&mut self) {
        for member in &mut self.all {
            member.forget();
        }
    }
}
