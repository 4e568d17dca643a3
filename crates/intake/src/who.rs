//! The group of a process, from the kernel.

use std::fs;

/// The group of a process, if it really belongs to that user.
pub(crate) fn group_of(pid: u32, uid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line?.split_ascii_whitespace().next()?.parse::<u32>().ok()
    };
    (field("Uid:")? == uid).then(|| field("Gid:")).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_now() {
        let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
        let group = group_of(std::process::id(), uid.as_raw());
        assert_eq!(group, Some(gid.as_raw()));
        assert_eq!(group_of(std::process::id(), 4_242_424), None);
    }
}
