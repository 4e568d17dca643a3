//! Tests of the helper through sockets, as systemd starts it: the real binary with its real verbs,
//! and the library with programs of the tests.

#![expect(
    clippy::disallowed_methods,
    reason = "tests wait for real threads, programs and disks"
)]
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests fail as tests do; clippy sees only functions marked as tests"
)]

mod marks;

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use barograph_helper::verbs::{HelperProgram, HelperVerb, SuccessStatus, VERBS};
use barograph_helper::{Helper, HelperLimits, OUTPUT_BYTES_MAX};

const BINARY: &str = env!("CARGO_BIN_EXE_barograph-helper");

/// A stand-in for systemd's socket with `Accept=yes`: it starts a helper for each connection, with
/// the connection as its standard input and output.
struct Socket {
    dir: tempfile::TempDir,
}

impl Socket {
    fn listen(connections: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("s")).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming().take(connections) {
                let input = OwnedFd::from(stream.unwrap());
                let output = input.try_clone().unwrap();
                let mut child = Command::new(BINARY)
                    .stdin(Stdio::from(input))
                    .stdout(Stdio::from(output))
                    .spawn()
                    .unwrap();
                std::thread::spawn(move || child.wait());
            }
        });
        Self { dir }
    }

    fn ask(&self, request: &[u8]) -> String {
        let mut stream = UnixStream::connect(self.dir.path().join("s")).unwrap();
        // The helper may have refused the request and ended before all of it was written.
        let _ = stream.write_all(request);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    }
}

#[test]
fn hostile_requests_through_a_real_socket() {
    let long = [b"smart ".as_slice(), &[b'a'; 4096], b"\n"].concat();
    let requests: [&[u8]; 26] = [
        b"",
        b"\n",
        b"smart",
        b"smart \n",
        b"smart nonexistent\n",
        b"smart ../../etc/passwd\n",
        b"smart /dev/vda\n",
        b"smart --all\n",
        b"smart -d\n",
        b"smart sda;id\n",
        b"smart sda\ngpfs\n",
        b"smart sd\0a\n",
        b"smart \xff\xfe\n",
        b"gpfs now\n",
        b"GPFS\n",
        b"sh -c id\n",
        b"/bin/sh\n",
        b"gpfs",
        b"bmc-power raw 0x00 0x02\n",
        b"fanotify\n",
        b"fanotify /\n",
        b"fanotify 0:0\n",
        b"fanotify 8:1 /\n",
        b"fanotify 99999999999:1\n",
        b"fanotify 8:\xff\n",
        &long,
    ];
    let socket = Socket::listen(requests.len());
    for request in requests {
        let answer = socket.ask(request);
        let shown = request[..request.len().min(40)].escape_ascii();
        assert!(answer.starts_with("error: "), "{shown}: {answer:?}");
        assert!(
            answer.ends_with('\n') && answer.lines().count() == 1,
            "{answer:?}"
        );
    }
}

/// The answers depend on the machine; that they are complete and well formed does not.
#[test]
fn the_real_verbs_answer_or_say_why_not() {
    let disks = std::fs::read_dir("/sys/block").into_iter().flatten();
    let names = disks.filter_map(|e| e.ok()?.file_name().into_string().ok());
    let mut requests: Vec<_> = names
        .take(2)
        .map(|disk| format!("smart {disk}\n"))
        .collect();
    requests.push("gpfs\n".to_owned());
    let socket = Socket::listen(requests.len());
    for request in requests {
        let answer = socket.ask(request.as_bytes());
        let (first, rest) = answer.split_once('\n').unwrap();
        assert!(first == "ok" || first.starts_with("error: "), "{answer:?}");
        if first == "ok" && request.starts_with("smart") {
            assert!(
                rest.trim().starts_with('{') && rest.trim().ends_with('}'),
                "{rest}"
            );
        }
    }
}

#[test]
fn a_sender_who_is_too_slow_is_not_waited_for() {
    let socket = Socket::listen(1);
    let mut stream = UnixStream::connect(socket.dir.path().join("s")).unwrap();
    stream.write_all(b"smar").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "error: the request came too slowly\n");
}

#[test]
fn the_options() {
    let say = |option: &str| {
        let out = Command::new(BINARY).arg(option).output().unwrap();
        (
            out.status.code().unwrap(),
            String::from_utf8(out.stdout).unwrap(),
        )
    };
    let (code, text) = say("--verbs");
    assert_eq!(code, 0);
    for verb in VERBS {
        assert!(text.contains(verb.name), "{text}");
    }
    assert!(
        text.contains(
            "/usr/sbin/smartctl --json=c --all --log=devstat --nocheck=standby /dev/DEVICE"
        )
    );
    assert!(say("--version").1.starts_with("barograph-helper "));
    assert!(say("--help").1.contains("never setuid"));
    assert_eq!(say("smart").0, 2);
}

