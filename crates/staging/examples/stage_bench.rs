//! What staging costs on this machine, beside peers in the same run: a copy in memory, reads on the
//! node and over TCP, a plain file in memory, and Valkey or Redis if one is installed.
//!
//! `stage_bench [SECONDS]` prints the median of each in turns, so that a busy machine is as busy
//! for all.
#![expect(
    clippy::disallowed_methods,
    reason = "an example measures by the clock of the machine, and waits for a peer to start"
)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use barograph_model::Clock;
use barograph_staging::client::{
    ClientConfig, GetOptions, MappedCheck, PutOptions, ServerAddress, StagingMap,
};
use barograph_staging::server::ServerConfig;
use barograph_staging::{BlockKey, BlockStore, StagingClient, StagingServer, StoreConfig};

const BYTES: usize = 1 << 20;
/// Different blocks that are read in turn: together they are larger than the processor's caches.
const BLOCKS: u64 = 64;
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;
type Step<'a> = Box<dyn FnMut(u64) -> Fallible<()> + 'a>;

struct MachineClock(Instant);

impl Clock for MachineClock {
    fn now_ns(&self) -> i64 {
        self.monotonic_ns()
    }

    fn monotonic_ns(&self) -> i64 {
        self.0.elapsed().as_nanos() as i64
    }
}

/// A server of keys and values that was started for the comparison.
struct Peer {
    name: String,
    child: Child,
    stream: BufReader<TcpStream>,
}

#[expect(
    clippy::too_many_lines,
    reason = "a table: what is compared, a step for each"
)]
fn main() -> Fallible<()> {
    let seconds: u64 = std::env::args()
        .nth(1)
        .map_or(Ok(10), |word| word.parse())?;
    let directory = tempfile::tempdir_in("/dev/shm")?;
    let (server, user) = serve(directory.path())?;
    let address = server.tcp_address().ok_or("TCP is bound")?;
    let unix = ServerAddress::Unix(directory.path().join("socket"));
    let client = |address: ServerAddress, mapped| client(address, mapped, user);
    let mapped = client(unix.clone(), Some(MappedCheck::Generation));
    let checked = client(unix.clone(), Some(MappedCheck::Checksum));
    let socket = client(unix, None);
    let tcp = client(ServerAddress::Tcp(address), None);
    let data: Vec<u8> = (0..BYTES).map(|at| (at * 31 % 251) as u8).collect();
    for number in 0..BLOCKS {
        mapped.put(&key(number)?, 1, &data, &PutOptions::default())?;
        std::fs::write(directory.path().join(number.to_string()), &data)?;
    }
    let held: Vec<_> = (0..BLOCKS)
        .map(|number| Ok(mapped.map_block(&key(number)?)?.ok_or("it is in memory")?))
        .collect::<Fallible<_>>()?;
    let mut peer = Peer::start(&data)?;
    let sources: Vec<_> = (0..BLOCKS).map(|_| data.clone()).collect();
    let path = directory.path();
    let mut copied = vec![0; BYTES];
    let [mut a, mut b, mut c, mut d, mut e] = [(); 5].map(|()| vec![0; BYTES]);
    let (mut file, mut value) = (vec![0; BYTES], vec![0; BYTES]);
    let mut puts = 1;
    let mut steps: Vec<(String, Step<'_>)> = vec![
        (
            "copy of 1 MiB (memcpy)".into(),
            Box::new(|number| {
                copied.copy_from_slice(&sources[number as usize]);
                std::hint::black_box(&copied);
                Ok(())
            }),
        ),
        (
            "node: mapped block, copied".into(),
            Box::new(|number| {
                held[number as usize]
                    .copy_into(0, &mut a)
                    .ok_or("it is there")?;
                Ok(())
            }),
        ),
        (
            "node: mapped block, in pieces".into(),
            Box::new(|number| {
                let mut sum = 0_u64;
                let each = |piece: &[u8]| sum += u64::from(piece[0]);
                held[number as usize].pieces(each).ok_or("it is there")?;
                std::hint::black_box(sum);
                Ok(())
            }),
        ),
        ("node: get (asked, copied)".into(), get(&mapped, &mut b)),
        ("node: get with checksum".into(), get(&checked, &mut c)),
        (
            "node: get over the unix socket".into(),
            get(&socket, &mut d),
        ),
        ("loopback TCP: get".into(), get(&tcp, &mut e)),
        (
            "file in tmpfs: open and read".into(),
            Box::new(|number| {
                let mut opened = std::fs::File::open(path.join(number.to_string()))?;
                Ok(opened.read_exact(&mut file)?)
            }),
        ),
        (
            "node: put".into(),
            Box::new(|number| {
                puts += 1;
                mapped.put(&key(number + BLOCKS)?, puts, &data, &PutOptions::default())?;
                Ok(())
            }),
        ),
    ];
    if let Some(peer) = &mut peer {
        let name = format!("loopback TCP: GET of {}", peer.name);
        steps.push((name, Box::new(|number| peer.get(number, &mut value))));
    }
    let medians = measure(&mut steps, Duration::from_secs(seconds))?;
    print(&steps, &medians);
    Ok(())
}

