//! The library that `baro io` preloads: programs that run with it, and their counts, read from the
//! cells of their files as an agent reads them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use barograph_stream::RunDir;
use barograph_stream::ingest::{CellUse, IngestDeclaration, IngestFile, RecordPayload};
use tempfile::TempDir;

use crate::build::{self, Language, must, program, workshop};

/// Time after which a program that hangs is killed.
const PATIENCE: Duration = Duration::from_secs(120);
const NAP: Duration = Duration::from_millis(5);
/// The same as in `place.c`.
const LEFT_MAX: usize = 64;
const BLOCK: u64 = 4_096;

/// Counts of a process, by the names of its values.
type Counted = BTreeMap<String, u64>;

/// The shim and the programs: compiled once for all tests that run at the same time.
pub(crate) struct Built {
    workshop: TempDir,
    library: PathBuf,
    io: PathBuf,
    stdio: PathBuf,
    pub turns: PathBuf,
}

impl Built {
    /// Builds them; `None`, with a message, if there is no compiler.
    fn make() -> Option<Self> {
        let workshop = workshop();
        let programs = build::here().join("tests/programs");
        let io = [programs.join("io.c")];
        let stdio = [programs.join("stdio.c")];
        let turns = [programs.join("turns.c")];
        Some(Self {
            io: program(workshop.path(), Language::C, &io, &["-lpthread"])?,
            stdio: program(workshop.path(), Language::C, &stdio, &[])?,
            turns: program(workshop.path(), Language::C, &turns, &["-lpthread"])?,
            library: shim(workshop.path()),
            workshop,
        })
    }

    fn shared() -> Option<Arc<Self>> {
        static BUILT: Mutex<Weak<Built>> = Mutex::new(Weak::new());
        let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(built) = built.upgrade() {
            return Some(built);
        }
        let made = Arc::new(Self::make()?);
        *built = Arc::downgrade(&made);
        Some(made)
    }
}

/// The shim, the programs, a run directory, a folder to work in.
pub(crate) struct Bench {
    pub built: Arc<Built>,
    dir: TempDir,
    /// The socket on which an agent would listen: while it exists, nobody removes files of ended
    /// processes.
    door: Option<UnixDatagram>,
}

impl Bench {
    /// Makes a bench; `None`, with a message, if there is no compiler.
    pub(crate) fn new() -> Option<Self> {
        let built = Built::shared()?;
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(RunDir::new(dir.path().join("run")).ingest_dir()).unwrap();
        fs::create_dir(dir.path().join("work")).unwrap();
        let door = RunDir::new(dir.path().join("run")).ingest_socket();
        let door = UnixDatagram::bind(door).unwrap();
        Some(Self {
            built,
            dir,
            door: Some(door),
        })
    }

    pub(crate) fn run_dir(&self) -> PathBuf {
        self.dir.path().join("run")
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    pub(crate) fn command(&self, program: &Path, mode: &str) -> Command {
        let mut command = Command::new(program);
        command.arg(mode).arg(self.work());
        self.preload(&mut command);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(Stdio::piped());
        command
    }

    fn preload(&self, command: &mut Command) {
        command.env_clear().env("LD_PRELOAD", &self.built.library);
        command.env("BAROGRAPH_RUN_DIR", self.run_dir());
    }

    /// Runs a mode of `io`, which must end well; returns the counts of all its processes.
    fn counted(&self, mode: &str) -> Vec<Counted> {
        let (status, said) = ended(self.command(&self.built.io, mode).spawn().unwrap());
        assert!(status.success(), "{mode}: {status} {said}");
        self.files()
    }

    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(RunDir::new(self.run_dir()).ingest_dir()).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    /// Counts in the files, in the order in which their processes began.
    fn files(&self) -> Vec<Counted> {
        let paths = self.paths();
        let mut files: Vec<IngestFile> =
            paths.iter().map(|p| IngestFile::open(p).unwrap()).collect();
        files.sort_by_key(IngestFile::created_ns);
        files.iter_mut().map(counted).collect()
    }
}

/// The shared library, as `scripts/install.sh` builds it.
fn shim(folder: &Path) -> PathBuf {
    let library = folder.join("libbaro_io.so");
    let sources = fs::read_dir(build::here().join("shim")).unwrap();
    let sources = sources.map(|entry| entry.unwrap().path());
    let sources = sources.filter(|path| path.extension().is_some_and(|e| e == "c"));
    let built = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()))
        .args([
            "-std=gnu11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-O2",
            "-shared",
        ])
        .args(["-fPIC", "-fvisibility=hidden"])
        .args(sources)
        .args(["-ldl", "-lpthread", "-o"])
        .arg(&library)
        .output();
    must(&built.unwrap());
    library
}

