//! Checks that code which gets time and inputs as arguments reads no clock, file or socket, and
//! starts no thread. The crate graph cannot show this, because every crate uses the standard
//! library.

use std::path::Path;

use anyhow::Context;

use crate::tidy::rust_files;
use crate::workspace::root;

/// Places where the rule holds: the crates of which ARCHITECTURE.md says so, and the frames between
/// nodes.
const PURE: &[&str] = &[
    "crates/bridge/src",
    "crates/control/src/augment",
    "crates/control/src/bound.rs",
    "crates/control/src/cgroup/fight.rs",
    "crates/control/src/decision.rs",
    "crates/control/src/weight",
    "crates/fabric/src/frame",
    "crates/forecast/src",
    "crates/insight/src",
    "crates/lab/src",
    "crates/model/src",
    "crates/placement/src",
    "crates/progressive/src",
    "crates/rule/src",
    "crates/statement/src",
];

/// The one file that starts threads: they end before its function returns.
const WITH_THREADS: &str = "crates/progressive/src/work.rs";

/// Texts that the rule forbids.
const FORBIDDEN: &[&str] = &[
    "std::fs",
    "std::net",
    "std::process",
    "std::env",
    "std::thread",
    "Instant::now",
    "SystemTime::now",
    "rustix::",
    "tokio::",
];

/// Lists every line of the pure code that has a forbidden text.
pub(crate) fn check() -> anyhow::Result<Vec<String>> {
    let mut faults = Vec::new();
    for place in PURE {
        for file in rust_files(&root().join(place))? {
            let text =
                std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
            faults.extend(impure(file.strip_prefix(root()).unwrap_or(&file), &text));
        }
    }
    Ok(faults)
}

/// The forbidden lines of one file. Its tests, which are at the end, are exempt.
fn impure(file: &Path, text: &str) -> Vec<String> {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let mut faults = Vec::new();
    for (index, line) in code.lines().enumerate() {
        let line_code = line.split("//").next().unwrap_or_default();
        let is_allowed = |word: &str| word == "std::thread" && file == Path::new(WITH_THREADS);
        let words = FORBIDDEN.iter().filter(|word| !is_allowed(word));
        for word in words.filter(|word| line_code.contains(**word)) {
            faults.push(format!(
                "{}:{}: pure code may not use {word}",
                file.display(),
                index + 1
            ));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outside_is_seen_in_code_and_not_in_tests_or_comments() {
        let table = [
            ("use std::fs::File;\n", 1),
            ("fn f() { rustix::time::now(); }\n", 1),
            ("// std::fs\n", 0),
            ("std::thread::spawn(f);\n", 1),
            ("use std::fmt;\n", 0),
            ("#[cfg(test)]\nmod tests { use std::fs; }\n", 0),
        ];
        for (text, expect) in table {
            assert_eq!(impure(Path::new("a.rs"), text).len(), expect, "{text}");
        }
    }
}
