//! The generated reference pages of configuration and sources, and the commented configuration
//! file. They are generated from the types and tables themselves, so that they cannot differ from
//! the code.

use barograph_source::{catalogue, cost_of};
use schemars::schema_for;
use serde_json::Value as Json;

use crate::Config;

/// One key of the configuration.
struct Key {
    path: String,
    default: Json,
    help: String,
}

/// Returns the text of `docs/reference/configuration.md`.
pub fn config_markdown() -> String {
    let mut page = String::from(
        "# Configuration\n\nGenerated from the code by `cargo xtask generate`. `baro up --config FILE` reads TOML; every key \
         has the default given here, an unknown key is an error, and options of the command line win over the file.\n\n\
         | key | default | meaning |\n| --- | --- | --- |\n",
    );
    for key in keys() {
        let help = key.help.replace('|', "\\|");
        page += &format!(
            "| `{}` | `{}` | {help} |\n",
            key.path,
            toml_text(&key.default)
        );
    }
    page
}

/// Returns the text of `etc/barograph.toml`: every key with its default, commented out.
pub fn config_file() -> String {
    let mut file = String::from(
        "# The configuration of barograph, every key at its default. Generated from the code by\n\
         # `cargo xtask generate`; copy it, uncomment what you change, and start with\n\
         # `baro up --config FILE`.\n",
    );
    let mut table = String::new();
    let mut keys = keys();
    // The keys of a table come before the tables within it.
    keys.sort_by_key(|key| parted(&key.path).0.to_owned());
    for key in keys {
        let (parent, name) = parted(&key.path);
        if parent != table {
            table = parent.to_owned();
            file += &format!("\n[{table}]\n");
        }
        file += &format!("\n# {}\n# {name} = {}\n", key.help, toml_text(&key.default));
    }
    file
}

/// Splits a key into the path of its table and its name there.
fn parted(path: &str) -> (&str, &str) {
    path.rsplit_once('.').unwrap_or(("", path))
}

/// Returns the text of `docs/reference/sources.md`.
pub fn sources_markdown() -> String {
    let mut page = String::from(
        "# Sources\n\nGenerated from the code by `cargo xtask generate`: every source, how often it is read, whether it is on, \
         and every stream that it can give. What a machine does not have has no stream; `baro doctor` says what is \
         missing and why. `[sources.poll.NAME]` in the configuration turns a source on or off and sets how often it is read. A source of whose kind the machine has nothing is read only every minute, and when a file system is mounted or unmounted.\n\n\
         | source | every | usually | streams |\n| --- | --- | --- | --- |\n",
    );
    for spec in catalogue() {
        let state = if spec.usual { "on" } else { "off" };
        let count = spec.facts.iter().copied().flatten().count();
        page += &format!(
            "| [{name}](#{name}) | {} | {state} | {count} |\n",
            every(spec.interval_ms),
            name = spec.name,
        );
    }
    for spec in catalogue() {
        page += &format!(
            "\n## {}\n\nRead every {}",
            spec.name,
            every(spec.interval_ms)
        );
        page += &match spec.usual {
            true => ".\n".to_owned(),
            false => format!(
                "; off unless `sources.poll.{}.enabled = true`, since it costs: {}.\n",
                spec.name,
                cost_of(spec.name)
            ),
        };
        page += "\n| stream | kind | unit | what |\n| --- | --- | --- | --- |\n";
        for fact in spec.facts.iter().copied().flatten() {
            page += &format!(
                "| `{}` | {} | {} | {} |\n",
                fact.name,
                fact.kind.as_str(),
                fact.unit,
                fact.help.replace('|', "\\|")
            );
        }
    }
    page
}

fn every(interval_ms: u64) -> String {
    match interval_ms % 1000 {
        0 => format!("{} s", interval_ms / 1000),
        _ => format!("{interval_ms} ms"),
    }
}

fn keys() -> Vec<Key> {
    let schema = schema_for!(Config).to_value();
    let defaults =
        serde_json::to_value(Config::default()).expect("the configuration is plain data");
    let mut keys = Vec::new();
    walk(&schema, &schema, &defaults, "", &mut keys);
    keys
}

/// Follows the schema's objects. A map or list is one key with its whole default.
fn walk(root: &Json, schema: &Json, default: &Json, path: &str, keys: &mut Vec<Key>) {
    let schema_here = resolve(root, schema);
    let Some(properties) = schema_here["properties"]
        .as_object()
        .filter(|_| default.is_object())
    else {
        let help = [schema, schema_here]
            .iter()
            .find_map(|s| s["description"].as_str())
            .unwrap_or_default()
            .replace('\n', " ");
        keys.push(Key {
            path: path.into(),
            default: default.clone(),
            help,
        });
        return;
    };
    for (name, property) in properties {
        let below = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        walk(root, property, &default[name], &below, keys);
    }
}

fn resolve<'a>(root: &'a Json, schema: &'a Json) -> &'a Json {
    let reference = schema["$ref"]
        .as_str()
        .or_else(|| schema["allOf"][0]["$ref"].as_str());
    match reference
        .and_then(|r| r.strip_prefix('#'))
        .and_then(|pointer| root.pointer(pointer))
    {
        Some(target) => target,
        None => schema,
    }
}

/// Returns a JSON default as TOML on one line.
fn toml_text(json: &Json) -> String {
    match json {
        Json::Null => "unset".into(),
        Json::Array(list) => format!(
            "[{}]",
            list.iter().map(toml_text).collect::<Vec<_>>().join(", ")
        ),
        Json::Object(map) => {
            let pairs: Vec<String> = map
                .iter()
                .map(|(k, v)| format!("{k} = {}", toml_text(v)))
                .collect();
            format!("{{ {} }}", pairs.join(", "))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fact_is_in_the_page_of_sources() {
        let page = sources_markdown();
        for fact in catalogue().flat_map(|s| s.facts.iter().copied().flatten()) {
            assert!(
                page.contains(&format!("| `{}` |", fact.name)),
                "{}",
                fact.name
            );
        }
    }

    #[test]
    fn every_key_is_described() {
        let keys = keys();
        assert!(keys.len() > 15, "{} keys", keys.len());
        for key in keys {
            assert!(key.help.len() > 10, "{} has no description", key.path);
        }
    }

    #[test]
    fn the_commented_file_is_the_default_when_uncommented() {
        let uncommented: String = config_file()
            .lines()
            .filter(|l| !l.contains("= unset"))
            .map(|l| match l.strip_prefix("# ") {
                Some(rest) if rest.split(' ').nth(1) == Some("=") => format!("{rest}\n"),
                Some(_) => String::new(),
                None => format!("{l}\n"),
            })
            .collect();
        let config: Config =
            toml::from_str(&uncommented).unwrap_or_else(|e| panic!("{e}\n{uncommented}"));
        let text = |c: &Config| serde_json::to_string(c).unwrap();
        assert_eq!(text(&config), text(&Config::default()));
    }
}
