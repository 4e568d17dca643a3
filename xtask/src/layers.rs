//! Checks which crate may import which. The table is the architecture: a new arrow is a decision,
//! made here and nowhere else, so that reviewers see it.

use crate::workspace::{DependencyUse, Package};

/// One crate and the crates of this project that it may import, by short name.
struct Row {
    name: &'static str,
    imports: &'static [&'static str],
}

/// Data flows from the top of the table to its end.
const ROWS: &[Row] = &[
    row("model", &[]),
    row("testing", &[]),
    row("stream", &["model"]),
    // Interval policies use the error of forecasts.
    row("forecast", &["model", "testing"]),
    row("source", &["model", "forecast", "testing"]),
    row("event", &["model"]),
    row("statement", &["model"]),
    row("insight", &["model", "statement"]),
    row("rule", &["model", "statement"]),
    // It runs as root: it imports no crate of this project, and no such crate imports it.
    row("helper", &[]),
    // Frames between nodes, and the two ends of a feed.
    row("fabric", &["model", "stream"]),
    // Who may be a node of a cluster: commands of administrators, never an agent.
    row("membership", &["model", "stream", "fabric"]),
    row("archive", &["model", "stream", "testing"]),
    // Slices into bytes and back: it knows neither streams nor tiers.
    row("progressive", &[]),
    // The table of events has the parts of their records as columns.
    row("query", &["model", "stream", "archive", "event"]),
    // Policies of controllers, and the weights that carry them out: it knows no stream.
    row("control", &["model"]),
    // Hashes, weights and advisers: values in, decisions out.
    row("placement", &[]),
    // Blocks in memory and faster tiers; its servers refuse epochs by the rules of control.
    row("staging", &["model", "control", "placement"]),
    // Files made of these blocks: it knows the client of staging, and the kernel by fuser.
    row("stagefs", &["model", "staging"]),
    // The archive is used only by its demonstration and tests. A feed of events reads their
    // records. Packed arrays are files that it reads and writes. Members and servers of a map
    // decide by the rules that are checked in control. Without an agent, blocks are placed by
    // hashing.
    row(
        "client",
        &[
            "model",
            "stream",
            "archive",
            "query",
            "event",
            "progressive",
            "control",
            "placement",
        ],
    ),
    // The stream is used only by its tests, which read the values that C programs put.
    // Blocks are put and read by the program itself, so the client of staging is in it.
    row(
        "libbaro",
        &["model", "stream", "client", "progressive", "staging"],
    ),
    // Other protocols, parsed into points: the server receives them, the intake takes them in.
    row("bridge", &["model", "stream"]),
    row("server", &["model", "stream", "bridge", "testing"]),
    // The handling of every sample, of the node's streams and of a scope's.
    row("recorder", &["model", "stream", "forecast", "archive"]),
    row("call", &["model", "stream"]),
    row(
        "intake",
        &[
            "model", "stream", "archive", "bridge", "query", "recorder", "call",
        ],
    ),
    // The queue of actions and what runs them: it knows neither events nor rules, only requests.
    row("action", &["model"]),
    // The program that copies files for actions, in a process of its own.
    row("transfer", &["model", "action"]),
    // Traces, replay, plots, a simulated storage: what forecasts and policies are judged by.
    row("lab", &["model", "forecast", "control"]),
    row(
        "agent",
        &[
            "model",
            "stream",
            "forecast",
            "source",
            "event",
            "statement",
            "insight",
            "rule",
            "action",
            "archive",
            "query",
            "client",
            "server",
            "fabric",
            "recorder",
            "call",
            "intake",
            "control",
            "placement",
            "testing",
        ],
    ),
    row(
        "baro",
        &[
            "model",
            "forecast",
            "archive",
            "client",
            "event",
            "agent",
            "lab",
            "membership",
            // Rules are tried without an agent.
            "rule",
            // Files are copied in a process of their own, which is this program.
            "action",
            "transfer",
            // Weights are set up, looked at and restored without an agent.
            "control",
            // Arrays are packed and read without an agent.
            "progressive",
            // Blocks are served and read without an agent, as files too.
            "staging",
            "stagefs",
        ],
    ),
    row(
        "python",
        &["model", "client", "placement", "progressive", "staging"],
    ),
    row("sqlite", &["query"]),
    row(
        "bench",
        &[
            "model", "stream", "forecast", "source", "event", "insight", "rule", "archive",
            "query", "client", "fabric",
        ],
    ),
    row("xtask", &[]),
];

