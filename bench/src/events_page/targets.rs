//! The table of our figures against the targets, and what bounds those that miss them.

use serde_json::Value as Json;

use crate::report::short;

/// What is said where a target is missed, by the beginning of its figure.
const BOUNDS: [(&str, &str); 4] = [
    (
        "changelog.rate",
        "the rows below show that most of the time is for resolving and encoding, whose paths have about ten directories; \
         the rest is for the ring, the log and the follower, and parsing is hardly seen. It was not profiled further, nor why \
         four targets cost more than one. Other programs on the machine slow the processor time too.",
    ),
    (
        "fs.rate",
        "on the disk, the process that changes files is slow beside any watcher, peers included (*files changed/s*), and single \
         runs there differ by factors. The processor time of an event was not profiled; the collectors alone take more \
         than the target where events come one by one, and less where they wait in the queue (*burst*).",
    ),
    (
        "event.memory",
        "[0010](../design/0010-file-events.md) has the bytes that a directory takes in the table of names alone: a million take more \
         than the target. The collectors of trees have watches or file handles beside it, and inotify a list of the \
         directories that got no watch.",
    ),
    (
        "rule.eval",
        "rules without a source and without a literal beginning of the path have no index, so that each event meets all of them.",
    ),
];

/// A figure with its target.
struct TargetRow {
    id: &'static str,
    figure: String,
    ours: f64,
    unit: &'static str,
    /// The bound, and whether it is the greatest or the least that is good.
    bound: f64,
    is_most: bool,
}

impl TargetRow {
    fn is_met(&self) -> bool {
        match self.is_most {
            true => self.ours <= self.bound,
            false => self.ours >= self.bound,
        }
    }

    fn print(&self) {
        let sign = if self.is_most { "at most" } else { "at least" };
        let verdict = if self.is_met() { "met" } else { "**missed**" };
        println!(
            "| `{}` | {} | {} {} | {sign} {} | {verdict} |",
            self.id,
            self.figure,
            short(self.ours),
            self.unit,
            short(self.bound),
        );
    }
}

/// Prints the table, and what bounds the figures that miss their targets.
pub(super) fn print(rows: &[Json]) {
    println!(
        "\n## Against the targets\n\n| id | figure | ours | target | |\n| --- | --- | ---: | ---: | --- |"
    );
    let parts = [logs(rows), trees(rows), memory(rows), rules(rows)];
    let all: Vec<TargetRow> = parts.into_iter().flatten().collect();
    all.iter().for_each(TargetRow::print);
    println!(
        "\n`log.append`, `queue.rate` and `queue.loss` have figures elsewhere: [history](history.md), \
         `cargo run --release -p barograph-action --example queue_rate`, and `e2e/test_event_rules.py`.\n"
    );
    for (beginning, text) in BOUNDS {
        if all.iter().any(|row| row.id == beginning && !row.is_met()) {
            println!("*{beginning}*: {text}\n");
        }
    }
}

fn number(row: &Json, key: &str) -> f64 {
    row[key].as_f64().unwrap_or(f64::NAN)
}

fn text<'a>(row: &'a Json, key: &str) -> &'a str {
    row[key].as_str().unwrap_or_default()
}

fn of<'a>(rows: &'a [Json], id: &'a str) -> impl Iterator<Item = &'a Json> {
    rows.iter().filter(move |row| row["id"] == id)
}

fn logs(rows: &[Json]) -> Vec<TargetRow> {
    let bounds = [
        (": parsed, one core", 500e3),
        ("one core (processor time of all threads)", 200e3),
    ];
    let mut found = Vec::new();
    for (ending, bound) in bounds {
        let ends = |row: &&Json| text(row, "case").ends_with(ending);
        found.extend(
            of(rows, "changelog.rate")
                .filter(ends)
                .map(|row| TargetRow {
                    id: "changelog.rate",
                    figure: text(row, "case").to_owned(),
                    ours: number(row, "ours"),
                    unit: "/s",
                    bound,
                    is_most: false,
                }),
        );
    }
    found
}

fn trees(rows: &[Json]) -> Vec<TargetRow> {
    let whole: Vec<&Json> = of(rows, "fs.rate")
        .filter(|row| text(row, "watcher").ends_with("durable and followed"))
        .collect();
    let mut found = Vec::new();
    for row in whole
        .iter()
        .filter(|row| row["workload"] == "one directory")
    {
        let target = |figure: String, key: &str, unit, bound, is_most| TargetRow {
            id: "fs.rate",
            figure,
            ours: number(row, key),
            unit,
            bound,
            is_most,
        };
        let case = text(row, "case");
        found.push(target(format!("{case}: events"), "ours", "/s", 80e3, false));
        found.push(target(
            format!("{case}: processor for an event"),
            "cpu_us",
            "us",
            3.0,
            true,
        ));
    }
    let lost = |row: &&Json| (number(row, "files") - number(row, "seen_least")).max(0.0);
    for kind in ["fanotify", "inotify"] {
        let of_kind =
            of(rows, "fs.rate").filter(|row| text(row, "watcher").starts_with(&format!("{kind},")));
        found.push(TargetRow {
            id: "fs.rate",
            figure: format!(
                "{kind}: files not told as made, in the worst run of all workloads, gaps reconciled"
            ),
            ours: of_kind.map(|row| lost(&row)).fold(0.0, f64::max),
            unit: "files",
            bound: 0.0,
            is_most: true,
        });
    }
    found
}

fn memory(rows: &[Json]) -> Vec<TargetRow> {
    let target = |row: &Json| TargetRow {
        id: "event.memory",
        figure: text(row, "case").to_owned(),
        ours: number(row, "ours"),
        unit: "MB",
        bound: 40.0,
        is_most: true,
    };
    of(rows, "event.memory").map(target).collect()
}

fn rules(rows: &[Json]) -> Vec<TargetRow> {
    let target = |row: &Json| TargetRow {
        id: "rule.eval",
        figure: text(row, "case").to_owned(),
        ours: number(row, "ours"),
        unit: "us",
        bound: 5.0,
        is_most: true,
    };
    of(rows, "rule.eval").map(target).collect()
}