/// Waits for a program, but not for ever; returns its status and its stderr.
pub(crate) fn ended(mut child: Child) -> (ExitStatus, String) {
    for _ in 0..PATIENCE.as_millis() / NAP.as_millis() {
        if child.try_wait().unwrap().is_some() {
            let output = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return (output.status, said);
        }
        std::thread::sleep(NAP);
    }
    child.kill().unwrap();
    panic!("the program hung");
}

fn counted(file: &mut IngestFile) -> Counted {
    file.look().unwrap();
    assert!(file.is_orphan(), "its process has ended");
    let (mut values, mut bound) = (Vec::new(), Vec::new());
    let declarations = file.declarations(&mut |declaration| match declaration {
        IngestDeclaration::Value { name, .. } => values.push(name),
        IngestDeclaration::Cell {
            value,
            cell,
            used_as,
            ..
        } if used_as != CellUse::Clock => bound.push((value, cell)),
        _ => {}
    });
    declarations.unwrap();
    let mut cells = Vec::new();
    file.read_cells(&mut cells).unwrap();
    let named = |(value, cell): (u32, u32)| (values[value as usize].clone(), cells[cell as usize]);
    bound.into_iter().map(named).collect()
}

fn sum(all: &[Counted], name: &str) -> u64 {
    all.iter().map(|counted| counted[name]).sum()
}

fn blocks(all: &[Counted]) -> Vec<u64> {
    let bytes = all.iter().map(|counted| counted["write.bytes"]);
    bytes.map(|bytes| bytes / BLOCK).collect()
}

#[test]
fn a_program_that_forks_beside_threads_goes_on() {
    let Some(bench) = Bench::new() else { return };
    let all = bench.counted("forks_beside_threads");
    // Each child made a file of its own, with only its own write.
    assert_eq!(all.len(), 301);
    assert!(blocks(&all[1..]).iter().all(|blocks| *blocks == 1));
    assert!(all.iter().all(|counted| counted["write.errors.count"] == 0));
}

#[test]
fn children_that_no_handler_saw_add_to_their_parents_cells() {
    let Some(bench) = Bench::new() else { return };
    let all = bench.counted("children_behind_the_library");
    assert_eq!(blocks(&all), [20]);
}

#[test]
fn what_is_executed_counts_for_itself() {
    let Some(bench) = Bench::new() else { return };
    let all = bench.counted("vforks");
    assert_eq!(blocks(&all), [11, 7]);
    assert_ne!(all[0]["pid"], all[1]["pid"]);
}

#[test]
fn forked_children_count_for_themselves() {
    let Some(bench) = Bench::new() else { return };
    let mut all = blocks(&bench.counted("forked_twice"));
    all.sort_unstable();
    assert_eq!(all, [1, 2, 4]);
}

#[test]
fn a_signal_handler_may_write() {
    let Some(bench) = Bench::new() else { return };
    for _ in 0..5 {
        bench.counted("handler_that_writes");
    }
    assert_eq!(bench.files().len(), 5);
    assert!(blocks(&bench.files()).iter().all(|blocks| *blocks >= 1_000));
}

#[test]
fn every_write_of_a_thousand_threads_counts() {
    let Some(bench) = Bench::new() else { return };
    let all = bench.counted("thousand_threads");
    assert_eq!(blocks(&all), [10_000]);
    assert_eq!(all[0]["write.calls.count"], 10_000);
}