/// A dependency that is heavy, or whose types must not spread: only a few crates may name it.
struct Heavy {
    /// The package, or the beginning of its name when it ends with `-`.
    name: &'static str,
    owners: &'static [&'static str],
    /// Crates whose tests may use it too.
    tests: &'static [&'static str],
}

const HEAVY: &[Heavy] = &[
    // The queue of actions is a SQLite file. The tests of insights and rules run the same query in
    // SQLite; benchmarks compare it with this project.
    Heavy {
        name: "rusqlite",
        owners: &["query", "action", "bench"],
        tests: &["statement", "insight", "rule"],
    },
    Heavy {
        name: "arrow-",
        owners: &["query"],
        tests: &[],
    },
    Heavy {
        name: "opendal",
        owners: &["transfer", "staging"],
        tests: &[],
    },
    Heavy {
        name: "fuser",
        owners: &["stagefs"],
        tests: &[],
    },
    Heavy {
        name: "zenoh",
        owners: &["fabric"],
        // A hostile member of a cluster speaks zenoh.
        tests: &["membership"],
    },
    Heavy {
        name: "rcgen",
        owners: &["membership"],
        tests: &[],
    },
    // It replaces the allocator, so that only tests may have it.
    Heavy {
        name: "barograph-testing",
        owners: &[],
        tests: &["forecast", "source", "archive", "server", "agent"],
    },
    // A model checker.
    Heavy {
        name: "stateright",
        owners: &[],
        tests: &["control"],
    },
    Heavy {
        name: "plotters",
        owners: &["lab"],
        tests: &[],
    },
    Heavy {
        name: "parquet",
        owners: &["archive"],
        tests: &[],
    },
    Heavy {
        name: "object_store",
        owners: &["archive"],
        tests: &[],
    },
    Heavy {
        name: "promql-parser",
        owners: &["server"],
        tests: &[],
    },
    Heavy {
        name: "sqlparser",
        owners: &["statement"],
        tests: &[],
    },
    Heavy {
        name: "axum",
        owners: &["server"],
        tests: &[],
    },
    Heavy {
        name: "ratatui",
        owners: &["baro"],
        tests: &[],
    },
    Heavy {
        name: "clap",
        owners: &["baro"],
        tests: &[],
    },
    Heavy {
        name: "pyo3",
        owners: &["python"],
        tests: &[],
    },
];

