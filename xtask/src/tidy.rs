//! House rules that neither the compiler nor clippy checks: the first lines of files, their length,
//! and texts that must not be in them. The rules' data is in `xtask/tidy.toml`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::Context;
use toml::Table;

use crate::workspace::root;

const RULES: &str = "xtask/tidy.toml";
/// Most lines of a file without a reason in `xtask/tidy.toml`.
const LINES_MAX: usize = 600;
/// Most characters of a line of a comment in Rust. rustfmt breaks code and leaves comments alone.
const COMMENT_CHARS_MAX: usize = 100;
/// Folders that are built or not part of this project.
const SKIPPED: &[&str] = &[
    ".git",
    ".venv",
    ".pytest_cache",
    "__pycache__",
    "dist",
    "fixtures",
    "node_modules",
    "target",
];
/// Extensions of files that are written by hand.
const EXTENSIONS: &[&str] = &[
    "rs", "py", "ts", "tsx", "mjs", "c", "h", "sh", "sql", "toml", "md", "yml", "css",
];

/// The keyword, with the space that separates it from what it marks.
const UNSAFE: &str = "unsafe ";
/// Beginnings of the code that the keyword marks.
const MARKED_UNSAFE: &[&str] = &["{", "fn ", "impl", "extern "];

/// The contents of `xtask/tidy.toml`.
struct Rules {
    banned: Vec<(String, String)>,
    long: Vec<String>,
    /// Files and folders that may have unsafe code.
    unsafe_places: Vec<String>,
}

/// Reports every departure from the rules.
pub(crate) fn check() -> anyhow::Result<Vec<String>> {
    let rules = rules(&read(&root().join(RULES))?)?;
    let mut faults = Vec::new();
    let mut files = Vec::new();
    walk(root(), &|path| has_extension(path, EXTENSIONS), &mut files)?;
    let mut unsafe_files = Vec::new();
    for file in &files {
        let (name, text) = (name(file), read(file)?);
        if name != RULES {
            faults.extend(faults_of(&name, &text, &rules));
        }
        if has_unsafe(&name, &text) {
            unsafe_files.push(name);
        }
    }
    for place in &rules.unsafe_places {
        if !unsafe_files
            .iter()
            .any(|name| Path::new(name).starts_with(place))
        {
            faults.push(format!("{RULES}: {place} has no unsafe code"));
        }
    }
    for long in &rules.long {
        let lines =
            std::fs::read_to_string(root().join(long)).map_or(0, |text| text.lines().count());
        if lines <= LINES_MAX {
            faults.push(format!(
                "{RULES}: {long} has {lines} lines and needs no exception"
            ));
        }
    }
    Ok(faults)
}

fn faults_of(name: &str, text: &str, rules: &Rules) -> Vec<String> {
    let mut faults = Vec::new();
    if name.ends_with(".rs") && !text.starts_with("//!") {
        faults.push(format!("{name}: does not open with //! saying what it is"));
    }
    if is_refused_mod_rs(name) {
        let folder = name.trim_end_matches("/mod.rs");
        faults.push(format!("{name}: name it {folder}.rs"));
    }
    let lines = text.lines().count();
    let is_code = !name.ends_with(".md") && !name.ends_with(".toml");
    if is_code && lines > LINES_MAX && !rules.long.iter().any(|long| long == name) {
        faults.push(format!(
            "{name}: {lines} lines: split it, or give the reason in {RULES}"
        ));
    }
    let may_be_unsafe = |place: &String| Path::new(name).starts_with(place);
    if has_unsafe(name, text) && !rules.unsafe_places.iter().any(may_be_unsafe) {
        faults.push(format!(
            "{name}: has unsafe code: only the places listed in {RULES} may have some"
        ));
    }
    for (index, line) in text.lines().enumerate() {
        if name.ends_with(".rs") && is_wide_comment(line) {
            faults.push(format!("{name}:{}: wrap the comment", index + 1));
        }
        for (word, why) in rules
            .banned
            .iter()
            .filter(|(word, _)| line.contains(word.as_str()))
        {
            faults.push(format!("{name}:{}: {word:?}: {why}", index + 1));
        }
    }
    faults
}

/// Whether a line is a comment that is too long and can be broken: an address and a row of a table
/// cannot.
fn is_wide_comment(line: &str) -> bool {
    let is_comment = line.trim_start().starts_with("//");
    let is_whole = line.contains("://") || line.contains("// |") || line.contains("/// |");
    is_comment && !is_whole && line.chars().count() > COMMENT_CHARS_MAX
}

/// Whether a module with children is in a file `mod.rs`, and not beside the folder of its children.
fn is_refused_mod_rs(name: &str) -> bool {
    name.contains("/src/") && name.ends_with("/mod.rs")
}

/// Whether a Rust file has unsafe code, outside comments.
fn has_unsafe(name: &str, text: &str) -> bool {
    let code = |line: &'_ str| line.split("//").next().unwrap_or_default().to_owned();
    let marks = |rest: &str| MARKED_UNSAFE.iter().any(|start| rest.starts_with(start));
    name.ends_with(".rs")
        && text
            .lines()
            .any(|line| code(line).split(UNSAFE).skip(1).any(marks))
}

