//! The library of `barograph-helper`, which reads one request, runs one program of a fixed list or
//! opens one fanotify group, answers, and ends. It is a crate of its own because it is the only
//! code of this project that runs as root: it imports no other crate of the project, so that the
//! code that must be trusted is in this folder.
//!
//! # Protocol
//!
//! Standard input has one line, `VERB` or `VERB ARGUMENT`, of at most [`REQUEST_BYTES_MAX`] bytes.
//! Standard output gets the line `ok` and then the output of the program, or a line `error:
//! REASON`. Both are a socket if systemd starts the helper (`Accept=yes`), and pipes if sudo or the
//! agent does. The answer to `fanotify` has a descriptor attached to the line `ok` (`SCM_RIGHTS`),
//! which needs a socket.
//!
//! # Security
//!
//! * Verbs, programs, their arguments and their input are constants ([`verbs::VERBS`]). The only
//!   word that a request may add is the name of a whole disk in `/sys/block`, or a device number.
//! * A fanotify group is opened for a file system that root has listed ([`MarkPlaces::list`]), and
//!   marks the mount point of the list: no path comes from outside.
//! * A program and every folder above it belong to root, and nobody else may write them.
//! * A program gets an environment of three variables, `/` as its directory, no descriptor but its
//!   three pipes, a bound on time and output, and a process group that is killed as a whole. The
//!   process that starts the helper (systemd, sudo, root) decides which other descriptors exist;
//!   all that are opened here are closed on exec.
//! * One user has at most [`REQUESTS_PER_USER_MAX`] requests at once. Only one request at a time
//!   runs for a disk, or for the node, and its answer is kept for later requesters for a while
//!   ([`verbs::Verb::fresh`]).
//! * No process can gain privileges below it (`PR_SET_NO_NEW_PRIVS`), and it refuses to be setuid.

mod answer;
mod fanotify;
mod request;
mod run;
mod shares;
pub mod verbs;
mod vet;

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

pub use answer::write as write_answer;
pub use fanotify::{MarkPlaces, PlaceVet};
pub use request::REQUEST_BYTES_MAX;
pub use run::OUTPUT_BYTES_MAX;
pub use shares::REQUESTS_PER_USER_MAX;
pub use vet::{vet, vet_file, vet_mount};

use fanotify::MarkedGroup;
use run::Deadline;
use shares::{HelperAnswer, RequestLock};
use verbs::HelperVerb;

/// Timeouts of the parts of a request.
#[derive(Clone, Copy, Debug)]
pub struct HelperLimits {
    /// Time until the request is complete.
    pub request: Duration,
    /// Time until other requests for the same are done, and the program has ended.
    pub run: Duration,
    /// Time until the requester has read the answer.
    pub answer: Duration,
}

impl HelperLimits {
    /// The limits of the real helper. The agent, whose requests take no time, waits for 30 s, which
    /// is longer than all of these and the end of a killed program together.
    pub const REAL: Self = Self {
        request: Duration::from_secs(3),
        run: Duration::from_secs(20),
        answer: Duration::from_secs(5),
    };
}

/// Time to wait for a request that is refused, so that the requester reads the reason. Requesters
/// send it at once, and one that does not cannot hold the connection.
const REFUSED_REQUEST_WAIT: Duration = Duration::from_millis(100);

/// What a request gives.
enum HelperOutput {
    Text(Vec<u8>),
    Group(MarkedGroup),
}

/// A function that decides whether a program may be run, and returns its real path.
pub type ProgramVet = fn(&std::path::Path) -> Result<PathBuf, String>;

/// The helper with everything that it depends on. Tests replace programs here, never by the
/// environment.
#[derive(Clone, Debug)]
pub struct Helper {
    /// The verbs that may be requested.
    pub verbs: &'static [HelperVerb],
    /// Path of `/sys`.
    pub sys: PathBuf,
    /// Directory of the files that helpers share: locks, and answers for a while.
    pub shares: PathBuf,
    /// Decides which programs may be run.
    pub vet: ProgramVet,
    /// Decides which file systems may be marked.
    pub marks: MarkPlaces,
    /// Timeouts of the parts of a request.
    pub limits: HelperLimits,
}

impl Helper {
    /// The helper of this machine.
    pub fn real() -> Self {
        Self {
            verbs: verbs::VERBS,
            sys: PathBuf::from("/sys"),
            shares: PathBuf::from("/run/barograph-helper"),
            vet,
            marks: MarkPlaces {
                list: PathBuf::from("/etc/barograph/fanotify"),
                mounts: PathBuf::from("/proc/self/mountinfo"),
                vet_list: vet_file,
                vet_mount,
            },
            limits: HelperLimits::REAL,
        }
    }

    /// Reads one request and writes its answer. Returns whether the answer was `ok` and was
    /// accepted.
    pub fn serve(&self, input: impl AsFd, output: impl AsFd) -> bool {
        let place = shares::place(&self.shares, &input);
        let answer = match &place {
            Ok(_held) => self.output(input),
            Err(reason) => {
                // If a request were left unread when the socket closes, the answer would be lost
                // with it.
                let _ = request::read(input, REFUSED_REQUEST_WAIT);
                Err(reason.clone())
            }
        };
        let answer = match answer {
            Ok(HelperOutput::Text(text)) => Ok(text),
            Ok(HelperOutput::Group(MarkedGroup { group, lacks })) => {
                match answer::hand_over(&output, group.as_fd(), &lacks, self.limits.answer) {
                    Ok(()) => return true,
                    Err(reason) => Err(reason),
                }
            }
            Err(reason) => Err(reason),
        };
        write_answer(output, &answer, self.limits.answer) && answer.is_ok()
    }

    fn output(&self, input: impl AsFd) -> Result<HelperOutput, String> {
        let line = request::read(input, self.limits.request)?;
        match request::device_number(&line)? {
            Some(device) => self.marks.open(device).map(HelperOutput::Group),
            None => self.answer(&line).map(HelperOutput::Text),
        }
    }

    fn answer(&self, line: &[u8]) -> HelperAnswer {
        let (verb, argument) = request::parse(line, self.verbs)?;
        let device = match verb.takes_device {
            true => Some(request::device(argument, &self.sys)?),
            false if argument.is_empty() => None,
            false => return Err(format!("{} takes no argument", verb.name)),
        };
        let name = match argument {
            "" => verb.name.to_owned(),
            // The name of the disk was checked: it has no dot and no slash.
            disk => format!("{}.{disk}", verb.name),
        };
        let deadline = Deadline::after(self.limits.run);
        let subject = RequestLock::hold(&self.shares, &name, deadline)?;
        if let Some(answer) = subject.kept(verb.fresh) {
            return answer;
        }
        let answer = run::run(&verb.program, device.as_deref(), self.vet, deadline);
        subject.keep(&answer);
        answer
    }
}
