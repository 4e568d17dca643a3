//! More of `read.latest`: that a read makes no system call, and what it costs from Python.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Scratch;
use super::read::{handles, start};
use crate::measure::keep;
use crate::report::{Fault, Report};

const READS: u64 = 1_000_000;
const PYTHON: &str = include_str!("latest.py");

/// Counts the system calls of a process that reads a million times, minus those of one that never
/// reads.
pub(super) fn system_calls(report: &mut Report) -> Result<(), Fault> {
    let scratch = Scratch::new("calls")?;
    let mut writer = start(&scratch, "idle")?;
    let counted = || -> Result<Option<(u64, u64)>, Fault> {
        let Some(without) = calls(&scratch, 0)? else {
            return Ok(None);
        };
        Ok(calls(&scratch, READS)?.map(|with| (without, with)))
    };
    match counted()? {
        None => report.skipped(
            "strace",
            "not installed, so that system calls are not counted",
        ),
        Some((without, with)) => {
            let case = format!("system calls of {READS} reads");
            report.row(
                "read.latest",
                &case,
                with as f64 - without as f64,
                "calls",
                &[],
            );
        }
    }
    writer.kill()?;
    writer.wait()?;
    Ok(())
}

/// Returns the number of system calls of a reader that makes so many reads; `None` without strace.
fn calls(scratch: &Scratch, reads: u64) -> Result<Option<u64>, Fault> {
    let summary = scratch.0.join("strace");
    let traced = Command::new("strace")
        .args(["-f", "-c", "-o"])
        .arg(&summary)
        .arg(std::env::current_exe()?)
        .arg("--role=reader")
        .arg(&scratch.0)
        .arg(reads.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match traced {
        Ok(status) if status.success() => {}
        _ => return Ok(None),
    }
    // The last line has the form: 100.00 seconds usecs/call calls [errors] total
    let text = std::fs::read_to_string(summary)?;
    let total = text
        .lines()
        .rfind(|l| l.ends_with("total"))
        .ok_or("no total from strace")?;
    Ok(total.split_whitespace().nth(3).and_then(|t| t.parse().ok()))
}

/// The helper process: opens the segment, reads so many times, and ends.
pub(super) fn reader(arguments: &[String]) -> Result<(), Fault> {
    let [directory, reads] = arguments else {
        return Err("reader DIR READS".into());
    };
    let scratch = std::mem::ManuallyDrop::new(Scratch(directory.into()));
    let handles = handles(&scratch)?;
    for _ in 0..reads.parse::<u64>()? {
        keep(handles[0].latest_f64());
    }
    Ok(())
}

/// Measures the Python package, if it is built.
pub(super) fn python(report: &mut Report) -> Result<(), Fault> {
    let scratch = Scratch::new("python")?;
    let mut writer = start(&scratch, "idle")?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let asked = [root.join(".venv/bin/python"), PathBuf::from("python3")]
        .into_iter()
        .find_map(|python| {
            let output = Command::new(python)
                .args(["-c", PYTHON])
                .arg(&scratch.0)
                .env("PYTHONPATH", root.join("python"))
                .output();
            output.ok().filter(|o| o.status.success())
        });
    writer.kill()?;
    writer.wait()?;
    let Some(output) = asked else {
        report.skipped(
            "Python",
            "the package barograph cannot be imported (make test-python builds it)",
        );
        return Ok(());
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let (value, latest) = text
        .trim()
        .split_once(' ')
        .ok_or("no two numbers from Python")?;
    report.row(
        "read.latest",
        "from Python, Stream.value(), p50",
        value.parse()?,
        "ns",
        &[],
    );
    report.row(
        "read.latest",
        "from Python, Stream.latest(), p50",
        latest.parse()?,
        "ns",
        &[],
    );
    Ok(())
}
