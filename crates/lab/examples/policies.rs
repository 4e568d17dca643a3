//! Prints the outcome of each policy on each trace, beside fixed intervals.
//!
//!     cargo run --release -p barograph-lab --example policies [-- --json] [NAME…]

use std::path::Path;
use std::time::Instant;

use barograph_lab::cases;
use barograph_lab::suite::{Case, policies};
use barograph_lab::{Table, Trace, renewal_frontier};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let wanted: Vec<&String> = arguments
        .iter()
        .filter(|argument| !argument.starts_with("--"))
        .collect();
    let tables: Vec<Table> = all_cases()
        .into_iter()
        .filter(|case| {
            wanted.is_empty() || wanted.iter().any(|name| case.name.contains(name.as_str()))
        })
        .map(|case| table(&case))
        .collect();
    if arguments.iter().any(|argument| argument == "--json") {
        println!(
            "{}",
            serde_json::to_string_pretty(&tables).unwrap_or_default()
        );
        return;
    }
    for table in &tables {
        println!("{}", table.text());
    }
    summary(&tables);
    bound();
}

/// The bound of looks alone if gaps of 5 to 20 s are equally likely.
fn bound() {
    let gaps: Vec<f64> = (1..=20)
        .map(|gap| if gap >= 5 { 1.0 / 16.0 } else { 0.0 })
        .collect();
    let prices: Vec<f64> = (0..12).map(|step| 0.2 * 1.6_f64.powi(step)).collect();
    println!("bound of looks alone on hacc-irregular:");
    for point in renewal_frontier(&gaps, &prices) {
        println!("  cost {:.3} right {:.3}", point.cost, point.accuracy);
    }
}

#[expect(clippy::disallowed_methods, reason = "measures what a policy costs")]
fn table(case: &Case) -> Table {
    let begun = Instant::now();
    policies(case, &mut || begun.elapsed().as_nanos() as u64)
}

fn all_cases() -> Vec<Case> {
    let mut all = cases::made();
    recorded(&mut all);
    all
}

fn recorded(all: &mut Vec<Case>) {
    let folder = std::env::var("TRACES")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/traces").to_owned());
    let Ok(entries) = std::fs::read_dir(Path::new(&folder)) else {
        return;
    };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let Some(short) = name.strip_suffix(".csv.gz") else {
            continue;
        };
        let trace = match std::fs::read(&path)
            .map_err(Into::into)
            .and_then(|bytes| Trace::parse(short, &bytes))
        {
            Ok(trace) => trace,
            Err(error) => {
                eprintln!("{}: {error}", path.display());
                continue;
            }
        };
        all.extend(cases::recorded(short, &trace));
    }
}

/// Prints the policies that are behind fixed intervals, and the traces.
fn summary(tables: &[Table]) {
    let mut names: Vec<&str> = Vec::new();
    for row in tables
        .iter()
        .flat_map(|table| &table.rows)
        .filter(|row| row.ahead.is_some())
    {
        if !names.contains(&row.policy.as_str()) {
            names.push(&row.policy);
        }
    }
    for name in names {
        let rows = || {
            tables.iter().filter_map(|table| {
                table
                    .rows
                    .iter()
                    .find(|row| row.policy == name)
                    .map(|row| (table, row))
            })
        };
        let behind: Vec<String> = rows()
            .filter(|(_, row)| row.ahead.is_some_and(|ahead| ahead < -0.0005))
            .map(|(table, row)| format!("{} ({:+.3})", table.trace, row.ahead.unwrap_or_default()))
            .collect();
        println!(
            "{name}: behind on {} of {}: {}",
            behind.len(),
            rows().count(),
            behind.join(", ")
        );
    }
}
