//! `barograph-helper`: answers one request on standard input and ends. See the library for details.

use std::process::ExitCode;

use barograph_helper::{Helper, verbs};

const USAGE: &str = "\
usage: barograph-helper

Reads one line `VERB` or `VERB ARGUMENT` from standard input, answers on standard output with a line
`ok` and what was asked for, or a line `error: REASON`, and ends. It is started by a systemd socket,
by sudo, or by an agent that is root; it is never setuid.

  --verbs     what can be asked, and what is done for it
  --version   the version
  --help      this text
";

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(|a| a.to_str()).collect();
    match arguments[..] {
        [] => serve(),
        [Some("--help" | "-h")] => say(USAGE),
        [Some("--version" | "-V")] => say(concat!(
            "barograph-helper ",
            env!("CARGO_PKG_VERSION"),
            "\n"
        )),
        [Some("--verbs")] => say(&verbs::table(verbs::VERBS)),
        _ => {
            eprint!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn serve() -> ExitCode {
    let helper = Helper::real();
    if is_raised() {
        let answer =
            Err("the helper is installed setuid or setgid and refuses to run so".to_owned());
        barograph_helper::write_answer(std::io::stdout(), &answer, helper.limits.answer);
        return ExitCode::FAILURE;
    }
    // If the kernel is too old for this, programs are still vetted and from the fixed list.
    let _ = rustix::thread::set_no_new_privs(true);
    match helper.serve(std::io::stdin(), std::io::stdout()) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Whether the file is setuid or setgid, so that this process has rights that its parent lacks.
fn is_raised() -> bool {
    use rustix::process::{getegid, geteuid, getgid, getuid};
    getuid() != geteuid() || getgid() != getegid()
}

fn say(text: &str) -> ExitCode {
    use std::io::Write;
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
