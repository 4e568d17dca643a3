//! A server of Redis, where there is one, and servers that answer nonsense or nothing.

use std::io::{self, Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use barograph_model::NS_PER_S;
use barograph_staging::remote::{ObjectStore, RemoteAddress, RemoteOptions};

use crate::common::{PATIENCE_NS, bytes, clock};

/// A server of Redis that keeps nothing.
pub(crate) struct Server {
    child: Child,
    port: u16,
}

fn open(port: u16, call_ns_max: i64) -> Result<Arc<dyn ObjectStore>, String> {
    let address = format!("redis://127.0.0.1:{port}/3/tests");
    let options = RemoteOptions {
        call_ns_max,
        ..RemoteOptions::default()
    };
    let address = RemoteAddress::parse(&address, "")?;
    let opened = address.open(&options, clock(), true);
    opened.map_err(|error| error.to_string())
}

impl Server {
    /// Starts one; `None` if it is not installed.
    pub(crate) fn start() -> Option<Self> {
        let free = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        // One program has both names, and is what its first word says.
        let mut names = ["redis-server", "redis-check-rdb"].iter();
        let child = names.find_map(|name| {
            let mut command = Command::new(name);
            command.arg0("redis-server");
            command.args(["--bind", "127.0.0.1", "--save", "", "--port"]);
            let command = command.arg(port.to_string()).stdin(Stdio::null());
            let started = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
            started.ok()
        })?;
        Some(Self { child, port })
    }

    /// A store in it, once it answers.
    pub(crate) fn store(&self) -> Arc<dyn ObjectStore> {
        let clock = clock();
        loop {
            match open(self.port, 60 * NS_PER_S) {
                Ok(store) => return store,
                Err(error) => assert!(clock.monotonic_ns() < PATIENCE_NS, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Every store does what the tier relies on.
pub(crate) fn conforms(store: &dyn ObjectStore) {
    let data = bytes(1, 20 << 20);
    for (name, length) in [("u1/a-b_c.d", 1), ("u1/long", data.len()), ("clean", 8)] {
        let mut object = store.create(name, length as u64).unwrap();
        for piece in data[..length].chunks(3 << 20) {
            object.append(piece).unwrap();
        }
        object.finish().unwrap();
    }
    // What is not finished is not there.
    let mut torn = store.create("u1/torn", data.len() as u64).unwrap();
    torn.append(&data[..data.len() - 1]).unwrap();
    drop(torn);
    let listed = || {
        let mut listed = Vec::new();
        let list = store.list(&mut |name, bytes| listed.push((name.to_owned(), bytes)));
        list.unwrap();
        listed.sort();
        listed.dedup();
        listed
    };
    let all = [
        ("clean", 8),
        ("u1/a-b_c.d", 1),
        ("u1/long", data.len() as u64),
    ];
    assert_eq!(listed(), all.map(|(name, bytes)| (name.to_owned(), bytes)));
    let mut out = vec![0; data.len() - 5];
    store.read_at("u1/long", &mut out, 5).unwrap();
    assert!(out == data[5..]);
    let kind = |name: &str, length: usize, offset: u64| {
        let read = store.read_at(name, &mut vec![0; length], offset);
        read.unwrap_err().kind()
    };
    assert_eq!(kind("none", 1, 0), io::ErrorKind::NotFound);
    assert_eq!(kind("clean", 9, 0), io::ErrorKind::UnexpectedEof);
    for name in ["clean", "clean", "u1/a-b_c.d", "u1/long"] {
        store.remove(name).unwrap();
    }
    assert_eq!(listed(), []);
}

/// A real server, where there is one; `e2e/test_stage_remote.py` needs one.
#[test]
fn redis_conforms() {
    let Some(redis) = Server::start() else {
        return;
    };
    conforms(&*redis.store());
}

/// A server that gives each connection this answer and keeps it open.
fn answering(answer: &'static [u8]) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for socket in listener.incoming() {
            let mut socket = socket.unwrap();
            let mut asked = [0; 1_024];
            if socket.read(&mut asked).is_ok_and(|read| read > 0) {
                let _ = socket.write_all(answer);
                kept.push(socket);
            }
        }
    });
    port
}

#[test]
fn a_server_that_answers_nonsense_or_nothing_is_an_error() {
    for (answer, expect) in [
        (&b""[..], "did not answer in time"),
        (b"+OK", "did not answer in time"),
        (b"$-1\r\n", "does not answer as Redis"),
        (b"\r\n", "does not answer as Redis"),
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            "does not answer as Redis",
        ),
        (b"$99999999999\r\n", "does not answer as Redis"),
        (
            b"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
            "does not answer as Redis",
        ),
        (b"*99999999999\r\n", "does not answer as Redis"),
        (b"$3\r\nabcde", "does not answer as Redis"),
        (b"+\xff\r\n", "does not answer as Redis"),
        (b"-NOAUTH Authentication required.\r\n", "NOAUTH"),
        (
            b"+OK\r\n$44\r\nmaxmemory:10\r\nmaxmemory_policy:allkeys-lru\r\n\r\n\r\n",
            "noeviction",
        ),
    ] {
        // DB 3 is selected first.
        let error = open(answering(answer), NS_PER_S / 5).err();
        let error = error.unwrap_or_default();
        let shown = answer.escape_ascii();
        assert!(error.contains(expect), "{shown}: {error}");
    }
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let free = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let error = open(port, NS_PER_S).err().unwrap_or_default();
    assert!(error.contains(&format!("127.0.0.1:{port}")), "{error}");
    assert!(error.contains("leave this tier out"), "{error}");
}
