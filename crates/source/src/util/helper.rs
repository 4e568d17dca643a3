//! The client of the privileged helper. The helper is reached by a socket on which systemd listens,
//! else by one command (sudo) that the configuration names, else, if the agent is root, by running
//! its program.
//!
//! A request is `VERB ARGUMENT` on one line; the answer is a line `ok` with the requested text
//! after it, or a line `error: REASON` (`crates/helper`).
#![expect(
    clippy::disallowed_methods,
    reason = "real time is what bounds a real program; no value depends on it"
)]

use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::util::command::{
    Commands, OUTPUT_BYTES_MAX, Refusal, collect, shown, step, timespec, trusted,
};

/// Longest wait for an answer of the helper, for any request: it ends by itself in less time
/// (`crates/helper`, `Limits`). A client that gives up earlier may kill the helper, but not the
/// program that the helper runs.
pub(crate) const HELPER_TIMEOUT: Duration = Duration::from_secs(30);
/// The remedy where no helper answers.
pub(crate) const REMEDY: &str =
    "install barograph-helper and enable barograph-helper.socket (docs/guide/security.md)";
/// Path at which the helper's program is installed.
const INSTALLED: &str = "/usr/libexec/barograph/barograph-helper";

/// The way to the privileged helper, which some sources need for data that only root may read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HelperConfig {
    /// The socket on which systemd listens for the helper; empty: none.
    pub socket: PathBuf,
    /// The command that starts the helper where nothing listens on the socket, such as
    /// `["/usr/bin/sudo", "-n", "/usr/libexec/barograph/barograph-helper"]`; empty: none. An agent
    /// that runs as root needs none.
    pub command: Vec<String>,
}

impl Default for HelperConfig {
    fn default() -> Self {
        Self {
            // Not in the agent's run directory, which is removed when the agent stops.
            socket: PathBuf::from("/run/barograph-helper.sock"),
            command: Vec::new(),
        }
    }
}

impl Commands {
    /// The helper's answer to a verb with its argument, within [`HELPER_TIMEOUT`]. `recording` is
    /// used as in [`Commands::run`].
    pub(crate) fn ask_helper(
        &self,
        helper: &HelperConfig,
        verb: &str,
        argument: &str,
        recording: &str,
    ) -> Result<Vec<u8>, Refusal> {
        if !self.is_real() {
            return self.play(recording);
        }
        let request = match argument.is_empty() {
            true => format!("{verb}\n"),
            false => format!("{verb} {argument}\n"),
        };
        let refusal = match connect(&helper.socket) {
            Ok(stream) => return over_socket(stream, &request),
            Err(refusal @ (Refusal::Absent | Refusal::Denied(_))) => refusal,
            Err(failed) => return Err(failed),
        };
        match (helper.command.split_first(), own_program()) {
            (Some((program, rest)), _) => started(Path::new(program), rest, &request),
            (None, Some(program)) => started(&program, &[], &request),
            (None, None) => Err(refusal),
        }
    }
}

/// The helper's program, if the agent is root.
pub(crate) fn own_program() -> Option<PathBuf> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let beside = std::env::current_exe().ok();
    let beside = beside.and_then(|exe| Some(exe.parent()?.join("barograph-helper")));
    let places = [Some(PathBuf::from(INSTALLED)), beside];
    places.into_iter().flatten().find(|place| place.is_file())
}

/// Connects to the socket without waiting: a full queue of connections is a failure.
pub(crate) fn connect(socket: &Path) -> Result<UnixStream, Refusal> {
    let failed = |errno: Errno| Refusal::Failed(format!("{}: {errno}", socket.display()));
    if socket.as_os_str().is_empty() {
        return Err(Refusal::Absent);
    }
    let address = SocketAddrUnix::new(socket).map_err(failed)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let fd = fd.map_err(failed)?;
    rustix::net::connect(&fd, &address).map_err(|errno| match errno {
        Errno::NOENT | Errno::CONNREFUSED | Errno::NOTDIR => Refusal::Absent,
        Errno::ACCESS | Errno::PERM => Refusal::Denied(format!(
            "{} is not for this user: join its group",
            socket.display()
        )),
        errno => failed(errno),
    })?;
    // The listener must be root or this user: any other could give false answers.
    let peer = rustix::net::sockopt::socket_peercred(&fd).map_err(failed)?;
    match peer.uid.is_root() || peer.uid == rustix::process::geteuid() {
        true => Ok(UnixStream::from(fd)),
        false => Err(Refusal::Failed(format!(
            "{} is not root's: nothing is asked there",
            socket.display()
        ))),
    }
}