#[test]
fn a_setuid_helper_refuses() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let copy = dir.path().join("helper");
    // Another process writes it, for the reason that `Fake` has.
    let copied = Command::new("/bin/cp").arg(BINARY).arg(&copy).status();
    assert!(copied.unwrap().success());
    // Only root can give a file to another user, and only root can run as another user.
    if std::os::unix::fs::chown(&copy, Some(65534), Some(65534)).is_err() {
        return;
    }
    std::fs::set_permissions(&copy, PermissionsExt::from_mode(0o6755)).unwrap();
    let out = Command::new(&copy).stdin(Stdio::null()).output().unwrap();
    let answer = String::from_utf8(out.stdout).unwrap();
    // A file system mounted nosuid gives no rights, so that only the request is refused.
    assert!(answer.starts_with("error: "), "{answer}");
    assert!(!out.status.success());
    if !answer.contains("no end of line") {
        assert!(answer.contains("setuid"), "{answer}");
    }
}

/// A helper with one verb, `ask DEVICE`, that runs a script of the test.
struct Fake {
    dir: tempfile::TempDir,
    helper: Helper,
}

impl Fake {
    fn new(script: &str, exit: SuccessStatus, run_ms: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("program");
        // Another process writes it: a descriptor of this one would be in the children that other
        // tests fork meanwhile, and a file that somebody may write cannot be executed.
        let written = Command::new("/bin/sh")
            .args([
                "-c",
                "printf '#!/bin/sh\n%s\n' \"$1\" > \"$0\"; chmod 755 \"$0\"",
            ])
            .arg(&program)
            .arg(script)
            .status();
        assert!(written.unwrap().success());
        for disk in ["sda", "sdb", "sdc", "sdd"] {
            let disk = dir.path().join("sys/block").join(disk);
            std::fs::create_dir_all(&disk).unwrap();
            std::fs::write(disk.join("size"), "8\n").unwrap();
        }
        let path: &'static str = program.to_str().unwrap().to_owned().leak();
        let verb = HelperVerb {
            name: "ask",
            takes_device: true,
            program: HelperProgram {
                name: "program",
                paths: vec!["/nonexistent/program", path].leak(),
                arguments: &["--fixed"],
                input: b"from us\n",
                exit,
            },
            fresh: Duration::ZERO,
            help: "",
        };
        let helper = Helper {
            verbs: vec![verb].leak(),
            sys: dir.path().join("sys"),
            shares: dir.path().join("shares"),
            vet: anything,
            marks: Helper::real().marks,
            limits: HelperLimits {
                request: Duration::from_secs(20),
                run: Duration::from_millis(run_ms),
                answer: Duration::from_secs(20),
            },
        };
        Self { dir, helper }
    }

    fn ask(&self) -> String {
        self.ask_as(0, "sda")
    }

    /// Asks as another user, if the tests run as root: the kernel records the creator of a socket
    /// pair.
    fn ask_as(&self, user: u32, disk: &str) -> String {
        let made = std::thread::spawn(move || {
            if user != 0 {
                let uid = rustix::process::Uid::from_raw(user);
                rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            }
            UnixStream::pair().unwrap()
        });
        let (mut ours, theirs) = made.join().unwrap();
        let helper = self.helper.clone();
        let thread = std::thread::spawn(move || helper.serve(&theirs, &theirs));
        // The helper does not wait for a request that is refused.
        let _ = ours.write_all(format!("ask {disk}\n").as_bytes());
        let mut answer = Vec::new();
        ours.read_to_end(&mut answer).unwrap();
        let is_ok = thread.join().unwrap();
        assert_eq!(is_ok, answer.starts_with(b"ok\n"));
        String::from_utf8(answer).unwrap()
    }
}

fn anything(path: &Path) -> Result<PathBuf, String> {
    Ok(path.to_owned())
}

#[test]
fn a_program_gets_fixed_arguments_our_input_and_a_clean_environment() {
    let script = "echo \"$# $1 $2\"; cat; env | sort; pwd; ls /proc/self/fd | wc -l; grep NoNewPrivs /proc/self/status";
    let answer = Fake::new(script, SuccessStatus::Zero, 20_000).ask();
    let lines: Vec<_> = answer.lines().collect();
    assert_eq!(lines[..3], ["ok", "2 --fixed /dev/sda", "from us"]);
    // The shell sets PWD itself.
    let env: Vec<_> = lines.iter().filter(|l| l.contains('=')).copied().collect();
    let expect = [
        "LC_ALL=C",
        "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
        "PWD=/",
        "TZ=UTC",
    ];
    assert_eq!(env, expect);
    assert!(lines.contains(&"/"), "{answer}");
}

