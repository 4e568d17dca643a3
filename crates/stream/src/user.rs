//! What users are called. It stands here because agents and programs must call them the same: a call is meant
//! for who has a label `user`, and both sides decide that.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_where_there_are_and_numbers_elsewhere() {
        assert_eq!(user_name(0), "root");
        assert_eq!(user_name(4_242_424), "4242424");
    }
}
