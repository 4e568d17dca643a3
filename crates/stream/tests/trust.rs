//! Tests of the trust in run directories: that of another user is not read, mapped or called,
//! unless the user chose it.
//!
//! Only root can act as several users, each on a thread of its own; without root those tests are
//! skipped and print so.

use std::fs::{self, Permissions};
use std::io::{self, Read as _};
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use barograph_stream::calls::{CallsReader, CallsWriter};
use barograph_stream::{
    AgentSocket, HEARTBEAT_AGE_NS_MAX, RunDir, Segment, SegmentConfig, SegmentReader, StreamError,
};
use rustix::process::Uid;

/// The user who reads.
const VICTIM: u32 = 65_534;
/// Another user, who has taken names before that.
const STRANGER: u32 = 12_345;
const ROOT: u32 = 0;

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("left out: only root can act for other users");
    }
    is_root
}

/// Runs `act` on a thread as this user, without any right of root.
fn as_user<T: Send>(uid: u32, act: impl FnOnce() -> T + Send) -> T {
    let become_and_act = || {
        let uid = Uid::from_raw(uid);
        rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
        act()
    };
    std::thread::scope(|scope| scope.spawn(become_and_act).join().unwrap())
}

/// A node's `/dev/shm` and `/run`.
struct Node {
    dir: tempfile::TempDir,
}

impl Node {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        mode(dir.path(), 0o755);
        for (name, bits) in [("shm", 0o1777), ("run", 0o755)] {
            fs::create_dir(dir.path().join(name)).unwrap();
            mode(&dir.path().join(name), bits);
        }
        Self { dir }
    }

    fn shm(&self) -> PathBuf {
        self.dir.path().join("shm")
    }

    fn run(&self) -> PathBuf {
        self.dir.path().join("run")
    }

    fn of_user(&self, uid: u32) -> PathBuf {
        self.shm().join(format!("barograph-{uid}"))
    }

    /// The run directory that a user finds.
    fn find(&self, uid: u32) -> RunDir {
        as_user(uid, || RunDir::find_in(&self.shm(), &self.run()))
    }
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Creates a directory as an agent of this user leaves it, with a scope; this user owns all of it.
fn serve(path: &Path, owner: u32) {
    let run_dir = RunDir::new(path);
    fs::create_dir_all(run_dir.scope("all").path()).unwrap();
    for run_dir in [&run_dir, &run_dir.scope("all")] {
        let config = SegmentConfig::new("n1");
        drop(Segment::create(&run_dir.segment(), config, 1).unwrap());
        run_dir.publish("agent.json", b"{}", 0o644).unwrap();
        CallsWriter::open_or_create(&run_dir.path().join("calls"), 1).unwrap();
    }
    give(path, owner);
}

fn give(path: &Path, owner: u32) {
    for entry in fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => give(&path, owner),
            false => chown(&path, Some(owner), None).unwrap(),
        }
    }
    mode(path, 0o755);
    chown(path, Some(owner), None).unwrap();
}

/// The reasons for which nothing in it is read, by any function.
fn refusals(run_dir: &RunDir) -> Vec<StreamError> {
    let scope = run_dir.scope("all");
    assert!(run_dir.scopes().is_empty());
    vec![
        SegmentReader::of(run_dir).unwrap_err(),
        SegmentReader::of(&scope).unwrap_err(),
        CallsReader::of(&scope).unwrap_err(),
        run_dir.document("agent.json").unwrap_err(),
        run_dir.open().unwrap_err(),
    ]
}

fn is_untrusted(error: &StreamError, of: u32) -> bool {
    matches!(error, StreamError::Untrusted { owner, .. } if *owner == of)
}

#[test]
fn a_name_that_a_stranger_took_is_not_read() {
    if !is_root() {
        return;
    }
    let node = Node::new();
    serve(&node.of_user(VICTIM), STRANGER);
    serve(&node.of_user(ROOT), STRANGER);
    let found = node.find(VICTIM);
    assert_eq!(found.path(), node.of_user(VICTIM));
    let refused = as_user(VICTIM, || refusals(&found));
    for error in refused {
        assert!(is_untrusted(&error, STRANGER), "{error}");
        let text = error.to_string();
        assert!(
            text.contains("belongs to user 12345, not to this user or root"),
            "{text}"
        );
    }
    // Root, whose name was taken as well, is just as careful.
    let found = node.find(ROOT);
    assert!(refusals(&found).iter().all(|e| is_untrusted(e, STRANGER)));
    // The stranger's own agent is trusted by the stranger, and so is a directory that the stranger
    // chose.
    let own = RunDir::new(node.of_user(VICTIM));
    assert_eq!(as_user(VICTIM, || own.scopes().len()), 1);
}