/// All Rust files under a folder, or the file itself.
pub(crate) fn rust_files(place: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if place.is_file() {
        return Ok(vec![place.to_owned()]);
    }
    let mut files = Vec::new();
    walk(place, &|path| has_extension(path, &["rs"]), &mut files)?;
    Ok(files)
}

fn walk(
    folder: &Path,
    want: &dyn Fn(&Path) -> bool,
    files: &mut Vec<PathBuf>,
) -> anyhow::Result<()> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    for entry in entries {
        let entry = entry.with_context(|| folder.display().to_string())?;
        let path = entry.path();
        let kind = entry
            .file_type()
            .with_context(|| path.display().to_string())?;
        let skipped = path
            .file_name()
            .and_then(OsStr::to_str)
            .is_some_and(|name| SKIPPED.contains(&name));
        if kind.is_dir() && !skipped {
            walk(&path, want, files)?;
        } else if kind.is_file() && want(&path) {
            files.push(path);
        }
    }
    files.sort();
    Ok(())
}

fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    path.extension()
        .and_then(OsStr::to_str)
        .is_some_and(|it| extensions.contains(&it))
}

fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| path.display().to_string())
}

fn name(file: &Path) -> String {
    file.strip_prefix(root())
        .unwrap_or(file)
        .display()
        .to_string()
}

fn rules(text: &str) -> anyhow::Result<Rules> {
    let table: Table = text.parse().with_context(|| RULES.to_owned())?;
    let rows = |key: &str, name: &str| -> anyhow::Result<Vec<(String, String)>> {
        let rows = table
            .get(key)
            .and_then(toml::Value::as_array)
            .map_or(&[][..], Vec::as_slice);
        rows.iter()
            .map(|row| pair(row, name).with_context(|| format!("{RULES}: {key}")))
            .collect()
    };
    let places = |key: &str, name: &str| -> anyhow::Result<Vec<String>> {
        Ok(rows(key, name)?
            .into_iter()
            .map(|(place, _)| place)
            .collect())
    };
    Ok(Rules {
        banned: rows("banned", "word")?,
        long: places("long", "file")?,
        unsafe_places: places("unsafe", "place")?,
    })
}

/// The subject of a row, and its reason, which every row must have.
fn pair(row: &toml::Value, name: &str) -> anyhow::Result<(String, String)> {
    let field = |key: &str| {
        let value = row
            .get(key)
            .and_then(toml::Value::as_str)
            .filter(|value| !value.is_empty());
        value
            .map(str::to_owned)
            .with_context(|| format!("{row}: no {key}"))
    };
    Ok((field(name)?, field("reason")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planted_faults_are_found() {
        let rules = rules(
            "banned = [{ word = 'later!', reason = 'now' }]\nunsafe = [{ place = 'c/src', reason = 'C' }]\n[[long]]\nfile = 'long.rs'\nreason = 'a table'\n",
        )
        .expect("well formed");
        let long = format!("//! Long.\n{}", "\n".repeat(LINES_MAX));
        let block = format!("//! A.\nlet a = {UNSAFE}{{ b() }};\n");
        let function = format!("//! A.\npub {UNSAFE}fn a() {{}}\n");
        let comment = format!("//! {UNSAFE}{{\n// {UNSAFE}fn\nlet a = \"{UNSAFE}shutdowns\";\n");
        let wide = format!("//! A.\n    // {}\n", "b".repeat(94));
        let cell = format!("//! A.\n// | {} |\n", "b".repeat(94));
        let table: &[(&str, &str, &[&str])] = &[
            ("a.rs", "//! A.\n", &[]),
            ("a.rs", &wide, &["a.rs:2: wrap the comment"]),
            ("a.rs", &cell, &[]),
            ("a.rs", "use b;\n", &["a.rs: does not open"]),
            ("a.py", "import b\n", &[]),
            ("a.rs", "//! A.\n// later!\n", &["a.rs:2: \"later!\": now"]),
            ("a.rs", &long, &["a.rs: 601 lines"]),
            ("long.rs", &long, &[]),
            ("a.md", &long, &[]),
            ("crates/a/src/b.rs", "//! B.\n", &[]),
            (
                "crates/a/src/b/mod.rs",
                "//! B.\n",
                &["crates/a/src/b/mod.rs: name it crates/a/src/b.rs"],
            ),
            (
                "a/src/b/mod.rs",
                "//! B.\n",
                &["a/src/b/mod.rs: name it a/src/b.rs"],
            ),
            ("crates/a/tests/b/mod.rs", "//! B.\n", &[]),
            ("a.rs", &block, &["a.rs: has unsafe code"]),
            ("c/src.rs", &function, &["c/src.rs: has unsafe code"]),
            ("c/src/a.rs", &block, &[]),
            ("a.rs", &comment, &[]),
            ("a.md", &function, &[]),
        ];
        for (name, text, expect) in table {
            let faults = faults_of(name, text, &rules);
            assert_eq!(faults.len(), expect.len(), "{name}: {faults:?}");
            for (fault, expect) in faults.iter().zip(*expect) {
                assert!(fault.starts_with(expect), "{fault:?} is not {expect:?}");
            }
        }
    }

    #[test]
    fn a_rule_without_a_reason_is_refused() {
        assert!(rules("[[long]]\nfile = 'a.rs'\n").is_err());
        assert!(rules("banned = [{ word = 'a', reason = '' }]").is_err());
    }
}
