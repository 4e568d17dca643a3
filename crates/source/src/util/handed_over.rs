//! Descriptors that the privileged helper opens and hands over (`SCM_RIGHTS`): groups of fanotify,
//! for the agent's watches of files.
#![expect(
    clippy::disallowed_methods,
    reason = "real time is what bounds a real program; no value depends on it"
)]

use std::io::{IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::util::command::{Refusal, run_beside, timespec, trusted};
use crate::util::helper::{
    HELPER_TIMEOUT, HelperConfig, REMEDY, connect, own_program, parse_answer,
};

/// Most bytes of an answer with a descriptor.
const ANSWER_BYTES_MAX: usize = 4_096;

/// A fanotify group that the helper has opened and marked.
#[derive(Debug)]
pub struct HelperGroup {
    /// The group, which is closed on exec.
    pub group: OwnedFd,
    /// What the group lacks, as texts; empty if it has everything.
    pub lacks: Vec<String>,
}

impl HelperGroup {
    /// Asks the helper for a group with a mark on the file system with this device number. It may
    /// wait for as long as any request to the helper.
    ///
    /// # Errors
    ///
    /// No helper is there, it refuses, or it fails; the text says why.
    pub fn ask(helper: &HelperConfig, (major, minor): (u32, u32)) -> Result<Self, String> {
        let request = format!("fanotify {major}:{minor}\n");
        let answer = ask(helper, &request).map_err(|refusal| match refusal {
            Refusal::Absent => format!("there is no privileged helper: {REMEDY}"),
            refusal => refusal.to_string(),
        })?;
        let (text, descriptor) = answer;
        let lines = String::from_utf8_lossy(&text);
        Ok(Self {
            group: descriptor.ok_or("the helper has sent no descriptor")?,
            lacks: lines.lines().map(str::to_owned).collect(),
        })
    }
}

/// The text of an answer, and the descriptor that came with it.
type Answer = (Vec<u8>, Option<OwnedFd>);

fn ask(helper: &HelperConfig, request: &str) -> Result<Answer, Refusal> {
    let refusal = match connect(&helper.socket) {
        Ok(stream) => return over_socket(stream, request),
        Err(refusal @ (Refusal::Absent | Refusal::Denied(_))) => refusal,
        Err(failed) => return Err(failed),
    };
    match (helper.command.split_first(), own_program()) {
        (Some((program, rest)), _) => started(Path::new(program), rest, request),
        (None, Some(program)) => started(&program, &[], request),
        (None, None) => Err(refusal),
    }
}

/// Starts the helper with one end of a pair of sockets as its standard input and output.
fn started(program: &Path, arguments: &[String], request: &str) -> Result<Answer, Refusal> {
    if !program.is_absolute() {
        let reason = format!("{} is no absolute path", program.display());
        return Err(Refusal::Denied(reason));
    }
    let failed = |e: std::io::Error| Refusal::Failed(e.to_string());
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    let (input, output) = (theirs.try_clone().map_err(failed)?, theirs);
    let mut command = trusted(program)?;
    command.args(arguments);
    command.stdin(Stdio::from(OwnedFd::from(input)));
    command.stdout(Stdio::from(OwnedFd::from(output)));
    run_beside(command, HELPER_TIMEOUT, || over_socket(ours, request))
}

fn over_socket(mut stream: UnixStream, request: &str) -> Result<Answer, Refusal> {
    let deadline = Instant::now() + HELPER_TIMEOUT;
    // A helper that has ended already may have said why.
    let _ = stream.write_all(request.as_bytes());
    let _ = stream.shutdown(Shutdown::Write);
    let (mut answer, mut descriptor) = (Vec::new(), None);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Refusal::Failed("the helper took too long".to_owned()));
        }
        let mut fds = [PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::IN)];
        match poll(&mut fds, Some(&timespec(left))) {
            Ok(0) | Err(Errno::INTR) => continue,
            Ok(_) => {}
            Err(errno) => return Err(Refusal::Failed(errno.to_string())),
        }
        match receive(&stream, &mut answer, &mut descriptor) {
            // It ends so if the helper was killed before it had read the request.
            Ok(0) | Err(Errno::CONNRESET) => break,
            Ok(_) if answer.len() > ANSWER_BYTES_MAX => {
                return Err(Refusal::Failed("the helper said too much".to_owned()));
            }
            Ok(_) | Err(Errno::INTR | Errno::AGAIN) => {}
            Err(errno) => return Err(Refusal::Failed(errno.to_string())),
        }
    }
    Ok((parse_answer(&answer)?, descriptor))
}