fn over_socket(mut stream: UnixStream, request: &str) -> Result<Vec<u8>, Refusal> {
    let deadline = Instant::now() + HELPER_TIMEOUT;
    let failed = |e: std::io::Error| Refusal::Failed(e.to_string());
    stream.write_all(request.as_bytes()).map_err(failed)?;
    stream.shutdown(std::net::Shutdown::Write).map_err(failed)?;
    let mut answer = Vec::new();
    let mut open = Some(stream);
    while let Some(stream) = &open {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Refusal::Failed("the helper took too long".to_owned()));
        }
        let mut fds = [PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::IN)];
        let ready = match poll(&mut fds, Some(&timespec(left))) {
            Ok(ready) => ready > 0,
            Err(Errno::INTR) => false,
            Err(errno) => return Err(Refusal::Failed(errno.to_string())),
        };
        if ready && step(&mut open, &mut answer, usize::MAX)? {
            open = None;
        }
        if answer.len() > OUTPUT_BYTES_MAX {
            return Err(Refusal::Failed("the helper said too much".to_owned()));
        }
    }
    parse_answer(&answer)
}

fn started(program: &Path, arguments: &[String], request: &str) -> Result<Vec<u8>, Refusal> {
    if !program.is_absolute() {
        let reason = format!("{} is no absolute path", program.display());
        return Err(Refusal::Denied(reason));
    }
    let mut command = trusted(program)?;
    command.args(arguments);
    let ended = collect(command, request.as_bytes(), HELPER_TIMEOUT)?;
    // The helper's own answer states why it failed; the command that starts it has only an exit
    // status and standard error.
    match ended.output.starts_with(b"error: ") || ended.status.success() {
        true => parse_answer(&ended.output),
        false => ended.judge(),
    }
}

/// The text of an answer.
pub(crate) fn parse_answer(answer: &[u8]) -> Result<Vec<u8>, Refusal> {
    let end = answer.iter().position(|b| *b == b'\n');
    let (first, rest) = match end {
        Some(end) => (&answer[..end], &answer[end + 1..]),
        None => (answer, &answer[answer.len()..]),
    };
    match (first, first.strip_prefix(b"error: ")) {
        (b"ok", _) if end.is_some() => Ok(rest.to_vec()),
        (_, Some(reason)) => {
            let reason = format!("the helper says: {}", shown(reason));
            Err(Refusal::Failed(reason))
        }
        _ => Err(Refusal::Failed(
            "the helper's answer is cut or not one".to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::util::file::SysRoot;

    /// The request that a socket with this answer receives, and the result of asking it.
    fn ask(answer: &'static [u8]) -> (String, Result<Vec<u8>, Refusal>) {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        let server = std::thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            let mut request = String::new();
            stream.read_to_string(&mut request).unwrap();
            let _ = stream.write_all(answer);
            request
        });
        let helper = HelperConfig {
            socket,
            ..Default::default()
        };
        let commands = Commands::new(&SysRoot::new(Path::new("/")), Duration::from_secs(20));
        let got = commands.ask_helper(&helper, "smart", "sda", "smartctl.sda");
        (server.join().unwrap(), got)
    }

    #[test]
    fn answers() {
        let (request, got) = ask(b"ok\n{}\n");
        assert_eq!((&*request, got), ("smart sda\n", Ok(b"{}\n".to_vec())));
        assert_eq!(ask(b"ok\n").1, Ok(Vec::new()));
        for (answer, why) in [
            (
                &b"error: no such verb\n"[..],
                "the helper says: no such verb",
            ),
            (b"error: \xff\x1b[2J\n", "the helper says: \\xff\\x1b[2J"),
            (b"", "cut"),
            (b"ok", "cut"),
            (b"HTTP/1.1 200 OK\n", "not one"),
        ] {
            let refusal = ask(answer).1.unwrap_err();
            let is = matches!(&refusal, Refusal::Failed(reason) if reason.contains(why));
            assert!(is, "{refusal:?} lacks {why}");
        }
    }

    #[test]
    fn without_a_socket_the_command_is_started() {
        let dir = tempfile::tempdir().unwrap();
        let start = |command: &[&str]| {
            let helper = HelperConfig {
                socket: dir.path().join("nobody"),
                command: command.iter().map(|word| (*word).to_owned()).collect(),
            };
            // The timeout of a source's own programs does not apply to the helper.
            let commands = Commands::new(&SysRoot::new(Path::new("/")), Duration::from_millis(1));
            commands.ask_helper(&helper, "gpfs", "", "gpfs")
        };
        let got = start(&["/bin/sh", "-c", "sleep 0.1; echo ok; cat"]);
        assert_eq!(got, Ok(b"gpfs\n".to_vec()));
        let check = |command: &[&str], why: &str| {
            let refusal = start(command).unwrap_err().to_string();
            assert!(refusal.contains(why), "{refusal} lacks {why}");
        };
        check(
            &["/bin/sh", "-c", "echo 'error: not here'; exit 1"],
            "the helper says: not here",
        );
        check(
            &[
                "/bin/sh",
                "-c",
                "echo 'sudo: a password is required' >&2; exit 1",
            ],
            "a password",
        );
        check(&["/bin/sh", "-c", "echo ok; exit 1"], "exit status: 1");
        check(&["sudo", "-n"], "no absolute path");
        check(&["/nonexistent/sudo"], "No such file");
        let path = dir.path().join("anybodys");
        std::fs::write(&path, "#!/bin/sh\necho ok\n").unwrap();
        check(&[path.to_str().unwrap()], "others than root");
    }
}
