//! A replica of data, which both the table of locations and the costs of reading are about.

use crate::target::TargetTier;

/// A replica of a key's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replica {
    /// The number of the node that holds it.
    pub node: u64,
    /// The class of storage that it is on.
    pub tier: TargetTier,
    /// Its bytes.
    pub bytes: u64,
    /// The version of the data; the highest is the newest.
    pub version: u64,
    /// The epoch of the map of servers by which it was written.
    pub epoch: u64,
}
