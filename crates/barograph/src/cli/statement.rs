//! Code of the commands that make and drop by a statement: insights, policies and rules.

use barograph_client::AgentSocket;
use serde_json::{Value as Json, json};

use super::{Target, http, output};

/// Parses an argument that is a statement. It may begin with a comment (`-- why`), which the
/// command line would take for an option. An argument without a space is a misspelt option; a lone
/// `-` stands for standard input where that is supported.
pub(super) fn text(argument: &str) -> Result<String, String> {
    let is_option = argument.starts_with('-') && argument != "-";
    if is_option && !argument.contains(char::is_whitespace) {
        return Err("it is no option of this command, nor a statement: see --help".into());
    }
    Ok(argument.to_owned())
}

/// Sends a statement to the agent, which needs the control right.
pub(super) fn carry_out(target: &Target, path: &str, statement: &str) -> anyhow::Result<Json> {
    let body = json!({ "sql": statement });
    http::post(
        &target.run_dir(),
        AgentSocket::Control,
        path,
        &body,
        http::ANSWER_WAIT,
    )
}

/// The statement that drops an object by its name; `name` may be such a statement already: `DROP
/// INSIGHT name`.
pub(super) fn drop_of(what: &str, name: &str) -> String {
    let lines = name.lines().map(str::trim_start);
    let mut told = lines.filter(|line| !line.is_empty() && !line.starts_with("--"));
    let first = told.next().and_then(|line| line.split_whitespace().next());
    match first.is_some_and(|word| word.eq_ignore_ascii_case("drop")) {
        true => name.to_owned(),
        false => format!("DROP {what} {name}"),
    }
}

/// Prints the result: the agent's answer as JSON, or words.
pub(super) fn done(target: &Target, answer: &Json, words: &str) -> anyhow::Result<()> {
    if target.json {
        output::print_json(answer)
    } else {
        output::print(&format!("{words}\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_may_begin_with_a_comment() {
        for taken in [
            "SELECT 1",
            "-- why\nSELECT 1",
            "-",
            "/* why */ SELECT 1",
            "- 1",
        ] {
            assert_eq!(text(taken), Ok(taken.to_owned()));
        }
        for refused in ["--jsn", "-x", "--format=jsn"] {
            assert!(text(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn what_is_dropped_is_a_name_or_a_statement() {
        let check = |given: &str, expect: &str| assert_eq!(drop_of("INSIGHT", given), expect);
        check("a.b", "DROP INSIGHT a.b");
        check("drop insight a.b", "drop insight a.b");
        check("-- why\n DROP INSIGHT a.b", "-- why\n DROP INSIGHT a.b");
    }
}
