//! The check of the arguments of a rule's program, in which fields of the event stand in braces.
//!
//! The arguments are kept as texts: whoever runs the program fills the fields in. This file finds a
//! mistake when the rule is made.

use barograph_model::{cut, near};

/// Names of the fields that an argument may have in braces.
pub const ACTION_FIELDS: [&str; 17] = [
    "path", "name", "dir", "stem", "ext", "old_path", "size", "uid", "gid", "job", "kind",
    "source", "index", "node", "rule", "key", "ts",
];

/// Most bytes of an unknown name in an error.
const NAME_BYTES_MAX: usize = 64;

/// Checks the braces of a text: each names a field and is closed; `{{` and `}}` are braces that
/// stand for themselves. Returns the number of fields, or the fault with its position in bytes,
/// from 0 on.
pub(super) fn fields_of(text: &str) -> Result<usize, String> {
    let (mut at, mut fields) = (0, 0);
    while let Some(step) = text[at..].find(['{', '}']) {
        at += step;
        let rest = &text[at..];
        if rest.starts_with("{{") || rest.starts_with("}}") {
            at += 2;
            continue;
        }
        if rest.starts_with('}') {
            return Err(format!(
                "the brace at byte {at} closes none: write }}}} for a brace that stands for itself"
            ));
        }
        let Some(end) = rest.find('}') else {
            return Err(format!(
                "the brace at byte {at} is not closed: write {{{{ for a brace that stands for itself"
            ));
        };
        let name = &rest[1..end];
        if !ACTION_FIELDS.contains(&name) {
            let hint = match near(name, ACTION_FIELDS).as_slice() {
                [] => format!("the fields are {}", ACTION_FIELDS.join(", ")),
                near => format!("did you mean {}?", near.join(" or ")),
            };
            let name = cut(name.to_owned(), NAME_BYTES_MAX);
            return Err(format!("unknown field {{{name}}} at byte {at}: {hint}"));
        }
        at += end + 1;
        fields += 1;
    }
    Ok(fields)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn braces() {
        let check = |text: &str, expect: Result<usize, &str>| {
            let seen = fields_of(text);
            match (&seen, expect) {
                (Ok(fields), Ok(expect)) => assert_eq!(*fields, expect, "{text}"),
                (Err(fault), Err(expect)) => assert!(fault.starts_with(expect), "{text}: {fault}"),
                _ => panic!("{text}: {seen:?}"),
            }
        };
        check("plain", Ok(0));
        check("--in={path} {dir}/{stem}.csv", Ok(3));
        check("{{path}} {{{path}}}", Ok(1));
        check(
            "a {pth}",
            Err("unknown field {pth} at byte 2: did you mean path?"),
        );
        check(
            "{zzz}",
            Err("unknown field {zzz} at byte 0: the fields are path, name"),
        );
        check("{}", Err("unknown field {} at byte 0"));
        check("{path }", Err("unknown field {path } at byte 0"));
        check("ä{path", Err("the brace at byte 2 is not closed"));
        check("a}b", Err("the brace at byte 1 closes none"));
        check("{path}}", Err("the brace at byte 6 closes none"));
        for field in ACTION_FIELDS {
            check(&format!("{{{field}}}"), Ok(1));
        }
    }

    proptest! {
        #[test]
        fn escaped_texts_have_no_fields(text in ".{0,60}") {
            let escaped = text.replace('{', "{{").replace('}', "}}");
            prop_assert_eq!(fields_of(&escaped), Ok(0));
            let _ = fields_of(&text);
        }
    }
}
