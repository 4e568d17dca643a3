//! Programs that behave, and programs that hang, fork, flood their outputs, or are killed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use barograph_action::{
    ActionFields, ActionOwner, ProgramEnd, ProgramEnding, ProgramRun, ProgramRunner, RunConfig,
    RunRefusal,
};

use crate::support::{until, words};

fn owner() -> ActionOwner {
    ActionOwner {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
    }
}

fn config() -> RunConfig {
    RunConfig {
        grace: Duration::from_millis(300),
        drain: Duration::from_millis(300),
        output_bytes_max: 1_000,
        ..RunConfig::default()
    }
}

fn run_with(
    argv: &[&str],
    fields: &ActionFields,
    time_max: Duration,
) -> Result<ProgramEnd, RunRefusal> {
    let argv = words(argv);
    let run = ProgramRun {
        prefix: "",
        input: &[],
        argv: &argv,
        owner: owner(),
        fields,
        time_max,
    };
    ProgramRunner::new(config()).run(run, &AtomicBool::new(false))
}

fn run(argv: &[&str]) -> Result<ProgramEnd, RunRefusal> {
    run_with(argv, &ActionFields::default(), Duration::ZERO)
}

fn shell(script: &str, time_max: Duration) -> ProgramEnd {
    run_with(
        &["/bin/sh", "-c", script],
        &ActionFields::default(),
        time_max,
    )
    .unwrap()
}

/// Whether a process exists and is no zombie.
fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
    stat.is_ok_and(|stat| {
        !stat
            .rsplit(") ")
            .next()
            .unwrap_or_default()
            .starts_with('Z')
    })
}

#[test]
fn endings_and_outputs() {
    let check = |script: &str, ending: ProgramEnding, output: &str, errors: &str| {
        let end = shell(script, Duration::ZERO);
        assert_eq!(end.ending, ending, "{script}");
        assert_eq!(String::from_utf8(end.output).unwrap(), output, "{script}");
        assert_eq!(String::from_utf8(end.errors).unwrap(), errors, "{script}");
    };
    check("echo a; echo b >&2", ProgramEnding::Code(0), "a\n", "b\n");
    check("exit 75", ProgramEnding::Code(75), "", "");
    check("kill -9 $$", ProgramEnding::Signal(9), "", "");
    check("pwd; cat; echo $#", ProgramEnding::Code(0), "/\n0\n", "");
    check(
        "exec >&- 2>&-; sleep 0.2; exit 4",
        ProgramEnding::Code(4),
        "",
        "",
    );
}

#[test]
fn words_are_not_parsed_and_the_environment_is_clean() {
    let hostile = "$(touch /tmp/x) `id` \"; rm -rf *\n{name}";
    let end = run(&["printf", "%s|%s", hostile, "b c"]).unwrap();
    assert_eq!(
        String::from_utf8(end.output).unwrap(),
        format!("{hostile}|b c")
    );
    let fields = ActionFields {
        path: b"/a b/\xffc.h5".to_vec(),
        key: "r.1.s.7".into(),
        index: 7,
        ..ActionFields::default()
    };
    let end = run_with(&["/usr/bin/env", "-0"], &fields, Duration::ZERO).unwrap();
    let mut variables: Vec<&[u8]> = end.output.split(|byte| *byte == 0).collect();
    variables.sort();
    let named = |name: &str| {
        let found = variables
            .iter()
            .find(|it| it.starts_with(format!("{name}=").as_bytes()));
        found.map(|it| it[name.len() + 1..].to_vec())
    };
    assert_eq!(named("BAROGRAPH_PATH"), Some(b"/a b/\xffc.h5".to_vec()));
    assert_eq!(named("BAROGRAPH_STEM"), Some(b"\xffc".to_vec()));
    assert_eq!(named("BAROGRAPH_KEY"), Some(b"r.1.s.7".to_vec()));
    assert_eq!(named("BAROGRAPH_SIZE"), Some(Vec::new()));
    let known = |it: &&&[u8]| {
        !it.is_empty()
            && ![&b"BAROGRAPH_"[..], b"PATH=", b"LC_ALL="]
                .iter()
                .any(|name| it.starts_with(name))
    };
    assert_eq!(variables.iter().find(known), None);
}

#[test]
fn what_is_no_program_is_refused() {
    let check = |argv: &[&str], reason: &str| match run(argv) {
        Err(refusal @ RunRefusal::Never { .. }) => {
            assert!(refusal.to_string().contains(reason), "{refusal}");
        }
        other => panic!("{argv:?}: {other:?}"),
    };
    check(&[], "neither absolute nor a name");
    check(&["bin/true"], "neither absolute nor a name");
    check(&["../bin/true"], "neither absolute nor a name");
    check(&["no-such-program"], "none of the directories");
    check(&["/no/such/program"], "No such file");
    check(&["/etc/passwd"], "Permission denied");
    check(&["true", "a\0b"], "nul byte");
    check(&["true", &"x".repeat(1 << 20)], "too long");
}