/// A step that gets blocks.
fn get<'a>(client: &'a StagingClient, out: &'a mut Vec<u8>) -> Step<'a> {
    Box::new(|number| {
        client.get_into(&key(number)?, out, &GetOptions::default())?;
        Ok(())
    })
}

fn key(number: u64) -> Fallible<BlockKey> {
    Ok(BlockKey::numbered("bench", number)?)
}

/// A server of this user, with 1 GiB of memory.
fn serve(directory: &std::path::Path) -> Fallible<(StagingServer, u32)> {
    let user = rustix::process::geteuid().as_raw();
    let tokens = directory.join("tokens");
    std::fs::create_dir(&tokens)?;
    let token = tokens.join(user.to_string());
    std::fs::write(&token, TOKEN)?;
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600))?;
    let mut config = StoreConfig::default();
    config.memory.bounds = barograph_staging::TierBounds::single(1 << 30, 1 << 16);
    let store = BlockStore::open(config, Arc::new(MachineClock(Instant::now())))?;
    let config = ServerConfig {
        unix: Some(directory.join("socket")),
        tcp: Some("127.0.0.1:0".parse()?),
        tokens: Some(tokens),
        ..ServerConfig::default()
    };
    Ok((StagingServer::start(store, config)?, user))
}

fn client(address: ServerAddress, mapped: Option<MappedCheck>, user: u32) -> StagingClient {
    let config = ClientConfig {
        user,
        token: TOKEN.into(),
        mapped,
        ..ClientConfig::default()
    };
    let map = StagingMap {
        epoch: 0,
        servers: [(0, address)].into(),
    };
    StagingClient::new(config, map, Arc::new(MachineClock(Instant::now())))
}

/// The median time of each step, in microseconds: all take turns.
fn measure(steps: &mut [(String, Step<'_>)], time: Duration) -> Fallible<Vec<f64>> {
    let mut times = vec![Vec::new(); steps.len()];
    let began = Instant::now();
    let mut round = 0;
    while began.elapsed() < time || round < 2 * BLOCKS {
        for ((_, step), times) in steps.iter_mut().zip(&mut times) {
            let start = Instant::now();
            step(round % BLOCKS)?;
            // The first round touches memory for the first time.
            if round >= BLOCKS {
                times.push(start.elapsed().as_nanos() as f64 / 1e3);
            }
        }
        round += 1;
    }
    Ok(times
        .into_iter()
        .map(|mut times| {
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        })
        .collect())
}

fn print(steps: &[(String, Step<'_>)], medians: &[f64]) {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    println!(
        "1 MiB, medians; load {} on {processors} processors",
        load.trim_end()
    );
    println!("{:36} {:>9} {:>9} {:>9}", "", "us", "GiB/s", "of copy");
    for ((name, _), us) in steps.iter().zip(medians) {
        let rate = BYTES as f64 / us * 1e6 / f64::from(1 << 30);
        println!("{name:36} {us:9.1} {rate:9.2} {:9.2}", us / medians[0]);
    }
    if steps.len() == 9 {
        println!("neither valkey-server nor redis-server is in PATH");
    }
}

impl Peer {
    /// Starts Valkey or Redis, and sets the values.
    fn start(data: &[u8]) -> Fallible<Option<Self>> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        for name in ["valkey-server", "redis-server"] {
            let mut command = Command::new(name);
            command.args(["--port", &port.to_string(), "--bind", "127.0.0.1"]);
            command.args(["--save", "", "--appendonly", "no"]);
            command.stdout(Stdio::null()).stderr(Stdio::null());
            let Ok(child) = command.spawn() else { continue };
            let stream = connect(SocketAddr::from(([127, 0, 0, 1], port)))?;
            let name = name.trim_end_matches("-server").to_owned();
            let stream = BufReader::with_capacity(64 << 10, stream);
            let mut peer = Self {
                name,
                child,
                stream,
            };
            for number in 0..BLOCKS {
                let key = number.to_string();
                let head = format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${BYTES}\r\n", key.len());
                let stream = peer.stream.get_mut();
                stream.write_all(&[head.as_bytes(), data, b"\r\n"].concat())?;
                peer.line()?;
            }
            return Ok(Some(peer));
        }
        Ok(None)
    }

    fn get(&mut self, number: u64, out: &mut [u8]) -> Fallible<()> {
        let key = number.to_string();
        let request = format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len());
        self.stream.get_mut().write_all(request.as_bytes())?;
        if self.line()? != format!("${BYTES}") {
            return Err("another length".into());
        }
        self.stream.read_exact(out)?;
        self.line().map(drop)
    }

    fn line(&mut self) -> Fallible<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It has no data that anybody wants.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn connect(address: SocketAddr) -> Fallible<TcpStream> {
    for _ in 0..200 {
        if let Ok(stream) = TcpStream::connect(address) {
            stream.set_nodelay(true)?;
            return Ok(stream);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err("the peer does not listen".into())
}
