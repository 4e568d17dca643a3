//! The rules of epochs for a process that knows only what is newest of a map: whether an operation
//! begins, waits or is refused.
//!
//! [`EpochMember`](super::EpochMember) and [`EpochServer`](super::EpochServer), which are checked,
//! decide by these rules, and so do programs, which find the epochs in words of shared memory
//! (docs/design/0012-agreement.md).

/// The epochs of which a process has been told. Each is the newest; an older one means nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ToldEpochs {
    /// The epoch that is being prepared; 0, or not above `epoch`, for none.
    pub prepare: u64,
    /// The epoch of the map in force.
    pub epoch: u64,
    /// The first epoch that servers serve.
    pub fence: u64,
}

/// Whether an operation of a member may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EpochStart {
    /// In the epoch in force.
    Now,
    /// It waits for the epoch that is prepared; when the member's patience is over, it may begin in
    /// the one in force.
    Suspended,
    /// Servers have refused the epoch in force: it waits for a later one. Beginning would be in
    /// vain.
    Behind,
}

/// What comes of an operation at a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServerAnswer {
    /// It is served.
    Served,
    /// It is not: it is of an epoch before the fence.
    Fenced {
        /// The epoch of the fence.
        fence: u64,
    },
}

impl ToldEpochs {
    /// Decides about an operation that is to begin. `refused` is the greatest fence with which a
    /// server has refused one of this member; `has_patience` is false if it has waited for the
    /// epoch that is prepared for as long as it wants to.
    pub fn start(&self, refused: u64, has_patience: bool) -> EpochStart {
        if refused > self.epoch {
            return EpochStart::Behind;
        }
        match self.prepare > self.epoch && has_patience {
            true => EpochStart::Suspended,
            false => EpochStart::Now,
        }
    }

    /// Decides about an operation of an epoch at a server. It never moves the fence: whoever sends
    /// operations could else shut out all others by an epoch that does not exist.
    pub fn serve(&self, epoch: u64) -> ServerAnswer {
        match epoch < self.fence {
            true => ServerAnswer::Fenced { fence: self.fence },
            false => ServerAnswer::Served,
        }
    }
}