/// The descriptors of the helper itself, such as the requester's socket, are not inherited.
#[test]
fn a_program_does_not_inherit_the_socket() {
    let answer = Fake::new("ls -l /proc/self/fd", SuccessStatus::Zero, 20_000).ask();
    assert!(
        answer.starts_with("ok\n") && !answer.contains("socket:"),
        "{answer}"
    );
}

#[test]
fn ends_of_programs() {
    let check = |script: &str, exit: SuccessStatus, expect: &str| {
        let answer = Fake::new(script, exit, 20_000).ask();
        assert_eq!(answer, expect, "{script}");
    };
    // smartctl's status is a mask of findings.
    check("echo '{}'; exit 64", SuccessStatus::Any, "ok\n{}\n");
    check("echo '{}'; exit 2", SuccessStatus::Any, "ok\n{}\n");
    check(
        "exit 1",
        SuccessStatus::Any,
        "error: program: exit status: 1: it said nothing of why\n",
    );
    check(
        "echo cut; kill -9 $$",
        SuccessStatus::Any,
        "error: program: signal: 9 (SIGKILL): it said nothing of why\n",
    );
    check(
        "echo x; exit 3",
        SuccessStatus::Zero,
        "error: program: exit status: 3: it said nothing of why\n",
    );
    check(
        "printf '\\nno \\001 b\\303\\244mc\\nmore\\n' >&2; exit 1",
        SuccessStatus::Zero,
        "error: program: exit status: 1: no \\x01 b\\xc3\\xa4mc\n",
    );
    let long = Fake::new(
        "head -c 100000 /dev/zero | tr '\\0' e >&2; exit 1",
        SuccessStatus::Zero,
        20_000,
    );
    assert!(long.ask().len() < 300);
}

#[test]
fn output_up_to_the_bound_and_not_beyond() {
    let print = |bytes: usize| {
        let script = format!("head -c {bytes} /dev/zero | tr '\\0' x");
        Fake::new(&script, SuccessStatus::Zero, 60_000).ask()
    };
    let whole = print(OUTPUT_BYTES_MAX);
    assert_eq!(whole.len(), 3 + OUTPUT_BYTES_MAX);
    let answer = print(OUTPUT_BYTES_MAX + 1);
    assert_eq!(
        answer,
        format!("error: program printed more than {OUTPUT_BYTES_MAX} bytes\n")
    );
    let endless = Fake::new("cat /dev/zero", SuccessStatus::Zero, 60_000).ask();
    assert_eq!(endless, answer);
}