#[test]
fn what_was_counted_outlives_every_end() {
    for (mode, files) in [
        ("underscore_exit", 1),
        ("quick_exit", 1),
        ("aborts", 1),
        ("is_killed", 1),
        ("crashes", 1),
        // The next program has a file of its own.
        ("execs", 2),
    ] {
        let Some(bench) = Bench::new() else { return };
        ended(bench.command(&bench.built.io, mode).spawn().unwrap());
        let all = bench.files();
        assert_eq!(all.len(), files, "{mode}");
        assert_eq!(blocks(&all)[0], 7, "{mode}");
        assert_eq!(all[0]["open.calls.count"], 1, "{mode}");
    }
}

#[test]
fn the_programs_descriptors_have_the_numbers_that_they_would_have() {
    for each in ["0", "1"] {
        let Some(bench) = Bench::new() else { return };
        let mut command = bench.command(&bench.built.io, "numbers");
        let (status, said) = ended(command.env("BAROGRAPH_IO_EACH", each).spawn().unwrap());
        assert!(status.success(), "{each}: {said}");
        assert_eq!(bench.files().len(), 2);
    }
}

#[test]
fn a_number_that_means_another_file_is_looked_at_anew() {
    let Some(bench) = Bench::new() else { return };
    let all = bench.counted("renumbered");
    assert_eq!(sum(&all, "write.bytes"), 101);
    assert_eq!(sum(&all, "write.calls.count"), 3);
}

#[test]
fn copies_have_two_sides_and_directories_are_synced() {
    let Some(bench) = Bench::new() else { return };
    let all = bench.counted("copies");
    assert_eq!(sum(&all, "read.bytes"), 1_750);
    assert_eq!(sum(&all, "write.bytes"), BLOCK + 1_250);
    assert_eq!(sum(&all, "sync.calls.count"), 2);
}

#[test]
fn stdio_counts_what_is_asked_of_it() {
    let Some(bench) = Bench::new() else { return };
    let out = fs::File::create(bench.work().join("out")).unwrap();
    let mut command = bench.command(&bench.built.stdio, "all");
    let (status, said) = ended(command.stdout(out).spawn().unwrap());
    assert!(status.success(), "{said}");
    let all = bench.files();
    assert_eq!(
        (sum(&all, "read.bytes"), sum(&all, "write.bytes")),
        (100, 130)
    );
    // 2 blocks, 1 line, 1 long line, 20 characters, and three ends of the file.
    assert_eq!(sum(&all, "read.calls.count"), 27);
    // 2 blocks, a text, a format, 20 characters; 4 to stdout. Nothing was pending when the file was
    // closed.
    assert_eq!(sum(&all, "write.calls.count"), 28);
    assert_eq!(
        (
            sum(&all, "read.errors.count"),
            sum(&all, "write.errors.count")
        ),
        (0, 0)
    );
}

#[test]
fn errors_of_stdio_count() {
    let Some(bench) = Bench::new() else { return };
    let (status, said) = ended(bench.command(&bench.built.stdio, "fail").spawn().unwrap());
    assert!(status.success(), "{said}");
    let all = bench.files();
    assert_eq!(sum(&all, "write.errors.count"), 3);
    assert_eq!(sum(&all, "read.errors.count"), 1);
    assert_eq!(sum(&all, "write.bytes"), 4_096 + 4);
}

#[test]
fn a_limit_on_the_size_of_files_kills_nobody() {
    for each in ["0", "1"] {
        let Some(bench) = Bench::new() else { return };
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -f 10; exec \"$0\" \"$@\""]);
        command
            .arg(&bench.built.io)
            .arg("underscore_exit")
            .arg(bench.work());
        bench.preload(&mut command);
        command
            .env("BAROGRAPH_IO_EACH", each)
            .env("PATH", "/usr/bin:/bin");
        let output = command.output().unwrap();
        must(&output);
        // The shell had no limit yet.
        let of_program: Vec<Counted> = bench.files();
        assert!(sum(&of_program, "write.bytes") < BLOCK, "{of_program:?}");
    }
}

