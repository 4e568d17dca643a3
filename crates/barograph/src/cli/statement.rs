//! What commands share that make and drop by a statement: insights and triggers.

use barograph_client::Door;
use serde_json::{Value as Json, json};

use super::{Target, http, output};

/// Has the agent carry out a statement, which needs the right to control.
pub fn carry_out(target: &Target, path: &str, statement: &str) -> anyhow::Result<Json> {
    let body = json!({ "sql": statement });
    http::post(
        &target.run_dir(),
        Door::Control,
        path,
        &body,
        http::ANSWER_WAIT,
    )
}

/// The statement that drops what is called so, or is one already: `DROP INSIGHT name`.
pub fn drop_of(what: &str, name: &str) -> String {
    let first = name.split_whitespace().next();
    match first.is_some_and(|word| word.eq_ignore_ascii_case("drop")) {
        true => name.to_owned(),
        false => format!("DROP {what} {name}"),
    }
}

/// Says what was done: the agent's answer, or words.
pub fn done(target: &Target, answer: &Json, words: &str) -> anyhow::Result<()> {
    if target.json {
        output::print_json(answer)
    } else {
        output::print(&format!("{words}\n"))
    }
}
