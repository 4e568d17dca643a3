//! Checks and generators of this repository: `cargo xtask COMMAND`. They are in Rust because they
//! analyse crates and Rust sources; `scripts/test.py` runs the tests.

mod circles;
mod generate;
mod imports;
mod layers;
mod licenses;
mod limits;
mod pure;
mod spdx;
mod tidy;
mod workspace;

use std::process::ExitCode;

use anyhow::bail;

const USAGE: &str = "usage: cargo xtask COMMAND
  layers              who imports whom, crates and files, and who owns which heavy dependency
  tidy                house rules that no compiler checks
  licenses            licences of all dependencies, against deny.toml
  generate [--check]  documents that the code writes about itself";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[&str]) -> anyhow::Result<()> {
    let faults = match arguments {
        ["layers"] => {
            let packages = workspace::load()?;
            let mut faults = layers::check(&packages);
            faults.extend(pure::check()?);
            faults.extend(circles::check(&packages)?);
            faults
        }
        ["tidy"] => tidy::check()?,
        ["licenses"] => licenses::check()?,
        ["generate"] => generate::write()?,
        ["generate", "--check"] => generate::check()?,
        _ => bail!("{USAGE}"),
    };
    if faults.is_empty() {
        return Ok(());
    }
    bail!("{}\n{} fault(s)", faults.join("\n"), faults.len())
}