#[test]
fn a_file_that_is_cut_short_is_not_the_programs_end() {
    let Some(bench) = Bench::new() else { return };
    for each in ["0", "1"] {
        let mut command = bench.command(&bench.built.io, "cut_short");
        command.arg(bench.run_dir().join("ingest/*.ingest"));
        command.env("BAROGRAPH_IO_EACH", each);
        let (status, said) = ended(command.spawn().unwrap());
        assert!(status.success(), "{said}");
        bench
            .paths()
            .iter()
            .for_each(|path| fs::remove_file(path).unwrap());
    }
}

#[test]
fn a_run_directory_that_is_not_there_is_not_made() {
    let Some(bench) = Bench::new() else { return };
    let mistyped = bench.dir.path().join("rnu");
    let mut command = bench.command(&bench.built.io, "underscore_exit");
    let (status, said) = ended(command.env("BAROGRAPH_RUN_DIR", &mistyped).spawn().unwrap());
    assert!(status.success(), "{said}");
    assert!(!mistyped.exists() && bench.files().is_empty());
}

#[test]
fn without_an_agent_the_newest_files_stay_and_they_are_small() {
    let Some(mut bench) = Bench::new() else {
        return;
    };
    bench.door = None;
    for _ in 0..LEFT_MAX + 20 {
        let (status, said) = ended(
            bench
                .command(&bench.built.io, "underscore_exit")
                .spawn()
                .unwrap(),
        );
        assert!(status.success(), "{said}");
    }
    assert_eq!(bench.paths().len(), LEFT_MAX);
    for path in bench.paths() {
        let file = fs::metadata(path).unwrap();
        assert!(file.blocks() * 512 <= 16 << 10 && file.mode() & 0o777 == 0o600);
    }
}

#[test]
fn each_call_has_its_seconds_and_those_that_find_no_ring_are_lost() {
    let Some(bench) = Bench::new() else { return };
    for (mode, expect) in [("underscore_exit", 7), ("thousand_threads", 10_000)] {
        let mut command = bench.command(&bench.built.io, mode);
        let (status, said) = ended(command.env("BAROGRAPH_IO_EACH", "1").spawn().unwrap());
        assert!(status.success(), "{said}");
        let [path] = &bench.paths()[..] else {
            panic!("a file");
        };
        let mut file = IngestFile::open(path).unwrap();
        file.look().unwrap();
        let mut puts = 0;
        let drained = file.drain(u64::MAX, &mut |record| {
            assert!(matches!(record.payload, RecordPayload::Float(seconds) if seconds > 0.0));
            puts += 1;
        });
        let drained = drained.unwrap();
        assert_eq!((drained.missed, drained.damaged), (0, 0));
        assert_eq!(puts + file.dropped(), expect, "{mode}");
        assert!(puts > 0);
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn another_users_agent_is_let_in_and_nobody_else() {
    const AGENT: u32 = 12_345;
    const USER: u32 = 54_321;
    let Some(bench) = Bench::new() else { return };
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        eprintln!("SKIPPED: only root can be two users");
        return;
    }
    let everyone = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    for path in [bench.dir.path(), bench.built.workshop.path(), &bench.work()] {
        everyone(path, 0o777);
    }
    for path in [bench.run_dir(), RunDir::new(bench.run_dir()).ingest_dir()] {
        chown(&path, Some(AGENT), Some(AGENT)).unwrap();
        everyone(&path, 0o1777);
    }
    let mut command = bench.command(&bench.built.io, "underscore_exit");
    let (status, said) = ended(command.uid(USER).gid(USER).spawn().unwrap());
    assert!(status.success(), "{said}");
    let [path] = &bench.paths()[..] else {
        panic!("a file");
    };
    let file = fs::metadata(path).unwrap();
    assert_eq!(file.uid(), USER);
    let can_read = |uid: u32| {
        let mut head = Command::new("head");
        let read = head.args(["-c", "1"]).arg(path).uid(uid).gid(AGENT);
        read.output().unwrap().status.success()
    };
    // With an access-control list, the bits of the group are its mask.
    if file.mode() & 0o070 == 0o060 {
        assert!(can_read(AGENT));
    } else {
        eprintln!("SKIPPED: this file system has no access-control lists");
    }
    // The group of the agent is not the agent.
    assert!(!can_read(USER + 1));
}
