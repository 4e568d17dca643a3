//! I/O weights of control groups: which back end a machine has, a lease of one group's weight, and
//! the restoration of what was there before.
//!
//! This is the one part of the crate that touches files. The directories of control groups, of
//! block devices and of the journal are arguments, so that everything is tested on trees of plain
//! files. `place` opens groups without leaving their root, `backend` has the four files that set a
//! share and their forms, `device` and `probe` find the file that has an effect, `delegate` gives
//! it to a user, `journal` keeps what a killed process must have restored, `fight` paces a dispute
//! with another controller, and `lease` puts them together.

mod backend;
mod delegate;
mod device;
mod fight;
mod journal;
mod lease;
mod membership;
mod place;
mod probe;
mod restore;

pub use backend::{IoSetting, WeightBackend};
pub use delegate::delegate;
pub use device::{BlockDevice, DeviceNumber};
pub use fight::{FIGHT_WAIT_NS_MAX, FIGHT_WAIT_NS_MIN, FIGHTS_MAX};
pub use journal::WeightJournal;
pub use lease::{LeaseEnd, LeaseState, SetOutcome, WeightLease};
pub use membership::{CgroupMounts, Hierarchy, ProcessGroups};
pub use place::{CgroupRoot, CgroupRoots, Group};
pub use probe::{BackendRefusal, WeightProbe, probe, probe_groups};
pub use restore::{RecoveredWeight, RestoreOutcome, recover};
