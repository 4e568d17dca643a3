//! Whose a process is, as the system names users and groups.

use std::fs;

/// The user's name, or number where it has none.
pub fn user_name(uid: u32) -> String {
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    });
    name.unwrap_or_else(|| uid.to_string())
}

/// The group of a process, if it is really of that user.
pub fn group_of(pid: u32, uid: u32) -> Option<u32> {
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
    fn names_and_groups_of_now() {
        assert_eq!(user_name(0), "root");
        assert_eq!(user_name(4_242_424), "4242424");
        let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
        let group = group_of(std::process::id(), uid.as_raw());
        assert_eq!(group, Some(gid.as_raw()));
        assert_eq!(group_of(std::process::id(), 4_242_424), None);
    }
}
