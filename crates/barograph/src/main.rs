//! `baro`: the command line of barograph. Arguments, output and exit codes; everything else is in
//! the libraries.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
