//! A server of many is loaded by somebody else, is found, and is taken out of the map while members
//! do I/O; later it comes back. All of it with real processes: the load-injection experiment of
//! CLARISSE's slides, with sleeping servers in place of disks. Prints a part of
//! `docs/evaluation/clarisse.md`.
//!
//! `cargo run --release -p barograph-control --example scale [-- SERVERS]...`
//!
//! A server takes the same time for each block, and several times as long while it is loaded. A
//! member writes its blocks to all servers of its map at once, and begins the next operation when
//! all are done: so the slowest server decides, as in collective I/O. Processes talk by datagrams.
#![expect(
    clippy::disallowed_methods,
    reason = "real processes wait for each other and for time"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use barograph_control::{
    ChangeEnd, ControllerMessage, ControllerOutput, ControllerWord, EpochController, EpochMember,
    EpochRecord, EpochServer, EpochTimes, OperationStart, ProcessWord, ServerAnswer, ServerMap,
    ServerSample, SlowConfig, SlowServers,
};

const MS: i64 = 1_000_000;
const MEMBERS: u64 = 4;
/// Blocks of an operation of a member, over all servers.
const BLOCKS: u64 = 48;
const BLOCK_TIME: Duration = Duration::from_micros(1_500);
/// How many times as long a loaded server takes.
const LOADED: u32 = 4;
/// The server that is loaded, and the times of the experiment.
const VICTIM: u64 = 1;
const LOAD_AT: Duration = Duration::from_secs(4);
const UNLOAD_AT: Duration = Duration::from_secs(12);
const BACK_AT: Duration = Duration::from_secs(14);
const END_AT: Duration = Duration::from_secs(18);
/// The time line has a row for each of these.
const ROW: Duration = Duration::from_secs(1);
const TIMES: EpochTimes = EpochTimes {
    drain_ns: 2_000 * MS,
    repeat_ns: 100 * MS,
};
const PATIENCE_NS: i64 = 3_000 * MS;
const HEARTBEAT: Duration = Duration::from_millis(500);

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("server") => return Server::new(&arguments).run(),
        Some("member") => return Member::new(&arguments).run(),
        _ => {}
    }
    let counts: Vec<u64> = arguments.iter().filter_map(|it| it.parse().ok()).collect();
    let counts = if counts.is_empty() {
        vec![4, 8, 16]
    } else {
        counts
    };
    print!("{INTRODUCTION}");
    for servers in counts {
        Experiment::new(servers)?.run()?;
    }
    Ok(())
}

const INTRODUCTION: &str = "
## A loaded server is taken out, and comes back

Real processes: sleeping servers, four members, and a controller, which talk by datagrams (`scale.rs` in the examples of
`crates/control`). A member writes 48 blocks to all servers of its map at once, and begins its next operation when all are done,
so the slowest server decides. At 4 s one server takes four times as long for each block; at 12 s it does not any more, and at 14 s it is
added again. It is found by the ranks of the servers' times of service (`slow.rs`), and taken out by an epoch. Where blocks do not
divide by servers, some servers have one more, and the others wait for them.
";

/// The socket of a process, and the way to the others.
struct Post {
    socket: UnixDatagram,
    dir: PathBuf,
    begun: Instant,
}

impl Post {
    fn new(dir: &Path, name: &str) -> io::Result<Self> {
        Ok(Self {
            socket: UnixDatagram::bind(dir.join(name))?,
            dir: dir.to_owned(),
            begun: Instant::now(),
        })
    }

    fn now_ns(&self) -> i64 {
        i64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(i64::MAX)
    }

    /// Sends words. What does not arrive is said again by whoever needs it.
    fn send(&self, to: &str, words: &str) {
        let _ = self.socket.send_to(words.as_bytes(), self.dir.join(to));
    }

