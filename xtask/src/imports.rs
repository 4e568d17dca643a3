//! The modules of one crate and the paths that their code names, read from the text of the files.
//! It is a reader of tokens, not of Rust: enough to see which file uses which. Code that is only
//! compiled for tests is left out.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;

/// A path as it is written, such as `["crate", "a", "B"]`.
type CodePath = Vec<String>;

/// The place of a module in its crate, such as `["a", "b"]`; the root's is empty.
pub(crate) type ModulePath = Vec<String>;

/// Most re-exports that are followed for one name.
const HOPS_MAX: usize = 8;

/// One file of a crate.
pub(crate) struct ModuleFile {
    /// Its path, relative to the folder of the crate's sources.
    pub(crate) path: String,
    /// Paths that begin with `crate`, `super` or `self`, in `use` declarations and elsewhere.
    paths: Vec<CodePath>,
    /// Names that `use` declarations bring in, and what they stand for.
    names: BTreeMap<String, CodePath>,
    /// Modules that have files of their own.
    children: Vec<String>,
}

/// The modules of a crate by their places.
pub(crate) type Modules = BTreeMap<ModulePath, ModuleFile>;

/// Reads the modules that a crate's root file declares, and theirs.
///
/// # Errors
///
/// The path of a file that cannot be read.
pub(crate) fn read_crate(sources: &Path, root_file: &str) -> anyhow::Result<Modules> {
    let mut modules = Modules::new();
    let mut open = vec![(Vec::new(), root_file.to_owned())];
    while let Some((place, path)) = open.pop() {
        let file = sources.join(&path);
        let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let module = ModuleFile::parse(&path, &text);
        for child in &module.children {
            let mut below = place.clone();
            below.push(child.clone());
            let stem = below.join("/");
            let beside = format!("{stem}.rs");
            let path = match sources.join(&beside).is_file() {
                true => beside,
                false => format!("{stem}/mod.rs"),
            };
            open.push((below, path));
        }
        modules.insert(place, module);
    }
    Ok(modules)
}

/// The places of the modules that one module uses.
pub(crate) fn used_by(place: &[String], modules: &Modules) -> Vec<ModulePath> {
    let Some(module) = modules.get(place) else {
        return Vec::new();
    };
    module
        .paths
        .iter()
        .filter_map(|path| resolve(place, path, modules, HOPS_MAX))
        .collect()
}

/// The module in which a path ends, when `place` names it. `None` for paths of other crates.
fn resolve(
    place: &[String],
    path: &[String],
    modules: &Modules,
    hops: usize,
) -> Option<ModulePath> {
    let mut at = place.to_vec();
    for (index, word) in path.iter().enumerate() {
        match word.as_str() {
            "crate" => at.clear(),
            "super" => drop(at.pop()),
            "self" => {}
            _ => {
                let module = modules.get(&at)?;
                if module.children.contains(word) {
                    at.push(word.clone());
                } else if let Some(alias) = module.names.get(word).filter(|_| hops > 0) {
                    let mut rest = alias.clone();
                    rest.extend_from_slice(&path[index + 1..]);
                    return resolve(&at, &rest, modules, hops - 1);
                } else {
                    return (index > 0).then_some(at);
                }
            }
        }
    }
    Some(at)
}

impl ModuleFile {
    /// Reads one file.
    pub(crate) fn parse(path: &str, text: &str) -> Self {
        let tokens = without_tests(&tokens(text));
        let mut module = Self {
            path: path.to_owned(),
            paths: Vec::new(),
            names: BTreeMap::new(),
            children: Vec::new(),
        };
        let mut index = 0;
        while index < tokens.len() {
            let previous = index.checked_sub(1).map_or("", |it| tokens[it]);
            let next = tokens.get(index + 1).copied().unwrap_or_default();
            match tokens[index] {
                "use" => {
                    let mut leaves = Vec::new();
                    index = read_tree(&tokens, index + 1, &[], &mut leaves);
                    module.add_use(leaves);
                }
                "mod" if tokens.get(index + 2) == Some(&";") => {
                    module.children.push(next.to_owned());
                    index += 3;
                }
                // `pub(in crate::a)` is no import.
                "crate" | "super" | "self" if next == "::" && previous != "in" => {
                    let mut leaves = Vec::new();
                    index = read_tree(&tokens, index, &[], &mut leaves);
                    module.paths.extend(leaves.into_iter().map(|leaf| leaf.0));
                }
                _ => index += 1,
            }
        }
        module
    }

    fn add_use(&mut self, leaves: Vec<(CodePath, String)>) {
        for (path, name) in leaves {
            if matches!(path[0].as_str(), "crate" | "super" | "self") {
                self.paths.push(path.clone());
            }
            self.names.insert(name, path);
        }
    }
}