#[test]
fn what_takes_too_long_is_ended_with_all_it_started() {
    for script in [
        "sleep 60 & echo $! > $(dirname $0)/child; sleep 60",
        "exec >&- 2>&-; sleep 60",
        "trap '' TERM; sleep 60",
    ] {
        let fake = Fake::new(script, SuccessStatus::Zero, 300);
        assert_eq!(
            fake.ask(),
            "error: program took too long and was ended\n",
            "{script}"
        );
        if let Ok(child) = std::fs::read_to_string(fake.dir.path().join("child")) {
            // It has been killed, and a busy machine takes a moment until it has ended.
            let is_alive = || {
                let status = std::fs::read_to_string(format!("/proc/{}/status", child.trim()));
                status.is_ok_and(|status| !status.contains("zombie"))
            };
            let begin = Instant::now();
            while is_alive() {
                assert!(begin.elapsed() < Duration::from_secs(20), "{script}");
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

/// A requester that does not read the answer does not hold the helper.
#[test]
fn an_answer_that_nobody_takes_is_dropped() {
    let mut fake = Fake::new(
        "head -c 4000000 /dev/zero | tr '\\0' x",
        SuccessStatus::Zero,
        20_000,
    );
    fake.helper.limits.answer = Duration::from_millis(200);
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    ours.write_all(b"ask sda\n").unwrap();
    assert!(!fake.helper.serve(&theirs, &theirs));
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    ours.write_all(b"ask sda\n").unwrap();
    drop(ours);
    assert!(!fake.helper.serve(&theirs, &theirs));
}

#[test]
fn programs_that_are_not_there_or_not_roots() {
    let mut fake = Fake::new("echo x", SuccessStatus::Zero, 20_000);
    fake.helper.vet = barograph_helper::vet;
    let answer = fake.ask();
    assert!(answer.contains("others than root may write"), "{answer}");
    std::fs::remove_file(fake.dir.path().join("program")).unwrap();
    assert_eq!(fake.ask(), "error: program is not installed\n");
}

/// A script that records its start, and ends when the gate is open.
const GATED: &str =
    "cd $(dirname $0); echo $2 >> started; until [ -e open ]; do sleep 0.01; done; echo done";
/// Most checks of a program, 2 ms apart, before a test fails.
const LOOKS_MAX: usize = 15_000;

impl Fake {
    /// Waits until the program has been started `runs` times in all.
    fn wait_for_runs(&self, runs: usize) {
        let started = || std::fs::read_to_string(self.dir.path().join("started"));
        let is_there = |_: &usize| started().map_or(0, |text| text.lines().count()) >= runs;
        let pause = |_: &usize| std::thread::sleep(Duration::from_millis(2));
        let seen = (0..LOOKS_MAX).inspect(pause).find(is_there);
        assert!(seen.is_some(), "{runs} runs: {:?}", started());
    }

    /// Lets every program that waits at the gate end.
    fn open_gate(&self) {
        std::fs::write(self.dir.path().join("open"), "").unwrap();
    }
}

#[test]
fn a_user_has_few_requests_at_once_and_takes_no_place_of_others() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("left out: only root can ask as other users");
        return;
    }
    let fake = Fake::new(GATED, SuccessStatus::Zero, 60_000);
    std::thread::scope(|scope| {
        let ask = |user: u32, disk: &'static str| {
            let fake = &fake;
            scope.spawn(move || fake.ask_as(user, disk))
        };
        let held = [ask(12_345, "sda"), ask(12_345, "sdb")];
        fake.wait_for_runs(2);
        // The third request is refused at once, for any disk.
        let refused = ask(12_345, "sdc").join().unwrap();
        assert_eq!(
            refused,
            "error: user 12345 has 2 requests under way: ask again when one is done\n"
        );
        let others = [ask(65_534, "sdc"), ask(0, "sdd")];
        fake.wait_for_runs(4);
        fake.open_gate();
        for asked in held.into_iter().chain(others) {
            assert_eq!(asked.join().unwrap(), "ok\ndone\n");
        }
    });
    // A place is free again when its holder has ended.
    assert_eq!(fake.ask_as(12_345, "sda"), "ok\ndone\n");
}

#[test]
fn a_disk_is_asked_once_however_many_want_to_know() {
    let failing = GATED.replace("echo done", "echo no >&2; exit 1");
    for (script, answer) in [
        (GATED, "ok\ndone\n"),
        // A program that fails is not run again at once either.
        (failing.as_str(), "error: program: exit status: 1: no\n"),
    ] {
        let mut fake = Fake::new(script, SuccessStatus::Zero, 60_000);
        let mut verb = fake.helper.verbs[0];
        verb.fresh = Duration::from_secs(3_600);
        fake.helper.verbs = vec![verb].leak();
        std::thread::scope(|scope| {
            let asked: Vec<_> = (0..6).map(|_| scope.spawn(|| fake.ask())).collect();
            fake.wait_for_runs(1);
            fake.open_gate();
            for asked in asked {
                assert_eq!(asked.join().unwrap(), answer);
            }
        });
        assert_eq!(fake.ask(), answer);
        let started = std::fs::read_to_string(fake.dir.path().join("started")).unwrap();
        assert_eq!(started, "/dev/sda\n");
    }
}

#[test]
fn who_waits_for_others_waits_no_longer_than_for_the_program() {
    let mut fake = Fake::new(GATED, SuccessStatus::Zero, 60_000);
    std::thread::scope(|scope| {
        let held = scope.spawn(|| fake.ask());
        fake.wait_for_runs(1);
        let mut impatient = Fake {
            helper: fake.helper.clone(),
            dir: tempfile::tempdir().unwrap(),
        };
        impatient.helper.limits.run = Duration::from_millis(50);
        assert_eq!(
            impatient.ask(),
            "error: others are asking the same, which takes too long\n"
        );
        fake.open_gate();
        assert_eq!(held.join().unwrap(), "ok\ndone\n");
    });
    // A directory that others can write is refused.
    let shares = fake.dir.path().join("exposed");
    std::fs::create_dir(&shares).unwrap();
    std::fs::set_permissions(&shares, PermissionsExt::from_mode(0o777)).unwrap();
    fake.helper.shares = shares;
    assert!(fake.ask().contains("is not the helper's alone"));
}