    /// The next message, within a time.
    fn receive(&self, longest: Duration) -> io::Result<Option<Vec<String>>> {
        let longest = longest.max(Duration::from_micros(100));
        self.socket.set_read_timeout(Some(longest))?;
        let mut bytes = [0; 4_096];
        match self.socket.recv(&mut bytes) {
            Ok(length) => {
                let text = String::from_utf8_lossy(&bytes[..length]);
                Ok(Some(text.split(' ').map(str::to_owned).collect()))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn number(words: &[String], at: usize) -> u64 {
    words
        .get(at)
        .and_then(|word| word.parse().ok())
        .unwrap_or(0)
}

/// A message of the controller as words, and back.
fn words_of(message: &ControllerMessage) -> String {
    let term = message.term;
    match &message.what {
        ControllerWord::Prepare { epoch } => format!("prepare {term} {epoch}"),
        ControllerWord::Abort { epoch } => format!("abort {term} {epoch}"),
        ControllerWord::Fence { epoch } => format!("fence {term} {epoch}"),
        ControllerWord::Switch { map } => {
            let servers: Vec<String> = map.servers.iter().map(u64::to_string).collect();
            format!("switch {term} {} {}", map.epoch, servers.join(" "))
        }
    }
}

fn message_of(words: &[String]) -> Option<ControllerMessage> {
    let epoch = number(words, 2);
    let what = match words.first()?.as_str() {
        "prepare" => ControllerWord::Prepare { epoch },
        "abort" => ControllerWord::Abort { epoch },
        "fence" => ControllerWord::Fence { epoch },
        "switch" => ControllerWord::Switch {
            map: map_of(&words[2..]),
        },
        _ => return None,
    };
    let term = number(words, 1);
    Some(ControllerMessage { term, what })
}

/// A map of an epoch and its servers.
fn map_of(words: &[String]) -> ServerMap {
    ServerMap {
        epoch: number(words, 0),
        servers: words[1..]
            .iter()
            .filter_map(|word| word.parse().ok())
            .collect(),
    }
}

/// What a process says, as words, and back.
fn said(word: &ProcessWord) -> String {
    match word {
        ProcessWord::Suspended { epoch, running } => format!("suspended {epoch} {running}"),
        ProcessWord::Drained { epoch } => format!("drained {epoch}"),
        ProcessWord::Fenced { epoch } => format!("fenced {epoch}"),
        ProcessWord::Uses { epoch } => format!("uses {epoch}"),
    }
}

fn word_of(words: &[String]) -> Option<ProcessWord> {
    let epoch = number(words, 1);
    Some(match words.first()?.as_str() {
        "suspended" => ProcessWord::Suspended {
            epoch,
            running: number(words, 2),
        },
        "drained" => ProcessWord::Drained { epoch },
        "fenced" => ProcessWord::Fenced { epoch },
        "uses" => ProcessWord::Uses { epoch },
        _ => return None,
    })
}

/// `server DIR NUMBER`: serves blocks one after the other.
struct Server {
    dir: PathBuf,
    id: u64,
}

impl Server {
    fn new(arguments: &[String]) -> Self {
        Self {
            dir: PathBuf::from(&arguments[1]),
            id: number(arguments, 2),
        }
    }

    fn run(self) -> io::Result<()> {
        let post = Post::new(&self.dir, &format!("s{}", self.id))?;
        let mut server = EpochServer::new(1);
        let mut times = 1;
        loop {
            let Some(words) = post.receive(Duration::from_secs(60))? else {
                return Ok(());
            };
            if let Some(message) = message_of(&words) {
                if let Some(word) = server.hear(&message) {
                    post.send("controller", &format!("s {} {}", self.id, said(&word)));
                }
                continue;
            }
            match words[0].as_str() {
                "end" => return Ok(()),
                "times" => times = number(&words, 1) as u32,
                // block MEMBER OPERATION EPOCH BLOCKS
                _ => {
                    let (member, operation) = (number(&words, 1), number(&words, 2));
                    let blocks = number(&words, 4) as u32;
                    let answer = match server.serve(number(&words, 3)) {
                        ServerAnswer::Fenced { fence } => format!("refused {operation} {fence}"),
                        ServerAnswer::Served => {
                            let begun = Instant::now();
                            std::thread::sleep(BLOCK_TIME * times * blocks);
                            let took_ns = begun.elapsed().as_nanos();
                            format!("done {operation} {} {blocks} {took_ns}", self.id)
                        }
                    };
                    post.send(&format!("m{member}"), &answer);
                }
            }
        }
    }
}

/// `member DIR NUMBER EPOCH SERVER...`: does operations one after the other.
struct Member {
    dir: PathBuf,
    id: u64,
    member: EpochMember,
    operation: u64,
    /// Servers that have not answered in the present operation; `None` while it waits.
    open: Option<BTreeSet<u64>>,
    is_over: bool,
}

impl Member {
    fn new(arguments: &[String]) -> Self {
        Self {
            dir: PathBuf::from(&arguments[1]),
            id: number(arguments, 2),
            member: EpochMember::new(map_of(&arguments[3..]), PATIENCE_NS),
            operation: 0,
            open: None,
            is_over: false,
        }
    }

    fn run(mut self) -> io::Result<()> {
        let post = Post::new(&self.dir, &format!("m{}", self.id))?;
        let mut beat = Instant::now();
        while !self.is_over {
            if self.open.is_none() {
                self.begin(&post);
            }
            if let Some(words) = post.receive(Duration::from_millis(20))? {
                self.hear(&words, &post);
            }
            if beat.elapsed() >= HEARTBEAT {
                beat = Instant::now();
                let words = said(&self.member.heartbeat());
                post.send("controller", &format!("m {} {words}", self.id));
            }
        }
        Ok(())
    }

    fn begin(&mut self, post: &Post) {
        if let OperationStart::Now(map) = self.member.begin(self.operation, post.now_ns()) {
            let count = map.servers.len() as u64;
            for (at, server) in (0..).zip(&map.servers) {
                let blocks = BLOCKS / count + u64::from(at < BLOCKS % count);
                let words = format!(
                    "block {} {} {} {blocks}",
                    self.id, self.operation, map.epoch
                );
                post.send(&format!("s{server}"), &words);
            }
            self.open = Some(map.servers.clone());
        }
    }

    fn hear(&mut self, words: &[String], post: &Post) {
        let output = match words[0].as_str() {
            "end" => {
                self.is_over = true;
                return;
            }
            "done" if number(words, 1) == self.operation => {
                let server = number(words, 2);
                let sample = format!("sample {server} {} {}", number(words, 3), number(words, 4));
                post.send("controller", &format!("m {} {sample}", self.id));
                let Some(open) = &mut self.open else {
                    return;
                };
                open.remove(&server);
                if !open.is_empty() {
                    return;
                }
                post.send("controller", &format!("m {} operation", self.id));
                let ended = self.member.end(self.operation);
                self.operation += 1;
                self.open = None;
                ended
            }
            "refused" if number(words, 1) == self.operation => {
                // All of it is done anew in the next epoch, under another number.
                let refused = self.member.refused(self.operation, number(words, 2));
                self.operation += 1;
                self.open = None;
                refused
            }
            _ => match message_of(words) {
                Some(message) => self.member.hear(&message, post.now_ns()),
                None => return,
            },
        };
        if let Some(word) = output.says {
            post.send("controller", &format!("m {} {}", self.id, said(&word)));
        }
    }
}

/// The controller with its store, the processes, and the time line.
struct Experiment {
    servers: u64,
    dir: PathBuf,
    post: Post,
    children: Vec<Child>,
    controller: EpochController,
    slow: SlowServers,
    operations: BTreeMap<u64, u64>,
    notes: BTreeMap<u64, Vec<String>>,
    begun_change: Option<Instant>,
}

impl Experiment {
    fn new(servers: u64) -> io::Result<Self> {
        let name = format!("baro-scale-{}-{servers}", std::process::id());
        let dir = PathBuf::from("/dev/shm").join(name);
        std::fs::create_dir(&dir)?;
        let map = ServerMap {
            epoch: 1,
            servers: (0..servers).collect(),
        };
        let record = EpochRecord {
            term: 1,
            map: map.clone(),
            last_epoch: 1,
            change: None,
            homes: (0..servers).map(|server| (server, 0)).collect(),
        };
        let post = Post::new(&dir, "controller")?;
        let (controller, outputs) = EpochController::take_over(1, record, 0..MEMBERS, TIMES);
        let slow = SlowServers::new(SlowConfig {
            window_ns: 250 * MS,
            samples_min: 3,
            ..SlowConfig::default()
        });
        let mut experiment = Self {
            servers,
            dir,
            post,
            children: Vec::new(),
            controller,
            slow,
            operations: BTreeMap::new(),
            notes: BTreeMap::new(),
            begun_change: None,
        };
        for server in 0..servers {
            experiment.spawn(&["server".to_owned(), String::new(), server.to_string()])?;
        }
        std::thread::sleep(Duration::from_millis(300));
        let all: Vec<String> = map.servers.iter().map(u64::to_string).collect();
        for member in 0..MEMBERS {
            let head = ["member", "", &member.to_string(), "1"].map(str::to_owned);
            experiment.spawn(&[&head[..], &all[..]].concat())?;
        }
        experiment.post.begun = Instant::now();
        experiment.carry_out(outputs);
        Ok(experiment)
    }

    fn spawn(&mut self, arguments: &[String]) -> io::Result<()> {
        let mut arguments = arguments.to_vec();
        arguments[1] = self.dir.to_string_lossy().into_owned();
        let child = Command::new(std::env::current_exe()?)
            .args(arguments)
            .spawn()?;
        self.children.push(child);
        Ok(())
    }

    fn run(mut self) -> io::Result<()> {
        let steps: [(Duration, &str); 3] =
            [(LOAD_AT, "load"), (UNLOAD_AT, "unload"), (BACK_AT, "back")];
        let mut steps = steps.into_iter().peekable();
        while self.post.begun.elapsed() < END_AT {
            if let Some((_, step)) = steps.next_if(|(at, _)| self.post.begun.elapsed() >= *at) {
                self.do_step(step);
            }
            if let Some(words) = self.post.receive(Duration::from_millis(10))? {
                self.hear(&words);
            }
            let now_ns = self.post.now_ns();
            if let Some(slow) = self.slow.advance(now_ns) {
                self.scale_down(&slow);
            }
            if self
                .controller
                .next_ns()
                .is_some_and(|next_ns| next_ns <= now_ns)
            {
                let outputs = self.controller.tick(now_ns);
                self.carry_out(outputs);
            }
        }
        self.end();
        self.report();
        Ok(())
    }

    fn do_step(&mut self, step: &str) {
        let victim = format!("s{VICTIM}");
        match step {
            "load" => {
                self.post.send(&victim, &format!("times {LOADED}"));
                self.note(format!("server {VICTIM} is loaded"));
            }
            "unload" => {
                self.post.send(&victim, "times 1");
                self.note(format!("server {VICTIM} is not loaded any more"));
            }
            _ => {
                let all = (0..self.servers).collect();
                self.change(all, "it is added again".to_owned());
            }
        }
    }

    fn hear(&mut self, words: &[String]) {
        let from = number(words, 1);
        let words_said = &words[2..];
        let is_server = words[0] == "s";
        match words_said[0].as_str() {
            "operation" => *self.operations.entry(self.row()).or_default() += 1,
            "sample" => {
                let (server, blocks) = (number(words_said, 1), number(words_said, 2));
                let sample = ServerSample {
                    server,
                    ts_ns: self.post.now_ns(),
                    load: blocks,
                    service_s: number(words_said, 3) as f64 / 1e9 / blocks.max(1) as f64,
                };
                if let Some(slow) = self.slow.observe(&sample) {
                    self.scale_down(&slow);
                }
            }
            _ => {
                let Some(word) = word_of(words_said) else {
                    return;
                };
                let outputs = match is_server {
                    true => self.controller.hear_server(from, &word),
                    false => self.controller.hear_member(from, &word),
                };
                self.carry_out(outputs);
            }
        }
    }

    fn scale_down(&mut self, slow: &barograph_control::SlowServer) {
        let mut servers = self.controller.record().map.servers.clone();
        if !servers.remove(&slow.server) {
            return;
        }
        let note = format!(
            "server {} is {:.1} times as slow as its peers, by {} windows (false alarms: {:.0e} in a window)",
            slow.server, slow.ratio, slow.windows, slow.false_alarms
        );
        self.change(servers, note);
    }

    fn change(&mut self, servers: BTreeSet<u64>, note: String) {
        if let Ok(outputs) = self.controller.change(servers) {
            self.note(note);
            self.begun_change = Some(Instant::now());
            self.carry_out(outputs);
        }
    }

    fn carry_out(&mut self, outputs: Vec<ControllerOutput>) {
        for output in outputs {
            match output {
                // The store is this process's memory: what is saved is taken.
                ControllerOutput::Save(_) => {
                    let now_ns = self.post.now_ns();
                    let more = self.controller.saved(true, now_ns);
                    self.carry_out(more);
                }
                ControllerOutput::ToMember(member, message) => {
                    self.post.send(&format!("m{member}"), &words_of(&message));
                }
                ControllerOutput::ToServer(server, message) => {
                    self.post.send(&format!("s{server}"), &words_of(&message));
                }
                ControllerOutput::Ended(ChangeEnd::Switched(map)) => {
                    let took = self
                        .begun_change
                        .take()
                        .map_or(0, |it| it.elapsed().as_millis());
                    let out = (0..self.servers).filter(|it| !map.servers.contains(it));
                    out.for_each(|server| self.slow.forget(server));
                    let (epoch, servers) = (map.epoch, map.servers.len());
                    self.note(format!(
                        "epoch {epoch} with {servers} servers, after {took} ms"
                    ));
                }
                ControllerOutput::Ended(end) => self.note(format!("{end:?}")),
            }
        }
    }

    fn row(&self) -> u64 {
        self.post.begun.elapsed().as_secs() / ROW.as_secs()
    }

    fn note(&mut self, note: String) {
        let row = self.row();
        self.notes.entry(row).or_default().push(note);
    }

    fn end(&mut self) {
        for member in 0..MEMBERS {
            self.post.send(&format!("m{member}"), "end");
        }
        for server in 0..self.servers {
            self.post.send(&format!("s{server}"), "end");
        }
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }

    fn report(&self) {
        println!("\n### One of {} servers\n", self.servers);
        println!("| second | operations | what happens |\n| ---: | ---: | --- |");
        for row in 0..END_AT.as_secs() / ROW.as_secs() {
            let operations = self.operations.get(&row).copied().unwrap_or(0);
            let notes = self
                .notes
                .get(&row)
                .map_or_else(String::new, |it| it.join("; "));
            println!("| {row} | {operations} | {notes} |");
        }
    }
}
