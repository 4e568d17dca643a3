//! Documents that are generated from the binary and the sources, so that they always agree with the
//! code.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, bail};

use crate::limits;
use crate::workspace::root;

/// Each file, and the argument of the hidden command `baro generate` that prints it.
const PRINTED: &[(&str, &str)] = &[
    ("docs/reference/cli.md", "cli"),
    ("docs/reference/configuration.md", "config"),
    ("docs/reference/sources.md", "sources"),
    ("etc/barograph.toml", "config-file"),
];

/// Writes all documents.
pub(crate) fn write() -> anyhow::Result<Vec<String>> {
    for (file, text) in documents()? {
        let path = root().join(file);
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    Ok(Vec::new())
}

/// Reports where a committed document differs from the generated one.
pub(crate) fn check() -> anyhow::Result<Vec<String>> {
    let mut faults = Vec::new();
    for (file, text) in documents()? {
        let committed = std::fs::read_to_string(root().join(file)).unwrap_or_default();
        faults.extend(difference(file, &committed, &text));
    }
    Ok(faults)
}

fn documents() -> anyhow::Result<Vec<(&'static str, String)>> {
    let mut documents = vec![("docs/reference/limits.md", limits::markdown()?)];
    for (file, what) in PRINTED {
        documents.push((*file, print(what)?));
    }
    Ok(documents)
}

fn difference(file: &str, committed: &str, fresh: &str) -> Option<String> {
    if committed == fresh {
        return None;
    }
    let same = committed
        .lines()
        .zip(fresh.lines())
        .take_while(|(old, new)| old == new)
        .count();
    let line = |text: &str| text.lines().nth(same).unwrap_or("(end)").to_owned();
    Some(format!(
        "{file}:{}: out of date: run `make generate`\n  committed: {}\n  now:       {}",
        same + 1,
        line(committed),
        line(fresh)
    ))
}

fn print(what: &str) -> anyhow::Result<String> {
    let binary = binary()?;
    let output = Command::new(&binary)
        .args(["generate", what])
        .output()
        .with_context(|| format!("{}: does not start", binary.display()))?;
    if !output.status.success() {
        bail!(
            "{} generate {what}: {}",
            binary.display(),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    String::from_utf8(output.stdout).with_context(|| format!("generate {what}: not UTF-8"))
}

/// The path of the binary: `BARO_BIN` if set, else `target/debug/baro`, which is built now.
fn binary() -> anyhow::Result<PathBuf> {
    if let Some(named) = std::env::var_os("BARO_BIN") {
        return Ok(named.into());
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let build = Command::new(cargo)
        .args(["build", "--quiet", "--locked", "--package", "barograph"])
        .current_dir(root())
        .status()
        .context("cargo build does not start")?;
    if !build.success() {
        bail!("cargo build --package barograph failed");
    }
    Ok(root().join("target/debug/baro"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_names_the_first_line_that_differs() {
        assert_eq!(difference("a.md", "one\ntwo\n", "one\ntwo\n"), None);
        for (committed, expect) in [
            ("one\n", "a.md:2:"),
            ("", "a.md:1:"),
            ("one\n2\n", "a.md:2:"),
        ] {
            let fault = difference("a.md", committed, "one\ntwo\n").expect("they differ");
            assert!(fault.starts_with(expect), "{fault}");
        }
    }
}
