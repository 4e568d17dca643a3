//! The run directory: one agent, documents complete at any moment, no directory of other users.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use barograph_model::Labels;
use barograph_stream::{DOCUMENT_BYTES_MAX, RunDir, StreamError};

#[test]
fn one_agent_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let run_dir = RunDir::new(dir.path().join("deep/run"));
    let lock = run_dir.occupy().unwrap();
    match run_dir.occupy() {
        Err(StreamError::Occupied { pid, path }) => {
            assert_eq!(pid, std::process::id().to_string());
            assert_eq!(path, run_dir.path());
        }
        other => panic!("{other:?}"),
    }
    drop(lock);
    run_dir.occupy().unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&run_dir.path().join("lock")), 0o600);
    assert_eq!(
        mode(run_dir.path()) & 0o022,
        0,
        "nobody else may write there"
    );
}

#[test]
fn other_peoples_places_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let us = rustix::process::getuid().as_raw();
    // As root, another user's directory is created; otherwise root's own directory is one.
    let foreign = if us == 0 {
        let path = dir.path().join("theirs");
        std::fs::create_dir(&path).unwrap();
        std::os::unix::fs::chown(&path, Some(4242), None).unwrap();
        path
    } else {
        "/usr".into()
    };
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&foreign, &link).unwrap();
    for path in [foreign, link] {
        match RunDir::new(&path).occupy() {
            Err(StreamError::Foreign { us: found, .. }) => assert_eq!(found, us),
            other => panic!("{}: {other:?}", path.display()),
        }
    }
    let open = dir.path().join("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, Permissions::from_mode(0o1777)).unwrap();
    match RunDir::new(&open).occupy() {
        Err(error @ StreamError::Exposed { .. }) => {
            assert!(error.to_string().contains("mode 1777"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let refused = RunDir::new(&file).occupy();
    assert!(matches!(refused, Err(StreamError::Io { .. })));
}

#[test]
fn a_document_is_whole_at_any_moment() {
    let dir = tempfile::tempdir().unwrap();
    let run_dir = RunDir::new(dir.path());
    assert_eq!(run_dir.document("agent.json").unwrap(), None);
    run_dir.publish("agent.json", &[0; 10], 0o644).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let bytes = run_dir.document("agent.json").unwrap().unwrap();
                    assert!(bytes.len() >= 10);
                    assert!(bytes.iter().all(|b| *b == bytes[0]));
                    assert_eq!(bytes.len(), 10 + usize::from(bytes[0]) * 1_000);
                }
            });
        }
        for round in 0..2_000u32 {
            let fill = (round % 100) as u8;
            let bytes = vec![fill; 10 + usize::from(fill) * 1_000];
            run_dir.publish("agent.json", &bytes, 0o644).unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(!dir.path().join("agent.json.new").exists());
}

#[test]
fn documents_have_their_mode_and_a_limit() {
    let dir = tempfile::tempdir().unwrap();
    let run_dir = RunDir::new(dir.path());
    run_dir.publish("control.token", b"secret", 0o600).unwrap();
    let token = std::fs::metadata(run_dir.control_token()).unwrap();
    assert_eq!(token.permissions().mode() & 0o777, 0o600);
    let file = std::fs::File::create(dir.path().join("huge.json")).unwrap();
    file.set_len(DOCUMENT_BYTES_MAX + 1).unwrap();
    assert!(matches!(
        run_dir.document("huge.json"),
        Err(StreamError::Io { .. })
    ));
    let absent = RunDir::new(dir.path().join("absent"));
    assert!(absent.publish("agent.json", b"{}", 0o644).is_err());
}

/// Labels are `String`s: bytes that are not UTF-8 do not reach a segment. The replacement that
/// readers of file names use for such bytes must fit as well.
#[test]
fn labels_are_text() {
    let raw = b"/mnt/\xff\xfe";
    assert!(String::from_utf8(raw.to_vec()).is_err());
    let escaped = String::from_utf8_lossy(raw).into_owned();
    assert!(Labels::new([("mount", escaped.as_str())]).is_ok());
    assert!(Labels::new([("mount\u{fffd}", "x")]).is_err());
    assert!(Labels::new([("mount", "\u{fffd}".repeat(86))]).is_err());
}

#[test]
fn a_child_of_a_killed_agent_gives_the_lock_back_in_a_moment() {
    let dir = tempfile::tempdir().unwrap();
    let run_dir = RunDir::new(dir.path().join("run"));
    drop(run_dir.occupy().unwrap());
    let path = run_dir.path().join("lock");
    // No process has so great a number.
    std::fs::write(&path, "4000000000\n").unwrap();
    let held = std::fs::File::open(&path).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let child = std::thread::spawn(move || {
        // Each turn lets other threads run, for milliseconds on a busy machine.
        for _ in 0..20 {
            std::thread::yield_now();
        }
        drop(held);
    });
    run_dir.occupy().unwrap();
    child.join().unwrap();
}