const fn row(name: &'static str, imports: &'static [&'static str]) -> Row {
    Row { name, imports }
}

/// Reports every import that the table does not allow.
pub(crate) fn check(packages: &[Package]) -> Vec<String> {
    let mut faults = Vec::new();
    for package in packages {
        match ROWS.iter().find(|row| row.name == short(&package.name)) {
            Some(row) => check_package(row, package, packages, &mut faults),
            None => faults.push(format!(
                "{}: no row in xtask/src/layers.rs: say there what it may import",
                package.name
            )),
        }
    }
    for row in ROWS {
        if !packages
            .iter()
            .any(|package| short(&package.name) == row.name)
        {
            faults.push(format!(
                "{}: has a row in xtask/src/layers.rs but no crate",
                row.name
            ));
        }
    }
    faults
}

fn check_package(row: &Row, package: &Package, all: &[Package], faults: &mut Vec<String>) {
    for (dependency, usage) in &package.dependencies {
        let ours = all.iter().any(|package| package.name == *dependency);
        // A crate's tests may name the crate itself, to enable a feature that is only for tests.
        let itself = *dependency == package.name && *usage == DependencyUse::Test;
        if ours && !itself && !row.imports.contains(&short(dependency)) {
            faults.push(format!("{}: may not import {dependency}", package.name));
        }
        for heavy in HEAVY.iter().filter(|heavy| heavy.is(dependency)) {
            if !heavy.may_be_used_by(row.name, *usage) {
                let owners = match heavy.owners {
                    [] => "tests".to_owned(),
                    owners => owners.join(", "),
                };
                faults.push(format!(
                    "{}: may not depend on {dependency}, which belongs to {owners}: go through it or a trait in model",
                    package.name
                ));
            }
        }
    }
}

impl Heavy {
    fn is(&self, dependency: &str) -> bool {
        if self.name.ends_with('-') {
            return dependency.starts_with(self.name);
        }
        dependency == self.name
    }

    fn may_be_used_by(&self, name: &str, usage: DependencyUse) -> bool {
        self.owners.contains(&name) || (usage == DependencyUse::Test && self.tests.contains(&name))
    }
}

/// `barograph-stream` is `stream` in the table; the binary's package, `barograph`, is `baro`.
fn short(package: &str) -> &str {
    if package == "barograph" {
        "baro"
    } else {
        package.strip_prefix("barograph-").unwrap_or(package)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// Every crate of the table without dependencies, except for `extra` dependencies of one.
    fn with(name: &str, extra: &[(&str, DependencyUse)]) -> Vec<Package> {
        let full = |short: &str| match short {
            "baro" => "barograph".to_owned(),
            "xtask" => "xtask".to_owned(),
            _ => format!("barograph-{short}"),
        };
        let mut packages: Vec<Package> = ROWS
            .iter()
            .map(|row| Package {
                name: full(row.name),
                sources: PathBuf::new(),
                dependencies: Vec::new(),
            })
            .collect();
        let extra = extra
            .iter()
            .map(|(name, usage)| ((*name).to_owned(), *usage))
            .collect();
        match packages.iter_mut().find(|package| package.name == name) {
            Some(package) => package.dependencies = extra,
            None => packages.push(Package {
                name: name.to_owned(),
                sources: PathBuf::new(),
                dependencies: extra,
            }),
        }
        packages
    }

    /// A crate, its dependency, the use of it, and the expected fault (empty: none).
    #[rustfmt::skip]
    const PLANTED: &[(&str, &str, DependencyUse, &str)] = &[
        ("barograph-stream", "barograph-model", DependencyUse::Build, ""),
        ("barograph-model", "barograph-stream", DependencyUse::Build, "may not import barograph-stream"),
        ("barograph-source", "barograph-stream", DependencyUse::Build, "may not import barograph-stream"),
        ("barograph-source", "barograph-stream", DependencyUse::Test, "may not import barograph-stream"),
        ("barograph-source", "barograph-source", DependencyUse::Test, ""),
        ("barograph-server", "barograph-query", DependencyUse::Build, "may not import barograph-query"),
        ("barograph-server", "rusqlite", DependencyUse::Build, "rusqlite, which belongs to query"),
        ("barograph-query", "rusqlite", DependencyUse::Build, ""),
        ("barograph-insight", "rusqlite", DependencyUse::Test, ""),
        ("barograph-insight", "rusqlite", DependencyUse::Build, "rusqlite, which belongs to query"),
        ("barograph-client", "arrow-array", DependencyUse::Build, "arrow-array, which belongs to query"),
        ("barograph-query", "arrow-ipc", DependencyUse::Build, ""),
        ("barograph-source", "barograph-testing", DependencyUse::Test, ""),
        ("barograph-source", "barograph-testing", DependencyUse::Build, "barograph-testing, which belongs to tests"),
        ("barograph-agent", "axum", DependencyUse::Test, "axum, which belongs to server"),
        ("barograph", "barograph-stream", DependencyUse::Build, "may not import barograph-stream"),
        ("xtask", "barograph-model", DependencyUse::Build, "may not import barograph-model"),
        ("barograph-unknown", "serde", DependencyUse::Build, "no row"),
    ];

    #[test]
    fn planted_faults_are_found_and_nothing_else() {
        for (name, dependency, usage, expect) in PLANTED {
            let faults = check(&with(name, &[(dependency, *usage)]));
            if expect.is_empty() {
                assert!(faults.is_empty(), "{name} -> {dependency}: {faults:?}");
            } else {
                assert_eq!(faults.len(), 1, "{name} -> {dependency}: {faults:?}");
                assert!(
                    faults[0].starts_with(name),
                    "{:?} is not about {name}",
                    faults[0]
                );
                assert!(
                    faults[0].contains(expect),
                    "{:?} lacks {expect:?}",
                    faults[0]
                );
            }
        }
    }

    #[test]
    fn a_row_without_a_crate_is_a_fault() {
        let mut packages = with("barograph-model", &[]);
        packages.retain(|package| package.name != "barograph-source");
        assert_eq!(
            check(&packages),
            ["source: has a row in xtask/src/layers.rs but no crate"]
        );
    }

    #[test]
    fn no_cycles_in_the_table() {
        for (index, row) in ROWS.iter().enumerate() {
            for import in row.imports {
                let place = ROWS.iter().position(|row| row.name == *import);
                assert!(
                    place.is_some_and(|place| place < index),
                    "{} imports {import}",
                    row.name
                );
            }
        }
    }
}
