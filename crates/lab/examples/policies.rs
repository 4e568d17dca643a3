//! Prints what each policy comes to on each trace, beside fixed intervals.
//!
//!     cargo run --release -p barograph-lab --example policies [-- --json] [NAME…]

use std::path::Path;
use std::time::Instant;

use barograph_forecast::Shape;
use barograph_forecast::interval::Bound;
use barograph_lab::suite::{Case, policies};
use barograph_lab::{Family, Hacc, Table, Trace, generate, hacc, renewal_frontier};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let wanted: Vec<&String> = arguments
        .iter()
        .filter(|argument| !argument.starts_with("--"))
        .collect();
    let tables: Vec<Table> = cases()
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

/// What looks alone can do where gaps of 5 to 20 s are equally likely.
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

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for kind in [Hacc::Regular, Hacc::Irregular, Hacc::Unaligned] {
        let trace = hacc(kind, 1800, 1);
        cases.push(Case {
            name: format!("{} (made)", trace.name),
            trace,
            value: 0,
            counter: Some(1),
            bound: Bound::Absolute(100.0),
            shape: Shape::Gauge,
            confidence: 0.99,
        });
    }
    for family in Family::ALL {
        let trace = generate(family, 1800, 1);
        cases.push(Case {
            name: format!("{} (made)", trace.name),
            trace,
            value: 0,
            counter: None,
            bound: Bound::Absolute(20.0),
            shape: Shape::Gauge,
            confidence: 0.99,
        });
    }
    recorded(&mut cases);
    cases
}

fn recorded(cases: &mut Vec<Case>) {
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
        let place = |name: &str| trace.columns.iter().position(|column| column.name == name);
        // Five blocks of a capacity, a megabyte of what was written, half a percent of memory.
        for (column, bound, shape) in [
            ("available", Bound::Absolute(20_000.0), Shape::Gauge),
            ("write_bytes", Bound::Absolute(1_000_000.0), Shape::Counter),
            ("memory_free", Bound::Relative(0.005), Shape::Gauge),
        ] {
            if (column == "memory_free") != short.starts_with("machine") && column != "write_bytes"
            {
                continue;
            }
            let Some(value) = place(column) else { continue };
            cases.push(Case {
                name: format!("{short} {column}"),
                counter: (column == "available")
                    .then(|| place("write_bytes"))
                    .flatten(),
                trace: trace.clone(),
                value,
                bound,
                shape,
                confidence: 0.99,
            });
        }
    }
}

/// Who is behind fixed intervals, where.
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