#[test]
fn a_program_that_hangs_is_ended() {
    let limit = Duration::from_millis(200);
    assert_eq!(shell("sleep 60", limit).ending, ProgramEnding::TimeOver);
    let stubborn = shell("trap '' TERM; echo $$; while :; do sleep 1; done", limit);
    assert_eq!(stubborn.ending, ProgramEnding::TimeOver);
    assert!(!is_alive(&String::from_utf8(stubborn.output).unwrap()));
    let polite = shell(
        "trap 'echo ended; exit 0' TERM; while :; do sleep 0.05; done",
        limit,
    );
    assert_eq!(
        (polite.ending, &polite.output[..]),
        (ProgramEnding::TimeOver, &b"ended\n"[..])
    );
    assert_eq!(
        shell("kill -STOP $$", limit).ending,
        ProgramEnding::TimeOver
    );
}

#[test]
fn children_end_with_the_program() {
    let end = shell("sleep 60 & echo $!; exit 3", Duration::ZERO);
    assert_eq!(end.ending, ProgramEnding::Code(3));
    let pid = String::from_utf8(end.output).unwrap();
    until("the child has ended", || !is_alive(&pid));
    // Processes that start others without end are killed all at once.
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("forks");
    std::fs::write(&script, "(sh \"$0\" &) ; (sleep 60 &) ; sleep 0.02").unwrap();
    let text = script.to_str().unwrap().to_owned();
    let argv = ["/bin/sh", "-c", "sh \"$0\" & sleep 60", &text];
    let end = run_with(&argv, &ActionFields::default(), Duration::from_millis(200)).unwrap();
    assert_eq!(end.ending, ProgramEnding::TimeOver);
    until("no process of the storm is left", || {
        !any_process_has(&text)
    });
}

/// Whether the words of a process have a text.
fn any_process_has(text: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes.into_iter().any(|process| {
        let words = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&words).contains(text)
    })
}

#[test]
fn who_escapes_keeps_nobody_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let script = format!(
        "setsid sh -c 'echo $$ > {0}.new; mv {0}.new {0}; exec sleep 60' & while ! test -e {0}; do sleep 0.01; done",
        file.display()
    );
    let end = shell(&script, Duration::ZERO);
    let pid = std::fs::read_to_string(&file).unwrap();
    let is_out = is_alive(&pid);
    let number = rustix::process::Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(number, rustix::process::Signal::KILL).unwrap();
    assert_eq!((end.ending, is_out), (ProgramEnding::Code(0), true));
}

#[test]
fn a_flood_is_read_and_its_end_kept() {
    let script =
        "head -c 20000000 /dev/zero | tr '\\0' x; echo end; head -c 20000000 /dev/zero >&2";
    let end = shell(script, Duration::ZERO);
    assert_eq!(end.ending, ProgramEnding::Code(0));
    assert_eq!((end.output.len(), end.errors.len()), (1_000, 1_000));
    assert!(end.output.ends_with(b"xxend\n"));
    let endless = shell("cat /dev/zero", Duration::from_millis(200));
    assert_eq!(endless.ending, ProgramEnding::TimeOver);
}

#[test]
fn a_request_to_stop_ends_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("begun");
    let argv = words(&[
        "/bin/sh",
        "-c",
        "touch \"$0\"; sleep 60",
        file.to_str().unwrap(),
    ]);
    let stop = AtomicBool::new(false);
    let fields = ActionFields::default();
    let run = ProgramRun {
        prefix: "",
        input: &[],
        argv: &argv,
        owner: owner(),
        fields: &fields,
        time_max: Duration::ZERO,
    };
    let runner = ProgramRunner::new(config());
    std::thread::scope(|scope| {
        let end = scope.spawn(|| runner.run(run, &stop));
        until("the program has begun", || file.exists());
        stop.store(true, Ordering::Relaxed);
        assert_eq!(end.join().unwrap().unwrap().ending, ProgramEnding::Stopped);
    });
}

#[test]
fn a_program_has_the_rights_of_the_owner_of_its_rule() {
    let other = ActionOwner {
        uid: 54_321,
        gid: 54_322,
    };
    let argv = words(&["cat", "/proc/self/status"]);
    let fields = ActionFields::default();
    let run = ProgramRun {
        prefix: "",
        input: &[],
        argv: &argv,
        owner: other,
        fields: &fields,
        time_max: Duration::ZERO,
    };
    let config = RunConfig {
        output_bytes_max: 10_000,
        ..config()
    };
    let ended = ProgramRunner::new(config).run(run, &AtomicBool::new(false));
    if !rustix::process::geteuid().is_root() {
        let agent = owner().uid;
        assert_eq!(
            ended,
            Err(RunRefusal::Rights {
                owner: other.uid,
                agent
            })
        );
        return;
    }
    let status = String::from_utf8(ended.unwrap().output).unwrap();
    let line = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap()
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(line("Uid:"), "54321 54321 54321 54321");
    assert_eq!(line("Gid:"), "54322 54322 54322 54322");
    assert_eq!(line("Groups:"), "");
    assert_eq!(line("CapEff:"), "0000000000000000");
}

#[test]
fn no_open_file_is_passed_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("opened-here");
    let file = std::fs::File::create(&path).unwrap();
    let end = shell("ls -l /proc/self/fd; echo all", Duration::ZERO);
    drop(file);
    let output = String::from_utf8(end.output).unwrap();
    assert!(
        output.ends_with("all\n") && output.contains("/dev/null"),
        "{output}"
    );
    assert!(!output.contains("opened-here"), "{output}");
}
