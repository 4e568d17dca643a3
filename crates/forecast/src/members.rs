//! The members of a forecaster: persistence, and the predictors beside it.

use std::sync::Arc;

use crate::delphi::{RepairedDelphi, Weights};
use crate::predictor::Predictor;
use crate::predictors::{Holt, Kalman, Rls, Spectral};

/// Most members, with persistence.
pub(crate) const MEMBERS_MAX: usize = 12;

/// Name of persistence, which is always member 0.
pub(crate) const PERSISTENCE: &str = "persistence";

/// A predictor. It is a closed enum because it is called for each sample; large predictors have a
/// box of their own.
pub(crate) enum Member {
    /// Persistence, which predicts the last value.
    Persistence,
    Holt(Holt),
    Kalman(Kalman),
    Rls(Box<Rls<8>>),
    Spectral(Box<Spectral>),
    /// Delphi with weights that a user trained.
    Delphi(Box<RepairedDelphi>),
    /// A predictor from outside, such as those of `lab`.
    Other(Box<dyn Predictor + Send>),
}

/// Expands to `$of` for any predictor, to `$none` for persistence.
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

/// The predictors of a forecaster: persistence first, then the others.
pub(crate) struct Members {
    all: Vec<Member>,
    /// The last value that was observed.
    last: f64,
}

impl Members {
    /// Returns persistence and the default predictors: those without which the error is greater
    /// (`examples/selector.rs`, with letters). NLMS is nowhere ahead of RLS by more than a
    /// hundredth, and running both is expensive. The repaired Delphi is never the best for long,
    /// unless it was trained on such streams: it is added if weights are given.
    pub(crate) fn default_set(delphi: Option<Arc<Weights>>) -> Self {
        let set = [
            Member::Holt(Holt::default()),
            Member::Kalman(Kalman::default()),
            Member::Rls(Box::default()),
            Member::Spectral(Box::default()),
        ];
        let delphi = delphi.map(|weights| Member::Delphi(Box::new(RepairedDelphi::new(weights))));
        Self::new(set.into_iter().chain(delphi))
    }

    /// Creates the set. Duplicates, and predictors beyond the maximum, are left out.
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

    /// Writes the prediction of each member for the value `steps` after the last. A prediction that
    /// is not finite is replaced by the last value.
    #[inline]
    pub(crate) fn predict(&self, steps: u32, said: &mut [f64; MEMBERS_MAX]) {
        for (member, said) in self.all.iter().zip(said) {
            let value = member.predict(self.last, steps);
            *said = if value.is_finite() { value } else { self.last };
        }
    }

    /// Fills `path` with the predicted distances of the next values from the last one, by one
    /// member.
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
