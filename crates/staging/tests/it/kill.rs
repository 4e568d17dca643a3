//! One of two servers is killed again and again, while a client puts blocks with two replicas.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use barograph_staging::client::{ClientConfig, PutOptions, ServerAddress, StagingMap};
use barograph_staging::{FaultCode, StagingClient};

use crate::common::{PATIENCE_NS, bytes, clock, key};

/// A server in a process of its own.
struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    socket: PathBuf,
}

/// The example `stage_server`, which `cargo test` builds beside the tests.
fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test
        .ancestors()
        .nth(2)
        .unwrap()
        .join("examples/stage_server");
    let how = "run `cargo test -p barograph-staging` or build its examples";
    assert!(path.is_file(), "{} is not built: {how}", path.display());
    path
}

impl Process {
    fn start(directory: &Path) -> Self {
        let (socket, tier) = (directory.join("socket"), directory.join("tier"));
        std::fs::create_dir_all(&tier).unwrap();
        let mut command = Command::new(program());
        command.arg(&socket).arg("33554432").arg(tier);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let output = BufReader::new(output);
        let mut process = Self {
            child,
            input,
            output,
            socket,
        };
        process.expect("ready");
        process
    }

    fn expect(&mut self, expect: &str) {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert_eq!(line.trim_end(), expect);
    }

    fn tell(&mut self, epoch: u64, how: &str) {
        writeln!(self.input, "epoch {epoch} {how}").unwrap();
        self.expect(&format!("told {epoch}"));
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that has ended already is no fault.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn map(epoch: u64, servers: &[(u64, &Process)]) -> StagingMap {
    let servers = servers.iter();
    let address = |process: &Process| ServerAddress::Unix(process.socket.clone());
    let servers: BTreeMap<_, _> = servers.map(|(number, it)| (*number, address(it))).collect();
    StagingMap { epoch, servers }
}

#[test]
fn nothing_acknowledged_is_lost_while_a_server_is_killed() {
    const BLOCKS: u64 = 24;
    let directory = tempfile::tempdir().unwrap();
    let [path_a, path_b] = ["a", "b"].map(|name| directory.path().join(name));
    let mut a = Process::start(&path_a);
    let mut b = Process::start(&path_b);
    let config = ClientConfig {
        replicas: 2,
        timeout_ns: PATIENCE_NS,
        ..ClientConfig::default()
    };
    let client = StagingClient::new(config, map(0, &[(0, &a), (1, &b)]), clock());
    // The version of each block that was acknowledged, and the last that was tried.
    let mut acknowledged: BTreeMap<u64, u64> = BTreeMap::new();
    let (mut version, mut epoch) = (0, 0);
    let one = PutOptions {
        acks: Some(1),
        ..PutOptions::default()
    };
    let content = |number: u64, version: u64| bytes(number * 1_000 + version, 20_000);
    for round in 0..8 {
        for number in 0..BLOCKS {
            version += 1;
            let data = content(number, version);
            client
                .put(&key(number), version, &data, &PutOptions::default())
                .unwrap();
            acknowledged.insert(number, version);
        }
        b.kill();
        // Before the map is changed, a put that wants both is not acknowledged.
        version += 1;
        let refused = client.put(
            &key(0),
            version,
            &content(0, version),
            &PutOptions::default(),
        );
        assert_eq!(refused.unwrap_err().code(), Some(FaultCode::TooFew));
        epoch += 1;
        a.tell(epoch, "stayed");
        client.set_map(map(epoch, &[(0, &a)]));
        for number in 0..BLOCKS / 2 {
            version += 1;
            client
                .put(&key(number), version, &content(number, version), &one)
                .unwrap();
            acknowledged.insert(number, version);
        }
        // It comes back, with what it had flushed: old blocks among it.
        b = Process::start(&path_b);
        epoch += 1;
        b.tell(epoch, "joined");
        a.tell(epoch, "stayed");
        client.set_map(map(epoch, &[(0, &a), (1, &b)]));
        for (number, version) in &acknowledged {
            let (info, read) = client.get(&key(*number)).unwrap();
            assert_eq!(info.version, *version, "round {round}, block {number}");
            assert!(
                read == content(*number, *version),
                "round {round}, block {number}"
            );
        }
    }
    let counts = client.counts();
    assert!(counts.repaired > 0 && counts.connections > 2, "{counts:?}");
}
