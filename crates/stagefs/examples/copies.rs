//! How long programs take that copy files to a mount and read them there, beside tmpfs:
//!
//!     cargo run --release -p barograph-stagefs --example copies [DIRECTORY OF TMPFS] [MIB]
//!
//! The server and the mount are processes of their own; source and plain copy are on tmpfs. Prints
//! the median of five repeats, and the load of the machine.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "it measures, and ends if anything fails"
)]

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use barograph_model::Clock;
use barograph_stagefs::{Mount, MountConfig};
use barograph_staging::client::{ClientConfig, MappedCheck, ServerAddress, StagingMap};
use barograph_staging::server::ServerConfig;
use barograph_staging::{
    BlockStore, MemoryConfig, StagingClient, StagingServer, StoreConfig, TierBounds,
};

const REPEATS: usize = 5;
const SMALL_FILES: usize = 500;
const SMALL_BYTES: usize = 4 << 10;

struct SystemClock(Instant);

impl Clock for SystemClock {
    fn now_ns(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        since.as_nanos() as i64
    }

    fn monotonic_ns(&self) -> i64 {
        self.0.elapsed().as_nanos() as i64
    }
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock(Instant::now()))
}

/// A process of this program in another role.
struct Role(Child);

impl Role {
    fn start(words: &[&Path]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut ready = [0; 6];
        child
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut ready)
            .unwrap();
        Self(child)
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        // It ends when its input does.
        self.0.stdin = None;
        let _ = self.0.wait();
    }
}

fn wait_for_end() {
    println!("ready");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

fn serve(socket: &Path) {
    let bytes = 4 << 30;
    let config = StoreConfig {
        memory: MemoryConfig {
            bounds: TierBounds::single(bytes, 1 << 20),
            dirty_bytes_max: bytes,
        },
        ..StoreConfig::default()
    };
    let store = BlockStore::open(config, clock()).unwrap();
    let config = ServerConfig {
        unix: Some(socket.to_owned()),
        ..ServerConfig::default()
    };
    let server = StagingServer::start(store, config).unwrap();
    wait_for_end();
    drop(server);
}

fn mount(socket: &Path, place: &Path) {
    let map = StagingMap {
        epoch: 0,
        servers: BTreeMap::from([(0, ServerAddress::Unix(socket.to_owned()))]),
    };
    let config = ClientConfig {
        // As the command has it.
        mapped: Some(MappedCheck::Checksum),
        ..ClientConfig::default()
    };
    let client = StagingClient::new(config, map, clock());
    let config = MountConfig::new("bench");
    let mount = Mount::new(&config, Arc::new(client), clock(), place).unwrap();
    wait_for_end();
    mount.stop().unwrap();
}

/// The seconds that a command takes; its median.
fn seconds(mut prepare: impl FnMut(), command: &str, directory: &Path) -> f64 {
    let mut all: Vec<f64> = (0..REPEATS)
        .map(|_| {
            prepare();
            let start = Instant::now();
            let mut shell = Command::new("sh");
            let done = shell.arg("-c").arg(command).current_dir(directory).status();
            assert!(done.unwrap().success(), "{command}");
            start.elapsed().as_secs_f64()
        })
        .collect();
    all.sort_by(f64::total_cmp);
    all[REPEATS / 2]
}

fn measure(root: &Path, mib: usize) {
    let load = fs::read_to_string("/proc/loadavg").unwrap();
    println!("load before: {load}");
    let [socket, source, plain, files, small] =
        ["socket", "source", "plain", "files", "small"].map(|name| root.join(name));
    for directory in [&plain, &files, &small] {
        fs::create_dir(directory).unwrap();
    }
    let block: Vec<u8> = (0..1 << 20)
        .map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 9) as u8)
        .collect();
    fs::write(&source, block.repeat(mib)).unwrap();
    for number in 0..SMALL_FILES {
        fs::write(
            small.join(format!("file{number}")),
            &block[number..number + SMALL_BYTES],
        )
        .unwrap();
    }
    let _server = Role::start(&[Path::new("serve"), &socket]);
    let _mount = Role::start(&[Path::new("mount"), &socket, &files]);
    let places = [("tmpfs", &plain), ("mount", &files)];
    let rate = |seconds: f64| format!("{:.0} MiB/s", mib as f64 / seconds);
    let each = |seconds: f64| format!("{:.2} ms", seconds * 1e3 / SMALL_FILES as f64);
    for (name, place) in places {
        let remove = || {
            let _ = fs::remove_file(place.join("copy"));
            let _ = fs::remove_dir_all(place.join("small"));
        };
        // What a mount was given is not in the kernel's cache, only what was read.
        let copy = |command: &'static str| {
            move || {
                remove();
                let mut shell = Command::new("sh");
                assert!(
                    shell
                        .arg("-c")
                        .arg(command)
                        .current_dir(place)
                        .status()
                        .unwrap()
                        .success()
                );
            }
        };
        let (large, small) = ("cp ../source copy", "cp -r ../small small");
        println!(
            "{name}: cp of {mib} MiB: {}",
            rate(seconds(remove, large, place))
        );
        let read = seconds(copy(large), "cat copy > /dev/null", place);
        println!("{name}: cat of it for the first time: {}", rate(read));
        println!(
            "{name}: cat of it again: {}",
            rate(seconds(|| (), "cat copy > /dev/null", place))
        );
        println!(
            "{name}: cp of {SMALL_FILES} files of 4 KiB, each: {}",
            each(seconds(remove, small, place))
        );
        let read = seconds(copy(small), "cat small/* > /dev/null", place);
        println!("{name}: cat of them, each: {}", each(read));
    }
    println!(
        "load after: {}",
        fs::read_to_string("/proc/loadavg").unwrap()
    );
}

fn main() {
    let words: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    match words
        .iter()
        .map(|word| word.to_str().unwrap_or_default())
        .collect::<Vec<_>>()[..]
    {
        ["serve", socket] => serve(Path::new(socket)),
        ["mount", socket, place] => mount(Path::new(socket), Path::new(place)),
        ref others => {
            let tmpfs = others.first().copied().unwrap_or("/dev/shm");
            let mib = others.get(1).map_or(1_024, |mib| mib.parse().unwrap());
            let root = Path::new(tmpfs).join(format!("barograph-copies-{}", std::process::id()));
            fs::create_dir(&root).unwrap();
            measure(&root, mib);
            fs::remove_dir_all(&root).unwrap();
        }
    }
}
