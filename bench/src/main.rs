//! `make bench`: the figures of barograph beside those of its peers, from one run on one machine.
//!
//! The program prints a table and writes `target/bench.json`. A case can also be run alone, and
//! then replaces its own rows in that file: `cargo run --release -p barograph-bench --
//! read.latest`. With `--table` the program prints the file as Markdown and measures nothing; with
//! `--events` it prints the page of file events. Nothing here asserts a time.

#![expect(
    clippy::disallowed_methods,
    reason = "benchmarks measure the system's time"
)]

mod cases;
mod events_page;
mod http;
mod measure;
mod peers;
mod report;
mod scratch;
mod table;

use std::process::ExitCode;

use report::Report;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // Helper processes of the cases run this program again.
    if let Some(role) = arguments.first().and_then(|a| a.strip_prefix("--role=")) {
        return cases::role(role, &arguments[1..]);
    }
    if arguments == ["--table"] {
        return ended(table::print());
    }
    if arguments == ["--events"] {
        return ended(events_page::print());
    }
    let wanted =
        |id: &str| arguments.is_empty() || arguments.iter().any(|a| id.starts_with(a.as_str()));
    let mut report = Report::begin(arguments.is_empty());
    for (id, case) in cases::ALL {
        if !wanted(id) {
            continue;
        }
        eprintln!("{id} …");
        if let Err(error) = case(&mut report) {
            report.failed(id, &error);
        }
    }
    ended(report.finish())
}

fn ended(done: Result<(), report::Fault>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}
