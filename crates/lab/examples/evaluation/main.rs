//! Writes `docs/evaluation/forecast.md` and its figures anew: `make forecast-evaluation`.
//!
//!     cargo run --release -p barograph-lab --example evaluation -- \
//!         --selector FILE [--traces DIR…] [--docs DIR]
//!
//! FILE is the output of `barograph-forecast --example selector`. The template is `forecast.md`
//! beside this file; names in double braces there are replaced here. Everything but times is the
//! same in each run.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use barograph_lab::evaluation::{Evaluation, EvaluationInputs};
use barograph_lab::{Trace, fill};

const TEMPLATE: &str = include_str!("forecast.md");
const CRATE: &str = env!("CARGO_MANIFEST_DIR");

struct Arguments {
    traces: Vec<PathBuf>,
    selector: Option<PathBuf>,
    docs: PathBuf,
}

fn main() -> ExitCode {
    match arguments().and_then(|arguments| write(&arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("{fault}");
            ExitCode::FAILURE
        }
    }
}

fn arguments() -> Result<Arguments, String> {
    let mut arguments = Arguments {
        traces: Vec::new(),
        selector: None,
        docs: Path::new(CRATE).join("../../docs"),
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or(format!("{word}: of what?"))?;
        match word.as_str() {
            "--traces" => arguments.traces.push(value.into()),
            "--selector" => arguments.selector = Some(value.into()),
            "--docs" => arguments.docs = value.into(),
            _ => return Err(format!("{word}: it is --traces, --selector or --docs")),
        }
    }
    if arguments.traces.is_empty() {
        arguments.traces.push(Path::new(CRATE).join("traces"));
    }
    Ok(arguments)
}

#[expect(
    clippy::disallowed_methods,
    reason = "measures what models and policies cost"
)]
fn write(arguments: &Arguments) -> Result<(), String> {
    let inputs = inputs(arguments)?;
    let begun = Instant::now();
    let mut watch = || begun.elapsed().as_nanos() as u64;
    let evaluation = Evaluation::of(&inputs, &mut watch).map_err(|error| error.to_string())?;
    let text = fill(TEMPLATE, &evaluation.texts).map_err(|error| error.to_string())?;
    save(
        &arguments.docs.join("evaluation/forecast.md"),
        text.as_bytes(),
    )?;
    for (name, bytes) in &evaluation.images {
        save(&arguments.docs.join("images").join(name), bytes)?;
    }
    Ok(())
}

fn inputs(arguments: &Arguments) -> Result<EvaluationInputs, String> {
    let mut paths = Vec::new();
    for folder in &arguments.traces {
        let entries = std::fs::read_dir(folder).map_err(|error| fault(folder, &error))?;
        paths.extend(entries.flatten().map(|entry| entry.path()));
    }
    paths.sort();
    let mut traces = Vec::new();
    for path in paths {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        let Some(name) = file.strip_suffix(".csv.gz") else {
            continue;
        };
        let trace = Trace::parse(name, &read(&path)?).map_err(|error| fault(&path, &error))?;
        traces.push((name.to_owned(), trace));
    }
    let selector = match &arguments.selector {
        Some(path) => String::from_utf8_lossy(&read(path)?).into_owned(),
        None => String::new(),
    };
    let lstm = Path::new(CRATE).join("data/lstm.json");
    let lstm = match std::fs::read(&lstm) {
        Ok(bytes) => Some(serde_json::from_slice(&bytes).map_err(|error| fault(&lstm, &error))?),
        Err(_) => None,
    };
    Ok(EvaluationInputs {
        traces,
        selector,
        lstm,
        machine: machine(),
    })
}

/// The number of processors, and the load averages of the last minutes.
fn machine() -> String {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: Vec<&str> = load.split(' ').take(3).collect();
    format!(
        "{processors} processors, load over the last 1, 5 and 15 minutes {}",
        load.join(", ")
    )
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| fault(path, &error))
}

fn save(path: &Path, bytes: &[u8]) -> Result<(), String> {
    std::fs::write(path, bytes).map_err(|error| fault(path, &error))
}

fn fault(path: &Path, error: &dyn std::fmt::Display) -> String {
    format!("{}: {error}", path.display())
}
