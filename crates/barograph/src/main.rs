//! `baro`: the command line of barograph. Arguments, output and exit codes; everything else is in
//! the libraries.

mod cli;
mod heap;

use std::process::ExitCode;

fn main() -> ExitCode {
    heap::settle();
    cli::main()
}
