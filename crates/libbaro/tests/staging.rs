//! Blocks of staging in C programs, at servers of this test: what hosts and servers do in between
//! harms neither.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use barograph_staging::server::ServerConfig;
use barograph_staging::{
    BlockStore, DirectoryConfig, MemoryConfig, ServerMembership, StagingServer, StoreConfig,
    TierBounds,
};
use barograph_stream::SystemClock;

use crate::build::{self, Language, command, must, program, workshop};

const MIB: u64 = 1 << 20;
/// How long a busy machine may take to stop a server, in nanoseconds.
const STOP_NS: i64 = 120_000_000_000;

/// A server, with 16 MiB of memory above a tier of files.
struct Served {
    directory: tempfile::TempDir,
    store: Arc<BlockStore>,
    server: Option<StagingServer>,
}

impl Served {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let tier = directory.path().join("tier");
        std::fs::create_dir(&tier).unwrap();
        let bounds = TierBounds::single(1 << 40, 10_000);
        let config = StoreConfig {
            memory: MemoryConfig {
                bounds: TierBounds::single(16 * MIB, 10_000),
                dirty_bytes_max: 8 * MIB,
            },
            directories: vec![DirectoryConfig::new(&tier, bounds)],
            ..StoreConfig::default()
        };
        let mut served = Self {
            store: BlockStore::open(config, Arc::new(SystemClock::new())).unwrap(),
            directory,
            server: None,
        };
        served.serve();
        served
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    fn serve(&mut self) {
        let config = ServerConfig {
            unix: Some(self.socket()),
            ..ServerConfig::default()
        };
        self.server = Some(StagingServer::start(Arc::clone(&self.store), config).unwrap());
    }

    fn stop(&mut self) {
        self.server.take().unwrap().stop(STOP_NS).unwrap();
    }
}

/// The program, built, and a command that runs it.
fn built(workshop: &Path) -> Option<PathBuf> {
    let source = build::here().join("tests/programs/staging.c");
    program(workshop, Language::C, &[source], &["-lbaro", "-lpthread"])
}

#[test]
fn blocks_come_back_whatever_the_host_does() {
    let workshop = workshop();
    let Some(program) = built(workshop.path()) else {
        return;
    };
    let served = Served::start();
    let folder = tempfile::tempdir().unwrap();
    let mut command = command(&program, folder.path());
    command.arg("whole").arg(served.socket()).arg(folder.path());
    must(&command.output().unwrap());
}

#[test]
fn a_block_that_has_gone_from_shared_memory_is_known_to_have_gone() {
    let workshop = workshop();
    let Some(program) = built(workshop.path()) else {
        return;
    };
    let served = Served::start();
    let mut command = command(&program, workshop.path());
    command.arg("maps").arg(served.socket()).arg("");
    must(&command.output().unwrap());
}

#[test]
fn servers_come_and_go_between_two_operations() {
    let workshop = workshop();
    let Some(program) = built(workshop.path()) else {
        return;
    };
    let mut served = Served::start();
    let mut command = command(&program, workshop.path());
    command.arg("restarts").arg(served.socket()).arg("");
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut to = child.stdin.take().unwrap();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        match line.unwrap().as_str() {
            "restart" => {
                served.stop();
                served.serve();
            }
            "stop" => served.stop(),
            "start" => served.serve(),
            "fence" => fence(&served),
            other => panic!("{other}"),
        }
        // It may have failed meanwhile, and says so below.
        let _ = writeln!(to, "done");
    }
    assert!(child.wait().unwrap().success());
}

fn fence(served: &Served) {
    let told = barograph_staging::server::ToldEpochs {
        prepare: 0,
        epoch: 4,
        fence: 4,
    };
    let server = served.server.as_ref().unwrap();
    server.tell(told, ServerMembership::Stayed);
}

#[test]
fn strangers_in_the_place_of_servers_are_no_servers_at_once() {
    let workshop = workshop();
    let Some(program) = built(workshop.path()) else {
        return;
    };
    let [nonsense, silent] = ["nonsense", "closes"].map(|name| workshop.path().join(name));
    for (path, answer) in [
        (&nonsense, &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..]),
        (&silent, b""),
    ] {
        let listener = UnixListener::bind(path).unwrap();
        // It ends with the test.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                // The client may have gone.
                let _ = stream.and_then(|mut stream| stream.write_all(answer));
            }
        });
    }
    let mut command = command(&program, workshop.path());
    command.arg("strangers").args([nonsense, silent]);
    command.arg(workshop.path().join("nobody"));
    must(&command.output().unwrap());
}

/// The programs of the guide, as a reader would copy them.
#[test]
fn the_program_of_the_guide_runs() {
    let guide = build::here().join("../../docs/guide/staging-programs.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let (_, after) = guide.split_once("```c\n#include").unwrap();
    let (code, _) = after.split_once("```").unwrap();
    let workshop = workshop();
    let source = workshop.path().join("guide.c");
    std::fs::write(&source, format!("#include{code}")).unwrap();
    let Some(program) = program(workshop.path(), Language::C, &[source], &["-lbaro"]) else {
        return;
    };
    let served = Served::start();
    let output = Command::new(&program)
        .arg(served.socket())
        .output()
        .unwrap();
    must(&output);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "run7/pressure 12: 800000 bytes\n"
    );
}
