//! `baro control maps`: the maps of servers that programs use, and changes of them.

use anyhow::Context as _;
use clap::Args;
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::super::output::plain;
use super::super::{Target, format, output};
use super::ask;

/// The path to which requests go.
const MAPS: &str = "/api/v1/control/maps";

/// Arguments of `baro control maps`.
#[derive(Args)]
pub(super) struct Maps {
    /// Name of the map [default: all]
    name: Option<String>,
    /// Add these servers, which have been started
    #[arg(long, value_name = "NUMBER", value_delimiter = ',', requires = "name")]
    add: Vec<u32>,
    /// Take these servers out: operations go to the others from the next epoch on
    #[arg(long, value_name = "NUMBER", value_delimiter = ',', requires = "name")]
    remove: Vec<u32>,
    /// The processes of these servers have certainly ended, so no change waits for them
    #[arg(long, value_name = "NUMBER", value_delimiter = ',', requires = "name")]
    gone: Vec<u32>,
    /// Remove the map, which no program uses any more
    #[arg(long, requires = "name", conflicts_with_all = ["add", "remove", "gone"])]
    forget: bool,
    /// Number of the user whose map it is [default: you]
    #[arg(long, value_name = "UID", requires = "name")]
    user: Option<u32>,
    #[command(flatten)]
    target: Target,
}

/// A map, as the agent tells of it.
#[derive(Deserialize)]
struct Row {
    user: String,
    uid: u32,
    name: String,
    application: String,
    epoch: u64,
    servers: Vec<u32>,
    stage: String,
    members: u64,
    running: u64,
    running_servers: Vec<u32>,
    #[serde(default)]
    moved_servers: Vec<(u32, String, Option<String>)>,
    slow: Option<(u64, f64, f64)>,
    changes: Vec<Change>,
}

#[derive(Deserialize)]
struct Change {
    epoch: u64,
    age_ns: i64,
    took_ns: i64,
    reason: Option<String>,
    why: Option<String>,
}

impl Maps {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let run_dir = self.target.run_dir();
        let is_change = [&self.add, &self.remove, &self.gone];
        if self.forget || is_change.iter().any(|servers| !servers.is_empty()) {
            let body = json!({
                "name": self.name, "user": self.user, "forget": self.forget,
                "add": self.add, "remove": self.remove, "gone": self.gone,
            });
            let answer = ask(&run_dir, MAPS, &body)?;
            if self.target.json {
                return output::print_json(&answer);
            }
            let epoch = answer["epoch"].as_u64().unwrap_or_default();
            let name = self.name.unwrap_or_default();
            if self.forget {
                return output::print(&format!("{name} is removed; its last epoch was {epoch}\n"));
            }
            return output::print(&format!(
                "epoch {epoch} of {name} has begun; `baro control maps {name}` tells what came of it\n"
            ));
        }
        let answer = ask(&run_dir, MAPS, &json!({}))?;
        let mut rows = answer["maps"].as_array().cloned().unwrap_or_default();
        rows.retain(|row| {
            let name = self.name.as_deref();
            name.is_none_or(|name| row["name"] == name)
        });
        if self.target.json {
            return output::print_json(&Json::Array(rows));
        }
        if rows.is_empty() {
            return output::print(
                "no maps of servers: no program uses one (docs/guide/epochs.md says how they do)\n",
            );
        }
        let rows: Vec<Row> = serde_json::from_value(Json::Array(rows))
            .context("the agent's answer is of another version")?;
        let cells: Vec<Vec<String>> = rows.iter().map(cells).collect();
        output::print_table(
            &[
                "NAME",
                "USER",
                "APPLICATION",
                "EPOCH",
                "SERVERS",
                "THERE",
                "MEMBERS",
                "RUNNING",
                "STATE",
                "SLOW",
                "LAST CHANGE",
            ],
            &[3, 6, 7],
            &cells,
        )?;
        let moved: Vec<String> = rows.iter().flat_map(moved).collect();
        output::print(&moved.concat())
    }
}

/// A name as one word of a shell: programs choose the names of maps, and people copy commands.
fn shell_word(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._/-".contains(c);
    match !name.is_empty() && !name.starts_with('-') && name.chars().all(is_plain) {
        true => name.to_owned(),
        false => format!("'{}'", name.replace('\'', r"'\''")),
    }
}

/// What is to be done about servers that have moved.
fn moved(row: &Row) -> impl Iterator<Item = String> {
    let (map, uid) = (plain(&row.name).into_owned(), row.uid);
    let word = shell_word(&map);
    row.moved_servers.iter().map(move |(server, node, before)| {
        let node = plain(node);
        let before = before.as_deref().map_or("another node".into(), plain);
        format!(
            "\n{map}: server {server} is on {node} now and serves nothing: that it has ended on \
             {before} is not certain. If you know that it has: baro control maps {word} --gone {server} --user {uid}\n"
        )
    })
}

fn cells(row: &Row) -> Vec<String> {
    let text = |text: &str| plain(text).into_owned();
    let slow = row.slow.map_or("-".to_owned(), |(server, ratio, _)| {
        format!("{server} ({ratio:.1} times its peers)")
    });
    let last = row.changes.last().map_or("-".to_owned(), |change| {
        let age = format::age(change.age_ns);
        let took = format::age(change.took_ns);
        let why = change.why.as_deref().map(plain);
        let why = why.map_or(String::new(), |why| format!(": {why}"));
        match &change.reason {
            None => format!("epoch {} {age} ago, in {took}{why}", change.epoch),
            Some(reason) => format!(
                "epoch {} aborted {age} ago: {}",
                change.epoch,
                plain(reason)
            ),
        }
    });
    vec![
        text(&row.name),
        text(&row.user),
        text(&row.application),
        row.epoch.to_string(),
        ranges(&row.servers),
        ranges(&row.running_servers),
        row.members.to_string(),
        row.running.to_string(),
        text(&row.stage),
        slow,
        last,
    ]
}

/// Numbers in ascending order as ranges, for example `0-3,7`.
fn ranges(numbers: &[u32]) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match parts.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*number) => *last = *number,
            _ => parts.push((*number, *number)),
        }
    }
    let parts = parts.iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    match parts.len() {
        0 => "-".to_owned(),
        _ => parts.collect::<Vec<_>>().join(","),
    }
}

#[cfg(test)]
mod tests {
    use super::ranges;

    #[test]
    fn numbers_are_ranges() {
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
        assert_eq!(ranges(&[]), "-");
    }
}