/// Receives once: appends bytes, and keeps the last descriptor. A descriptor for which this process
/// has no room is dropped by the kernel, as if none had been sent.
fn receive(
    stream: &UnixStream,
    answer: &mut Vec<u8>,
    descriptor: &mut Option<OwnedFd>,
) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut attached = RecvAncillaryBuffer::new(&mut space);
    let mut piece = [0; 1_024];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let message = recvmsg(
        stream,
        &mut [IoSliceMut::new(&mut piece)],
        &mut attached,
        flags,
    )?;
    for one in attached.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = one {
            descriptors.for_each(|one| *descriptor = Some(one));
        }
    }
    answer.extend_from_slice(&piece[..message.bytes]);
    Ok(message.bytes)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{IoSlice, Read};
    use std::os::unix::net::UnixListener;

    use rustix::io::{FdFlags, fcntl_getfd};
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

    use super::*;

    /// What asking gives if a socket answers so, with a descriptor of this file.
    fn asked(answer: &'static [u8], file: Option<File>) -> Result<HelperGroup, String> {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        let server = std::thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            let mut request = String::new();
            stream.read_to_string(&mut request).unwrap();
            assert_eq!(request, "fanotify 8:17\n");
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut attached = SendAncillaryBuffer::new(&mut space);
            let descriptors = [file.as_ref().map(AsFd::as_fd)];
            let descriptors: Vec<_> = descriptors.into_iter().flatten().collect();
            if !descriptors.is_empty() {
                assert!(attached.push(SendAncillaryMessage::ScmRights(&descriptors)));
            }
            let bytes = [IoSlice::new(answer)];
            let _ = sendmsg(&stream, &bytes, &mut attached, SendFlags::NOSIGNAL);
        });
        let helper = HelperConfig {
            socket,
            ..HelperConfig::default()
        };
        let group = HelperGroup::ask(&helper, (8, 17));
        server.join().unwrap();
        group
    }

    #[test]
    fn a_descriptor_comes_with_its_answer_and_is_closed_on_exec() {
        let file = || Some(File::open("/dev/null").unwrap());
        let group = asked(b"ok\nno errors\n", file()).unwrap();
        assert_eq!(group.lacks, ["no errors"]);
        assert_eq!(fcntl_getfd(&group.group).unwrap(), FdFlags::CLOEXEC);
        assert_eq!(asked(b"ok\n", file()).unwrap().lacks, [""; 0]);
        for (answer, file, why) in [
            (&b"ok\n"[..], None, "no descriptor"),
            (b"error: not listed\n", None, "the helper says: not listed"),
            (
                b"error: not listed\n",
                file(),
                "the helper says: not listed",
            ),
            // The helper was killed in the middle.
            (b"", None, "cut"),
            (b"ok", file(), "cut"),
            (&[b'x'; 10_000], None, "too much"),
        ] {
            let reason = asked(answer, file).unwrap_err();
            assert!(reason.contains(why), "{reason} lacks {why}");
        }
    }

    #[test]
    fn a_program_is_started_where_there_is_no_socket() {
        let ask = |command: &[&str]| {
            let helper = HelperConfig {
                socket: "/nonexistent/s".into(),
                command: command.iter().map(|word| (*word).to_owned()).collect(),
            };
            HelperGroup::ask(&helper, (8, 17)).unwrap_err()
        };
        for (command, why) in [
            (
                &["/bin/sh", "-c", "read r; echo \"error: $r\""][..],
                "says: fanotify 8:17",
            ),
            (&["/bin/sh", "-c", "read r; echo ok"], "no descriptor"),
            (&["/bin/sh", "-c", "kill -9 $$"], "cut"),
            (&["sudo", "-n"], "no absolute path"),
            (&["/nonexistent/sudo"], "No such file"),
        ] {
            let reason = ask(command);
            assert!(reason.contains(why), "{reason} lacks {why}");
        }
    }
}