#[test]
fn the_own_agent_comes_before_the_services_and_that_before_roots() {
    if !is_root() {
        return;
    }
    let node = Node::new();
    let service = node.run().join("barograph");
    // The stranger holds the user's own name throughout.
    serve(&node.of_user(VICTIM), STRANGER);
    serve(&node.of_user(ROOT), ROOT);
    assert_eq!(node.find(VICTIM).path(), node.of_user(ROOT));
    // Root has created it for the service's user, whoever that is.
    serve(&service, STRANGER);
    let found = node.find(VICTIM);
    assert_eq!(found.path(), service);
    as_user(VICTIM, || SegmentReader::of(&found).unwrap());
    assert_eq!(as_user(VICTIM, || found.scopes().len()), 1);
    // If others may create directories there, the name proves nothing.
    mode(&node.run(), 0o1777);
    assert_eq!(node.find(VICTIM).path(), node.of_user(ROOT));
    let refused = as_user(VICTIM, || found.open().unwrap_err());
    assert!(matches!(refused, StreamError::Exposed { .. }), "{refused}");
    mode(&node.run(), 0o755);
    fs::remove_dir_all(node.of_user(VICTIM)).unwrap();
    serve(&node.of_user(VICTIM), VICTIM);
    assert_eq!(node.find(VICTIM).path(), node.of_user(VICTIM));
    // Anyone could have written into a directory that its group or all may write to.
    for bits in [0o775, 0o757, 0o1777] {
        mode(&node.of_user(VICTIM), bits);
        assert_eq!(node.find(VICTIM).path(), service);
    }
}

#[test]
fn a_link_counts_where_it_and_what_it_leads_to_do() {
    if !is_root() {
        return;
    }
    let node = Node::new();
    let elsewhere = node.dir.path().join("elsewhere");
    serve(&elsewhere, VICTIM);
    let link = node.of_user(VICTIM);
    for (of_link, of_target, is_taken) in [
        (STRANGER, VICTIM, false),
        (VICTIM, STRANGER, false),
        (VICTIM, VICTIM, true),
        (ROOT, ROOT, true),
    ] {
        let _ = fs::remove_file(&link);
        symlink("../elsewhere", &link).unwrap();
        std::os::unix::fs::lchown(&link, Some(of_link), None).unwrap();
        give(&elsewhere, of_target);
        let found = node.find(VICTIM);
        let opened = as_user(VICTIM, || SegmentReader::of(&found));
        assert_eq!(opened.is_ok(), is_taken, "{of_link} {of_target}");
        if let Err(error) = opened {
            assert!(is_untrusted(&error, STRANGER), "{error}");
        }
    }
}

#[test]
fn a_named_directory_may_be_anyones_but_not_everyones() {
    if !is_root() {
        return;
    }
    let node = Node::new();
    let path = node.dir.path().join("site");
    serve(&path, STRANGER);
    let named = RunDir::new(&path);
    as_user(VICTIM, || {
        SegmentReader::of(&named).unwrap();
        SegmentReader::open(&named.segment()).unwrap();
        CallsReader::of(&named.scope("all")).unwrap();
        assert_eq!(named.document("agent.json").unwrap().unwrap(), b"{}");
    });
    for bits in [0o757, 0o1777, 0o775] {
        mode(&path, bits);
        for error in as_user(VICTIM, || refusals(&named)) {
            assert!(matches!(error, StreamError::Exposed { .. }), "{error}");
        }
    }
    // The same holds for files in it that another user owns.
    mode(&path, 0o755);
    let segment = named.segment();
    chown(&segment, Some(VICTIM), None).unwrap();
    let refused = as_user(VICTIM, || SegmentReader::of(&named).unwrap_err());
    assert!(is_untrusted(&refused, VICTIM), "{refused}");
    chown(&segment, Some(STRANGER), None).unwrap();
    mode(&segment, 0o666);
    let refused = SegmentReader::of(&named).unwrap_err();
    assert!(matches!(refused, StreamError::Exposed { .. }), "{refused}");
    let scope = named.scope("all");
    chown(scope.path(), Some(VICTIM), None).unwrap();
    assert!(named.scopes().is_empty());
    let refused = SegmentReader::of(&scope).unwrap_err();
    assert!(is_untrusted(&refused, VICTIM), "{refused}");
}

