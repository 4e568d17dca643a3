//! The page of bounds, generated from the sources: every queue, buffer, window and timeout has a
//! named constant, and only this page lists them all.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::tidy::rust_files;
use crate::workspace::root;

/// Suffixes of the names of constants that are bounds.
const SUFFIXES: &[&str] = &["_MAX", "_MIN", "_DEFAULT"];

const HEAD: &str = "# Limits

Generated from the sources by `cargo xtask generate`. Every bound of the program, by crate, with the value it has;
those that can be configured are in [configuration.md](configuration.md), and [the guide](../guide/limits.md) says what happens at each.
";

#[derive(Debug, PartialEq, Eq)]
struct Bound {
    name: String,
    value: String,
    help: String,
}

/// Generates `docs/reference/limits.md`.
pub(crate) fn markdown() -> anyhow::Result<String> {
    let mut page = HEAD.to_owned();
    let crates = root().join("crates");
    let entries = std::fs::read_dir(&crates).with_context(|| crates.display().to_string())?;
    let mut folders: Vec<_> = entries
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .collect();
    folders.sort();
    for folder in folders {
        let section = section(&folder)?;
        if !section.is_empty() {
            let name = folder.file_name().unwrap_or_default().to_string_lossy();
            let _ = write!(
                page,
                "\n## {name}\n\n| bound | value | what |\n| --- | --- | --- |\n{section}"
            );
        }
    }
    Ok(page)
}

fn section(folder: &Path) -> anyhow::Result<String> {
    let mut rows = String::new();
    let mut texts = Vec::new();
    for file in rust_files(&folder.join("src"))? {
        let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        texts.push((file, text));
    }
    let of_tests = texts
        .iter()
        .flat_map(|(file, text)| test_modules(file, text));
    let of_tests: Vec<PathBuf> = of_tests.collect();
    let is_of_tests = |file: &Path| {
        let mut modules = of_tests.iter();
        modules.any(|module| file.starts_with(module) || file == module.with_extension("rs"))
    };
    for (file, text) in texts.into_iter().filter(|(file, _)| !is_of_tests(file)) {
        let place = file
            .strip_prefix(folder.join("src"))
            .unwrap_or(&file)
            .display()
            .to_string();
        for bound in bounds(&text) {
            let Bound { name, value, help } = bound;
            let _ = writeln!(
                rows,
                "| `{name}` ({place}) | `{value}` | {} |",
                help.replace('|', "\\|")
            );
        }
    }
    Ok(rows)
}

/// The modules that a file declares for tests alone, as paths without `.rs`.
fn test_modules(file: &Path, text: &str) -> Vec<PathBuf> {
    let name = file.file_stem().unwrap_or_default();
    let is_root = ["lib", "main", "mod"].iter().any(|root| name == *root);
    let folder = match is_root {
        true => file.parent().unwrap_or(file).to_owned(),
        false => file.with_extension(""),
    };
    let after = text.split(TEST).skip(1);
    let declared = after.filter_map(|text| {
        let mut lines = text.lines().map(str::trim);
        let item = lines.find(|line| !line.is_empty() && !line.starts_with('#'))?;
        let module = item
            .trim_start_matches("pub(crate) ")
            .strip_prefix("mod ")?;
        Some(folder.join(module.strip_suffix(';')?))
    });
    declared.collect()
}

/// The attribute of an item that exists in tests alone.
const TEST: &str = "#[cfg(test)]";

/// Finds the bounds that a file declares at its top level, outside its tests.
fn bounds(text: &str) -> Vec<Bound> {
    let mut found = Vec::new();
    let mut help = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line == TEST {
            // The item, to its end: a line that begins nothing inside it.
            let is_last = |line: &str| {
                let is_outside = !line.starts_with([' ', '#']) && !line.is_empty();
                is_outside && line.ends_with([';', '}'])
            };
            let _ = lines.find(|line| is_last(line));
            help.clear();
        } else if let Some(words) = line.strip_prefix("///") {
            help.push_str(words);
        } else if line.starts_with("#[") {
            // Attributes stand between a comment and its item.
        } else {
            let mut item = line.to_owned();
            while is_open(&item) {
                let Some(next) = lines.next() else { break };
                item.push_str(next.trim());
            }
            found.extend(bound(&item, help.trim()));
            help.clear();
        }
    }
    found
}

/// Whether a constant continues on the next line.
fn is_open(item: &str) -> bool {
    declared(item).is_some() && !item.contains(';')
}

fn declared(item: &str) -> Option<&str> {
    let rest = [
        "const ",
        "pub const ",
        "pub(crate) const ",
        "pub(super) const ",
    ]
    .iter()
    .find_map(|start| item.strip_prefix(start))?;
    rest.contains(':').then_some(rest)
}

fn bound(item: &str, help: &str) -> Option<Bound> {
    let (name, rest) = declared(item)?.split_once(':')?;
    let (_, value) = rest.split_once('=')?;
    let value = value.split(';').next().unwrap_or_default().trim();
    let is_bound = SUFFIXES.iter().any(|suffix| name.ends_with(suffix));
    is_bound.then(|| Bound {
        name: name.into(),
        value: value.into(),
        // Links between items work only in the crate's own documentation.
        help: help.replace("[`", "`").replace("`]", "`"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_found_with_their_words() {
        let text = "/// Most\n/// [`Row`]s.\npub const ROWS_MAX: usize = 1 << 4;\n\
                    /// No bound.\nconst NAME: &str = \"a\";\n\
                    #[expect(dead_code)]\nconst TIME_MAX: Duration =\n    Duration::from_millis(5);\n\
                    fn f() {\n    const INNER_MAX: u8 = 1;\n}\n\
                    #[cfg(test)]\n#[path = \"x.rs\"]\nmod simulated;\nconst LATE_MAX: u8 = 2;\n\
                    #[cfg(test)]\nmod tests {\n    const A_MAX: u8 = 1;\n}\n\
                    #[cfg(test)]\nconst TEST_MAX: u8 = 1;\n";
        let bound = |name: &str, value: &str, help: &str| Bound {
            name: name.into(),
            value: value.into(),
            help: help.into(),
        };
        assert_eq!(
            bounds(text),
            [
                bound("ROWS_MAX", "1 << 4", "Most `Row`s."),
                bound("TIME_MAX", "Duration::from_millis(5)", ""),
                bound("LATE_MAX", "2", ""),
            ]
        );
    }

    #[test]
    fn modules_of_tests_are_found_beside_and_below_their_file() {
        let check = |file: &str, text: &str, expect: &[&str]| {
            let found = test_modules(Path::new(file), text);
            let expect: Vec<PathBuf> = expect.iter().map(PathBuf::from).collect();
            assert_eq!(found, expect, "{file}");
        };
        let text = "mod a;\n#[cfg(test)]\nmod simulated;\nmod b;\n";
        check("src/lib.rs", text, &["src/simulated"]);
        check("src/a.rs", text, &["src/a/simulated"]);
        check("src/a.rs", "#[cfg(test)]\nmod tests {\n}\n", &[]);
        let both = "#[cfg(test)]\n#[expect(dead_code)]\npub(crate) mod x;\n#[cfg(test)]\nmod y;\n";
        check("src/a/b.rs", both, &["src/a/b/x", "src/a/b/y"]);
    }
}
