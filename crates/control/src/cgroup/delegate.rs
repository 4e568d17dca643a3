//! Delegation: the step of root after which an agent without privileges sets weights.
//!
//! It is a file of its own because it is the only code here that needs root. One file of one group
//! changes its owner and nothing else: the new owner can set the share of this group, within the
//! range that the kernel checks, and can neither move processes nor make groups.

use crate::ControlError;
use crate::cgroup::backend::WeightBackend;
use crate::cgroup::place::CgroupRoots;

/// Gives the file of a back end in one group to a user. The kernel forgets it with the group, so
/// it is done again for each new one.
///
/// # Errors
///
/// The group or the file is not there, or this process may not change its owner.
pub fn delegate(
    roots: &CgroupRoots,
    group: &str,
    backend: WeightBackend,
    uid: u32,
) -> Result<(), ControlError> {
    let root = roots.hierarchy(backend.hierarchy());
    let root = root.ok_or_else(|| ControlError::Vanished {
        path: backend.file().into(),
    })?;
    let group = root.group(group)?;
    // A file that does not have the documented form is not one of the kernel's.
    backend.read(&group)?;
    group.give(backend.file(), uid)
}
