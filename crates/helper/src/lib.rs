//! What `barograph-helper` does: reads one request, runs one program of a fixed list,
//! answers, and ends. It stands alone because it is the only code of ours that runs
//! as root: it imports no crate of ours, so that what must be trusted is what lies in this folder.
//!
//! # Protocol
//!
//! Standard input has one line, `VERB` or `VERB ARGUMENT`, of at most [`REQUEST_BYTES_MAX`] bytes.
//! Standard output gets the line `ok` and then what the program printed, or a line `error: REASON`.
//! Both are a socket when systemd starts it (`Accept=yes`), pipes when sudo or the agent does.
//!
//! # What it relies on
//!
//! * Verbs, programs, their arguments and what they read are constants ([`verbs::VERBS`]); the one
//!   word that a request may add is the name of a whole disk that `/sys/block` has.
//! * A program and every folder above it are root's and nobody else may write them.
//! * A program gets an environment of three variables, `/` as its directory, no descriptor but its
//!   three pipes, a bound on time and output, and a process group that is killed as a whole. Whoever
//!   started the helper (systemd, sudo, root) decides what other descriptors there are at all; all
//!   that are opened here are closed on exec.
//! * One user has at most [`REQUESTS_PER_USER_MAX`] requests at once; what is asked of a disk, or of the node, is
//!   asked once at a time, and its answer stays for those who ask again soon ([`verbs::Verb::fresh`]).
//! * Nothing can gain privileges below it (`PR_SET_NO_NEW_PRIVS`), and it refuses to be setuid.

mod answer;
mod request;
mod run;
mod shares;
pub mod verbs;
mod vet;

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

pub use answer::write as write_answer;
pub use request::REQUEST_BYTES_MAX;
pub use run::OUTPUT_BYTES_MAX;
pub use shares::REQUESTS_PER_USER_MAX;
pub use vet::vet;

use run::Deadline;
use shares::{Answer, Subject};
use verbs::Verb;

/// How long each part may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Until the request is whole.
    pub request: Duration,
    /// Until others who ask the same are done, and the program has ended.
    pub run: Duration,
    /// Until the asker has taken the answer.
    pub answer: Duration,
}

impl Limits {
    /// What the real helper keeps. The agent, which takes no time to ask, waits for 30 s: longer than
    /// all this and the end of a killed program take.
    pub const REAL: Self = Self {
        request: Duration::from_secs(3),
        run: Duration::from_secs(20),
        answer: Duration::from_secs(5),
    };
}

/// How long the request of who is refused is waited for, so that he reads why: askers send it at once, and who
/// does not keeps no connection.
const REFUSED_REQUEST_WAIT: Duration = Duration::from_millis(100);

/// Decides whether a program may be run, and says which file that really is.
pub type Vet = fn(&std::path::Path) -> Result<PathBuf, String>;

/// The helper and all that it relies on; tests give it other programs, never the environment.
#[derive(Clone, Debug)]
pub struct Helper {
    /// What can be asked.
    pub verbs: &'static [Verb],
    /// Where `/sys` is.
    pub sys: PathBuf,
    /// Where helpers keep what they share: locks, and answers for a moment.
    pub shares: PathBuf,
    /// Which programs may be run.
    pub vet: Vet,
    /// How long each part may take.
    pub limits: Limits,
}

impl Helper {
    /// Of this machine.
    pub fn real() -> Self {
        Self {
            verbs: verbs::VERBS,
            sys: PathBuf::from("/sys"),
            shares: PathBuf::from("/run/barograph-helper"),
            vet,
            limits: Limits::REAL,
        }
    }

    /// Reads one request and writes its answer; whether the answer was `ok` and was taken.
    pub fn serve(&self, input: impl AsFd, output: impl AsFd) -> bool {
        let place = shares::place(&self.shares, &input);
        let answer = match &place {
            Ok(_held) => self.answer(input),
            Err(reason) => {
                // A request that is left unread when the socket closes would take the answer with it.
                let _ = request::read(input, REFUSED_REQUEST_WAIT);
                Err(reason.clone())
            }
        };
        write_answer(output, &answer, self.limits.answer) && answer.is_ok()
    }

    fn answer(&self, input: impl AsFd) -> Answer {
        let line = request::read(input, self.limits.request)?;
        let (verb, argument) = request::parse(&line, self.verbs)?;
        let device = match verb.takes_device {
            true => Some(request::device(argument, &self.sys)?),
            false if argument.is_empty() => None,
            false => return Err(format!("{} takes no argument", verb.name)),
        };
        let name = match argument {
            "" => verb.name.to_owned(),
            // A checked name of a disk: it has no dot and no slash.
            disk => format!("{}.{disk}", verb.name),
        };
        let deadline = Deadline::after(self.limits.run);
        let subject = Subject::hold(&self.shares, &name, deadline)?;
        if let Some(answer) = subject.kept(verb.fresh) {
            return answer;
        }
        let answer = run::run(&verb.program, device.as_deref(), self.vet, deadline);
        subject.keep(&answer);
        answer
    }
}
