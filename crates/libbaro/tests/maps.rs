//! Server maps in programs of other languages: what they count, and that nobody is held up.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

use barograph_stream::RunDir;
use barograph_stream::ingest::{IngestFile, MapState, MapUse, MapWords, ServerSet};

use crate::build::{self, Language, command, must, program, workshop};

fn here(name: &str) -> PathBuf {
    build::here().join("tests/programs").join(name)
}

/// The files of a run directory, the oldest first.
fn files(run_dir: &Path) -> Vec<IngestFile> {
    let entries = std::fs::read_dir(RunDir::new(run_dir).ingest_dir()).unwrap();
    let files = entries.map(|entry| IngestFile::open(&entry.unwrap().path()).unwrap());
    let mut files: Vec<IngestFile> = files.collect();
    files.sort_by_key(IngestFile::created_ns);
    files
}

fn uses(file: &IngestFile) -> Vec<MapUse> {
    let uses = file.map_uses().unwrap();
    uses.into_iter().map(|(_, used)| used).collect()
}

#[test]
fn a_program_without_an_agent_goes_on_whatever_its_host_does() {
    let workshop = workshop();
    let libraries = ["-lbaro", "-lpthread"];
    let Some(program) = program(workshop.path(), Language::C, &[here("maps.c")], &libraries) else {
        return;
    };
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    must(&command(&program, dir.path()).output().unwrap());
    let files = files(dir.path());
    let [parent, child] = &files[..] else {
        panic!("a parent and its child");
    };
    // Each has ended the operations and requests that it has ended, and no other's.
    let running = |file| -> Vec<u64> { uses(file).iter().map(|used| used.running).collect() };
    assert_eq!(running(parent), [0, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(running(child), [1, 0, 0, 0, 0, 0, 0, 0]);
    let of_parent = uses(parent);
    assert_eq!(of_parent[0].declared, [0, 5, 1_023].into_iter().collect());
    assert_eq!((of_parent[0].refused, of_parent[0].waiting), (9, 0));
    assert_eq!(of_parent[1].oldest_epoch, Some(0));
}

#[test]
fn the_other_languages_have_them() {
    let workshop = workshop();
    let module = build::here().join("fortran/baro.f90");
    for (language, sources) in [
        (Language::Cpp, vec![here("maps.cpp")]),
        (Language::Fortran, vec![module, here("maps.f90")]),
    ] {
        let built = program(workshop.path(), language, &sources, &["-lbaro"]);
        let Some(program) = built else {
            continue;
        };
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        must(&command(&program, dir.path()).output().unwrap());
        let files = files(dir.path());
        let uses = uses(&files[0]);
        assert_eq!(uses.len(), 2, "{language:?}");
        assert!(uses.iter().all(|used| used.running == 0), "{language:?}");
    }
}

/// The agent, played by the test, and a program that does what it is told.
struct Played {
    file: IngestFile,
    door: UnixDatagram,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    child: Child,
}

const MEMBER: u8 = 0;
const SERVER: u8 = 1;

impl Played {
    /// Starts the program; its first operation waits for the agent.
    fn start(program: &Path, dir: &Path) -> Self {
        let door = UnixDatagram::bind(RunDir::new(dir).phases_socket()).unwrap();
        door.set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        let mut child = command(program, dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut to = child.stdin.take().unwrap();
        writeln!(to, "begin 0 0").unwrap();
        let from = BufReader::new(child.stdout.take().unwrap());
        heard(&door);
        let file = files(dir).remove(0);
        Self {
            file,
            door,
            to,
            from,
            child,
        }
    }

    fn ask(&mut self, what: &str) {
        writeln!(self.to, "{what}").unwrap();
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn asked(&mut self, what: &str) -> String {
        self.ask(what);
        self.answer()
    }

    fn tell(&mut self, slot: u8, prepare: u64, epoch: u64, servers: &[u32]) {
        let words = MapWords {
            state: MapState::Told,
            prepare,
            epoch,
            fence: epoch,
            servers: servers.iter().copied().collect::<ServerSet>(),
        };
        self.file.tell_map(slot, &words).unwrap();
        self.file.wake_phases().unwrap();
    }

    fn used(&self, slot: u8) -> MapUse {
        uses(&self.file)[usize::from(slot)]
    }

    fn until(&self, what: impl Fn(&MapUse) -> bool, slot: u8) {
        while !what(&self.used(slot)) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Waits for a knock, and forgets others that have come with it.
fn heard(door: &UnixDatagram) {
    let mut from = [0; 17];
    assert_eq!(door.recv(&mut from).unwrap(), 16);
    door.set_nonblocking(true).unwrap();
    while door.recv(&mut from).is_ok() {}
    door.set_nonblocking(false).unwrap();
}

#[test]
fn a_change_is_prepared_drained_and_switched() {
    let workshop = workshop();
    let source = here("epochs.c");
    let Some(program) = program(workshop.path(), Language::C, &[source], &["-lbaro"]) else {
        return;
    };
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut played = Played::start(&program, dir.path());
    // It waits until it is told of the map, and is not counted as running.
    played.until(|used| (used.running, used.waiting) == (0, 1), MEMBER);
    played.tell(MEMBER, 0, 4, &[0, 1, 2]);
    assert_eq!(played.answer(), "1 4 0 1 2");
    assert_eq!(played.used(MEMBER).running, 1);
    assert_eq!(played.asked("begin 1 0"), "1 4 0 1 2");
    // A change: what runs goes on, and what begins waits.
    played.tell(MEMBER, 5, 4, &[0, 1, 2]);
    played.ask("begin 2 0");
    played.until(|used| (used.running, used.waiting) == (2, 1), MEMBER);
    // The switch.
    played.tell(MEMBER, 5, 5, &[0, 2]);
    assert_eq!(played.answer(), "1 5 0 2");
    // Without a change, nobody is woken by an end.
    heard_all(&played.door);
    for at in 0..3 {
        assert_eq!(played.asked(&format!("end {at} 0")), "0");
    }
    assert_eq!(played.used(MEMBER).running, 0);
    // With one, the last end wakes the agent.
    assert_eq!(played.asked("begin 0 0"), "1 5 0 2");
    heard_nothing(&played.door);
    played.tell(MEMBER, 6, 5, &[0, 2]);
    assert_eq!(played.asked("end 0 0"), "0");
    heard(&played.door);
    // An abort lets those go on that wait.
    played.ask("begin 0 0");
    played.until(|used| used.waiting == 1, MEMBER);
    played.tell(MEMBER, 0, 5, &[0, 2]);
    assert_eq!(played.answer(), "1 5 0 2");
    // Whose patience is over goes on in the epoch that is known, and so do those after it.
    played.tell(MEMBER, 7, 5, &[0, 2]);
    assert_eq!(played.asked("begin 1 20"), "2 5 0 2");
    assert_eq!(played.asked("begin 2 20"), "2 5 0 2");
    assert_eq!(played.used(MEMBER).running, 3);
    // A server refuses one of them: it waits for the map.
    heard_all(&played.door);
    assert_eq!(played.asked("refused 2 7"), "0");
    heard(&played.door);
    assert_eq!(played.used(MEMBER).refused, 7);
    played.ask("begin 2 0");
    played.until(|used| used.waiting == 1, MEMBER);
    played.tell(MEMBER, 7, 7, &[2]);
    assert_eq!(played.answer(), "1 7 2");
    drop(played.to);
    assert!(played.child.wait().unwrap().success());
    assert!(played.file.has_surely_ended());
}

fn heard_nothing(door: &UnixDatagram) {
    door.set_nonblocking(true).unwrap();
    assert!(door.recv(&mut [0; 17]).is_err());
    door.set_nonblocking(false).unwrap();
}

fn heard_all(door: &UnixDatagram) {
    door.set_nonblocking(true).unwrap();
    while door.recv(&mut [0; 17]).is_ok() {}
    door.set_nonblocking(false).unwrap();
}

#[test]
fn a_server_serves_nothing_before_it_knows_a_fence() {
    let workshop = workshop();
    let source = here("epochs.c");
    let Some(program) = program(workshop.path(), Language::C, &[source], &["-lbaro"]) else {
        return;
    };
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut played = Played::start(&program, dir.path());
    played.file.tell_map(MEMBER, &MapWords::OFF).unwrap();
    played.file.wake_phases().unwrap();
    assert_eq!(played.answer(), "0 0 0 1", "nobody keeps it");
    // The request waits; the agent answers.
    played.ask("serve 0 4");
    heard(&played.door);
    played.until(|used| used.running == 0, SERVER);
    played.tell(SERVER, 0, 4, &[0, 1]);
    assert_eq!(played.answer(), "0 0");
    assert_eq!(played.asked("serve 1 3"), "1 4");
    assert_eq!(
        played.asked("serve 2 9"),
        "0 0",
        "the fence is not moved by requests"
    );
    let used = played.used(SERVER);
    assert_eq!((used.running, used.oldest_epoch), (2, Some(4)));
    // A fence: what runs goes on, and its end wakes the agent.
    played.tell(SERVER, 0, 5, &[0]);
    assert_eq!(played.asked("serve 1 4"), "1 5");
    heard_all(&played.door);
    assert_eq!(played.asked("served 0 1000"), "0");
    heard(&played.door);
    assert_eq!(played.used(SERVER).oldest_epoch, Some(9));
    // A fence is not forgotten, whatever the file says.
    played.file.tell_map(SERVER, &MapWords::OFF).unwrap();
    assert_eq!(played.asked("serve 1 4"), "1 5");
    assert_eq!(played.asked("serve 1 0"), "1 5");
    assert_eq!(played.asked("serve 1 5"), "0 0");
    // Closed, it serves nothing.
    assert_eq!(played.asked("close 0 0"), "closed");
    drop(played.to);
    assert!(played.child.wait().unwrap().success());
}