#[test]
fn no_link_is_followed_below() {
    let dir = tempfile::tempdir().unwrap();
    let us = rustix::process::geteuid().as_raw();
    let path = dir.path().join("run");
    serve(&path, us);
    let run_dir = RunDir::new(&path);
    for name in ["segment", "agent.json", "applications/all/calls"] {
        fs::rename(path.join(name), dir.path().join("moved")).unwrap();
        symlink(dir.path().join("moved"), path.join(name)).unwrap();
    }
    assert!(SegmentReader::of(&run_dir).is_err());
    assert!(run_dir.document("agent.json").is_err());
    assert!(CallsReader::of(&run_dir.scope("all")).is_err());
    fs::rename(run_dir.scope("all").path(), dir.path().join("all")).unwrap();
    symlink(dir.path().join("all"), run_dir.scope("all").path()).unwrap();
    assert!(run_dir.scopes().is_empty());
}

#[test]
fn what_was_opened_stays_whatever_its_path_becomes() {
    let dir = tempfile::tempdir().unwrap();
    let us = rustix::process::geteuid().as_raw();
    let (path, aside) = (dir.path().join("run"), dir.path().join("aside"));
    serve(&path, us);
    let place = RunDir::new(&path).open().unwrap();
    fs::rename(&path, &aside).unwrap();
    fs::create_dir(&path).unwrap();
    fs::write(path.join("agent.json"), "another's").unwrap();
    assert_eq!(place.owner(), us);
    assert_eq!(place.document("agent.json").unwrap().unwrap(), b"{}");
    assert!(place.file("segment").unwrap().is_some());
    assert!(place.file("control.token").unwrap().is_none());
}

/// A reader that follows a segment over a restart never follows it to another user's segment.
#[test]
fn a_stranger_does_not_take_over_from_an_agent() {
    if !is_root() {
        return;
    }
    let node = Node::new();
    let path = node.of_user(VICTIM);
    serve(&path, VICTIM);
    let found = node.find(VICTIM);
    let mut reader = as_user(VICTIM, || SegmentReader::of(&found).unwrap());
    assert!(!reader.reopen_if_replaced().unwrap());
    let life = reader.incarnation();
    fs::remove_dir_all(&path).unwrap();
    serve(&path, STRANGER);
    let refused = as_user(VICTIM, || reader.reopen_if_replaced().unwrap_err());
    assert!(is_untrusted(&refused, STRANGER), "{refused}");
    assert_eq!(reader.incarnation(), life);
    give(&path, VICTIM);
    assert!(as_user(VICTIM, || reader.reopen_if_replaced().unwrap()));
    assert_ne!(reader.incarnation(), life);
}

#[test]
fn a_call_goes_to_the_agent_of_the_directory_and_to_nobody_else() {
    if !is_root() {
        return;
    }
    let node = Node::new();
    let squatted = node.of_user(VICTIM);
    serve(&squatted, STRANGER);
    let listen = |path: &Path| {
        let listener = UnixListener::bind(path).unwrap();
        mode(path, 0o666);
        listener.set_nonblocking(true).unwrap();
        listener
    };
    let heard = |listener: &UnixListener| match listener.accept() {
        Ok(_) => true,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
        Err(error) => panic!("{error}"),
    };
    let strangers = as_user(STRANGER, || listen(&squatted.join("control.sock")));
    let found = node.find(VICTIM);
    let refused = as_user(VICTIM, || found.connect(AgentSocket::Control).unwrap_err());
    assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
    assert!(refused.to_string().contains("user 12345"), "{refused}");
    assert!(!heard(&strangers), "nobody connects to a stranger");
    // A chosen directory may belong to anyone, but its owner must be the one who listens.
    let named = RunDir::new(&squatted);
    let mut stream = as_user(VICTIM, || named.connect(AgentSocket::Control).unwrap());
    assert!(heard(&strangers));
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    give(&squatted, VICTIM);
    let refused = as_user(VICTIM, || named.connect(AgentSocket::Control).unwrap_err());
    assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
    assert!(
        refused
            .to_string()
            .contains("control.sock belongs to user 12345")
    );
    let absent = as_user(VICTIM, || named.connect(AgentSocket::Read).unwrap_err());
    assert_eq!(absent.kind(), io::ErrorKind::NotFound);
}

