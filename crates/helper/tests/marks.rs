//! Tests of the verb `fanotify`: groups of listed file systems are handed over, and nothing else.

use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use barograph_helper::Helper;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

/// A helper that may mark what a list names.
fn marking(list: &Path) -> Helper {
    let mut helper = Helper::real();
    helper.marks.list = list.to_owned();
    helper.marks.vet_list = |_| Ok(());
    helper
}

/// The request for the file system of a directory.
fn request_for(directory: &str) -> String {
    let device = rustix::fs::stat(directory).unwrap().st_dev;
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    format!("fanotify {major}:{minor}\n")
}

/// The text of an answer, and the descriptors that came with it.
fn received(stream: &UnixStream) -> (String, Vec<OwnedFd>) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut attached = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; 4_096];
    let into = &mut [IoSliceMut::new(&mut bytes)];
    let message = recvmsg(stream, into, &mut attached, RecvFlags::CMSG_CLOEXEC).unwrap();
    let mut descriptors = Vec::new();
    for one in attached.drain() {
        if let RecvAncillaryMessage::ScmRights(sent) = one {
            descriptors.extend(sent);
        }
    }
    let text = String::from_utf8(bytes[..message.bytes].to_vec()).unwrap();
    (text, descriptors)
}

/// A group sees what happens in the listed file system. It takes root, and a file system that can
/// be marked; elsewhere the kernel's refusal is the answer.
#[test]
fn a_group_of_a_listed_file_system_is_handed_over() {
    let dir = tempfile::tempdir().unwrap();
    let list = dir.path().join("list");
    std::fs::write(&list, "# all of this machine\n/\n").unwrap();
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    ours.write_all(request_for("/").as_bytes()).unwrap();
    let is_served = marking(&list).serve(&theirs, &theirs);
    let (text, mut descriptors) = received(&ours);
    if !is_served {
        assert!(text.starts_with("error: the file system of / "), "{text}");
        assert!(descriptors.is_empty());
        return;
    }
    assert!(text.starts_with("ok\n"), "{text}");
    assert_eq!(descriptors.len(), 1, "the group and nothing else");
    let group = descriptors.remove(0);
    let link = std::fs::read_link(format!("/proc/self/fd/{}", group.as_raw_fd())).unwrap();
    assert_eq!(link, Path::new("anon_inode:[fanotify]"));
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    std::fs::write(place.path().join("a name of this test"), "").unwrap();
    let has_name = |bytes: &[u8]| {
        let name = b"a name of this test";
        bytes.windows(name.len()).any(|window| window == name)
    };
    let begin = Instant::now();
    let mut bytes = [0; 65_536];
    if request_for("/var/tmp") != request_for("/") {
        return;
    }
    loop {
        match rustix::io::read(&group, &mut bytes) {
            Ok(count) if has_name(&bytes[..count]) => break,
            _ => std::thread::sleep(Duration::from_millis(2)),
        }
        assert!(begin.elapsed() < Duration::from_secs(60));
    }
}

#[test]
fn what_is_not_listed_and_what_is_no_socket_get_no_descriptor() {
    let dir = tempfile::tempdir().unwrap();
    let list = dir.path().join("list");
    let ask = |helper: &Helper| {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.write_all(request_for("/").as_bytes()).unwrap();
        assert!(!helper.serve(&theirs, &theirs));
        received(&ours)
    };
    let (text, descriptors) = ask(&marking(&list));
    assert!(text.contains("by a line `/` in"), "{text}");
    assert_eq!((text.lines().count(), descriptors.len()), (1, 0));
    // A list that others may write is not believed.
    std::fs::write(&list, "/\n").unwrap();
    let mut helper = marking(&list);
    helper.marks.vet_list = barograph_helper::vet_file;
    let (text, descriptors) = ask(&helper);
    assert!(text.contains("others than root may write"), "{text}");
    assert!(descriptors.is_empty());
    // A pipe takes no descriptor.
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    ours.write_all(request_for("/").as_bytes()).unwrap();
    let (mut answer, pipe) = std::io::pipe().unwrap();
    assert!(!marking(&list).serve(&theirs, &pipe));
    drop(pipe);
    let mut text = String::new();
    answer.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("error: "), "{text}");
}