/// Reads a path or a `use` tree that begins at `index`: each path of it with the name that it
/// brings in. Gives the index after it.
fn read_tree(
    tokens: &[&str],
    mut index: usize,
    before: &[String],
    leaves: &mut Vec<(CodePath, String)>,
) -> usize {
    let mut path = before.to_vec();
    loop {
        match tokens.get(index).copied() {
            Some("{") => {
                index += 1;
                while let Some(token) = tokens.get(index).copied() {
                    match token {
                        "}" => return index + 1,
                        "," => index += 1,
                        _ => index = read_tree(tokens, index, &path, leaves).max(index + 1),
                    }
                }
                return index;
            }
            // What a glob or type arguments stand for is not read: the path ends before them.
            Some("*" | "<") => index += 1,
            Some("self") if !before.is_empty() => index += 1,
            Some(word) if is_word(word) => {
                path.push(word.to_owned());
                index += 1;
            }
            _ => {}
        }
        if tokens.get(index) != Some(&"::") {
            break;
        }
        index += 1;
    }
    let mut name = path.last().cloned().unwrap_or_default();
    if tokens.get(index) == Some(&"as") {
        name = tokens
            .get(index + 1)
            .copied()
            .unwrap_or_default()
            .to_owned();
        index += 2;
    }
    if !path.is_empty() {
        leaves.push((path, name));
    }
    index
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphanumeric() || c == '_')
}

/// The tokens without the items and statements that `#[cfg(test)]` and its like stand before.
fn without_tests<'a>(tokens: &[&'a str]) -> Vec<&'a str> {
    let mut kept = Vec::new();
    let mut index = 0;
    while index < tokens.len() {
        if tokens[index] == "#" && tokens.get(index + 1) == Some(&"[") {
            let end = after_group(tokens, index + 1);
            let attribute = &tokens[index..end];
            let is_test = attribute.contains(&"cfg")
                && attribute.contains(&"test")
                && !attribute.contains(&"not");
            index = if is_test {
                after_item(tokens, end)
            } else {
                end
            };
        } else {
            kept.push(tokens[index]);
            index += 1;
        }
    }
    kept
}

/// The index after the item that begins at `index`.
fn after_item(tokens: &[&str], mut index: usize) -> usize {
    while index < tokens.len() {
        match tokens[index] {
            ";" => return index + 1,
            "{" => return after_group(tokens, index),
            "(" | "[" => index = after_group(tokens, index),
            ")" | "]" | "}" => return index,
            _ => index += 1,
        }
    }
    index
}

/// The index after the bracket that closes the one at `index`.
fn after_group(tokens: &[&str], mut index: usize) -> usize {
    let mut depth = 0_usize;
    while index < tokens.len() {
        match tokens[index] {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        index += 1;
        if depth == 0 {
            break;
        }
    }
    index
}

/// The words and signs of a file, without comments, texts and letters.
fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if first == '"' {
            quoted(rest, '"')
        } else if let Some(length) = raw_text(rest) {
            length
        } else if first == '\'' {
            letter(rest)
        } else if is_word(rest) {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
            end.unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        let token = &rest[..length];
        let is_code = !token.starts_with(['"', '\'', '/']) && raw_text(token).is_none();
        if is_code && !first.is_whitespace() {
            tokens.push(token);
        }
        rest = &rest[length..];
    }
    tokens
}

/// The length of a text or letter that begins and ends with `quote`.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (index, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return index + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of a raw text, such as `r#"a"#`.
fn raw_text(text: &str) -> Option<usize> {
    let after = text.strip_prefix("br").or_else(|| text.strip_prefix('r'))?;
    let hashes = after.find(|c| c != '#')?;
    let inside = after[hashes..].strip_prefix('"')?;
    let close = format!("\"{}", &after[..hashes]);
    let end = inside
        .find(&close)
        .map_or(inside.len(), |at| at + close.len());
    Some(text.len() - inside.len() + end)
}

/// The length of a letter such as `'a'`, or of the quote that begins a lifetime.
fn letter(text: &str) -> usize {
    let mut inside = text.chars().skip(1);
    match (inside.next(), inside.next()) {
        (Some('\\'), _) | (Some(_), Some('\'')) => quoted(text, '\''),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file at `a`, and the paths that are expected of it.
    const TABLE: &[(&str, &[&str])] = &[
        ("use crate::b::C;", &["crate::b::C"]),
        (
            "use crate::{b::C, d::{self, E as F}};",
            &["crate::b::C", "crate::d", "crate::d::E"],
        ),
        ("pub(crate) use super::b::*;", &["super::b"]),
        (
            "fn f() -> crate::b::C { super::d::e::<u8>(self::g) }",
            &["crate::b::C", "super::d::e", "self::g"],
        ),
        ("use std::fmt;", &[]),
        ("pub(in crate::b) fn f(self) {}", &[]),
        (
            "// crate::b\n/* crate::c */ const A: &str = \"crate::d\";",
            &[],
        ),
        (
            "const A: &str = r#\"\" crate::b\"#; fn f<'a>() { ('\"', '\\'', crate::c::D) }",
            &["crate::c::D"],
        ),
        (
            "#[cfg(test)]\nmod tests { use crate::b; }\nuse crate::c;",
            &["crate::c"],
        ),
        (
            "#[cfg(test)]\nuse crate::{b, d};\nuse crate::c;",
            &["crate::c"],
        ),
        ("#[cfg(not(test))]\nuse crate::c;", &["crate::c"]),
        (
            "#[cfg(all(test, unix))]\npub fn f(a: [u8; 2]) { crate::b(); }",
            &[],
        ),
    ];

    #[test]
    fn paths_are_read_in_code_and_not_in_tests_texts_or_comments() {
        for (text, expect) in TABLE {
            let module = ModuleFile::parse("a.rs", text);
            let paths: Vec<String> = module.paths.iter().map(|path| path.join("::")).collect();
            assert_eq!(paths, *expect, "{text}");
        }
    }
}