#[test]
fn a_heartbeat_of_the_future_is_no_life() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("segment");
    let (now, age) = (1_000_000, HEARTBEAT_AGE_NS_MAX);
    let segment = Segment::create(&path, SegmentConfig::new("n1"), now).unwrap();
    let reader = segment.reader().unwrap();
    for (heartbeat, alive) in [
        (now, true),
        (now - age, true),
        (now - age - 1, false),
        // The clock may be read a moment later, or may have been set back since.
        (now + age, true),
        (now + age + 1, false),
        (i64::MAX, false),
        (i64::MIN, false),
    ] {
        segment.heartbeat(heartbeat);
        assert_eq!(reader.is_alive(now), alive, "{heartbeat}");
    }
    segment.heartbeat(now);
    segment.close();
    assert!(!reader.is_alive(now));
}

/// The role of the children of the next two tests: `BAROGRAPH_TEST_TRUST` selects it.
#[test]
fn plays_its_role() {
    let Some(what) = std::env::var_os("BAROGRAPH_TEST_TRUST") else {
        return;
    };
    match what.to_str().unwrap() {
        "find" => println!("found {}", RunDir::find().path().display()),
        "segment" => {
            let run_dir = RunDir::named().unwrap();
            drop(Segment::create(&run_dir.segment(), SegmentConfig::new("n1"), 1).unwrap());
            run_dir.publish("agent.json", b"{}", 0o644).unwrap();
        }
        other => panic!("no role {other}"),
    }
}

#[test]
fn modes_do_not_depend_on_the_umask() {
    let dir = tempfile::tempdir().unwrap();
    for umask in ["077", "000"] {
        // A umask belongs to the whole process.
        let script = format!("umask {umask}; exec \"$0\" trust::plays_its_role --exact");
        let child = Command::new("/bin/sh")
            .args(["-c", &script])
            .arg(std::env::current_exe().unwrap())
            .env("BAROGRAPH_TEST_TRUST", "segment")
            .env("BAROGRAPH_RUN_DIR", dir.path())
            .stdout(Stdio::null())
            .status();
        assert!(child.unwrap().success());
        for name in ["segment", "agent.json"] {
            let path = dir.path().join(name);
            let bits = fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
            assert_eq!(bits, 0o644, "{name} under umask {umask}");
            fs::remove_file(&path).unwrap();
        }
    }
}

/// The caller of a set-user-id program must not decide what it maps.
#[test]
fn a_program_with_more_rights_than_its_caller_does_not_believe_its_environment() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    mode(dir.path(), 0o755);
    let program = dir.path().join("raised");
    // By another process: one that a test beside this forks meanwhile would hold the copy open for
    // writing for a moment, and it could not be executed.
    let copied = Command::new("cp")
        .arg(std::env::current_exe().unwrap())
        .arg(&program)
        .status();
    assert!(copied.unwrap().success());
    let found = |bits: u32| {
        chown(&program, Some(VICTIM), None).unwrap();
        mode(&program, bits);
        let output = Command::new(&program)
            .args(["trust::plays_its_role", "--exact", "--nocapture"])
            .env("BAROGRAPH_TEST_TRUST", "find")
            .env("BAROGRAPH_RUN_DIR", dir.path().join("named-by-the-caller"))
            .current_dir("/")
            .uid(STRANGER)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let plain = found(0o755);
    assert!(plain.contains("named-by-the-caller"), "{plain}");
    let raised = found(0o4755);
    assert!(!raised.contains("named-by-the-caller"), "{raised}");
    assert!(raised.contains("found /"), "{raised}");
}
