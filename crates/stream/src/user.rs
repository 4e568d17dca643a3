//! Names of users. They are here because agents and programs must use the same names: a call may be
//! meant for handlers with a label `user`, and both sides decide which those are.

use std::fs;

/// The name of a user, or its number if it has no name.
pub fn user_name(uid: u32) -> String {
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    });
    name.unwrap_or_else(|| uid.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_where_there_are_and_numbers_elsewhere() {
        assert_eq!(user_name(0), "root");
        assert_eq!(user_name(4_242_424), "4242424");
    }
}
