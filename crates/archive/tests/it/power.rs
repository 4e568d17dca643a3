//! An archive without threads, on a manual clock, whose power fails at seeded moments: what it
//! reported as synced or sealed is there once after each failure.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use barograph_archive::testing::ForgettingDisk;
use barograph_archive::{
    ArchiveConfig, ArchiveReader, CopyTarget, Journal, JournalPosition, Keeper, KeeperLoops,
    SealRequest,
};
use barograph_model::{Clock as _, ManualClock, NS_PER_S, Span, ValueType};

use crate::support::{assert_sound, config, declare, dir_in_memory, sample};

const BEGIN: i64 = 1_700_000_000 * NS_PER_S;
const HOURS: i64 = 3;
const STREAMS: [&str; 2] = ["durable.often", "other"];
/// Time between two requests to seal, in s.
const SEAL_S: i64 = 1_700;

/// A target that only remembers the paths of its copies.
struct Copies(Arc<Mutex<BTreeSet<PathBuf>>>);

impl CopyTarget for Copies {
    fn copy(&mut self, local: &Path, relative: &Path, _: &AtomicBool) -> Result<(), String> {
        // Files may be merged while they wait to be copied.
        if !local.exists() {
            return Err("it is gone".into());
        }
        self.0.lock().unwrap().insert(relative.to_owned());
        Ok(())
    }

    fn remove(&mut self, relative: &Path, _: &AtomicBool) -> Result<(), String> {
        self.0.lock().unwrap().remove(relative);
        Ok(())
    }
}

/// The archive's report of one life: numbers of samples, of each stream.
#[derive(Clone, Copy, Debug, Default)]
struct Reported {
    submitted: u64,
    /// The last number of the durable stream that is synced.
    synced: u64,
    /// The last number of every stream that is sealed.
    sealed: u64,
}

struct Simulation {
    dir: tempfile::TempDir,
    disk: ForgettingDisk,
    clock: Arc<ManualClock>,
    copies: Arc<Mutex<BTreeSet<PathBuf>>>,
    random: u64,
    lives: Vec<Reported>,
}

/// A run of the archive between two power failures.
struct Life {
    keeper: Keeper,
    loops: KeeperLoops,
    journal: Journal,
    reported: Reported,
    /// Positions that are not synced yet, with the number of the last sample.
    unsynced: Vec<(JournalPosition, u64)>,
    /// The request to seal that is not answered yet, with the number of the last sample.
    sealing: Option<(SealRequest, u64)>,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let dir = dir_in_memory();
        Self {
            disk: ForgettingDisk::new(dir.path()),
            dir,
            clock: Arc::new(ManualClock::at(BEGIN)),
            copies: Arc::default(),
            random: seed,
            lives: Vec::new(),
        }
    }

    fn config(&self) -> ArchiveConfig {
        ArchiveConfig {
            commit_ns: NS_PER_S / 100,
            flush_ns: NS_PER_S,
            segment_ns_max: 600 * NS_PER_S,
            ..config(self.dir.path())
        }
    }

    fn random(&mut self, limit: u64) -> u64 {
        let next = self.random.wrapping_mul(6_364_136_223_846_793_005);
        self.random = next.wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % limit
    }

    /// Starts the archive. The power may fail meanwhile.
    fn start(&mut self) -> Option<Life> {
        let config = self.config();
        let journal = Journal::new(&config);
        let (keeper, loops) = Keeper::start_stepped(
            config,
            Arc::new(self.disk.clone()),
            Arc::clone(&self.clock) as _,
            Some(Box::new(Copies(Arc::clone(&self.copies)))),
            journal.clone(),
        )
        .inspect_err(|error| assert!(self.disk.is_off(), "{error}"))
        .ok()?;
        let life = self.lives.len() as i64;
        let declare = |(key, name): (u32, &&str)| declare(key, name, ValueType::Int, life);
        journal.submit(&mut (0..).zip(&STREAMS).map(declare).collect());
        Some(Life {
            keeper,
            loops,
            journal,
            reported: Reported::default(),
            unsynced: Vec::new(),
            sealing: None,
        })
    }

    /// Runs one life until its power fails, or the end of all hours.
    fn live(&mut self, end_ns: i64) {
        let fails_in_seal = self.random(2) == 0;
        let operations = self.random(if fails_in_seal { 200 } else { 4_000 });
        if !fails_in_seal {
            self.disk.fail_after(operations);
        }
        let mut life = self.start();
        while let Some(life) = &mut life
            && !self.disk.is_off()
            && self.clock.now_ns() < end_ns
        {
            life.append(self.clock.now_ns());
            if (self.clock.now_ns() - BEGIN) / NS_PER_S % SEAL_S == 0 {
                life.seal();
                if fails_in_seal {
                    self.disk.fail_after(operations);
                }
            }
            life.run(&self.clock, NS_PER_S);
        }
        let reported = life.as_ref().map(|life| life.reported);
        self.lives.push(reported.unwrap_or_default());
        if let Some(life) = life.filter(|_| !self.disk.is_off()) {
            // The end of the test is an orderly one.
            self.disk.fail_after(u64::MAX);
            drop(life.keeper);
            life.loops.finish(self.clock.now_ns());
            let last = self.lives.last_mut().unwrap();
            (last.synced, last.sealed) = (last.submitted, last.submitted);
        } else {
            let seed = self.random(u64::MAX);
            self.disk.restart(seed).unwrap();
        }
    }

    /// Every sample that was reported as synced or sealed is there, and none is there twice.
    fn check(&self) {
        let found = numbers(self.dir.path());
        for (life, reported) in self.lives.iter().enumerate() {
            for (name, least) in STREAMS
                .iter()
                .zip([reported.synced.max(reported.sealed), reported.sealed])
            {
                let found = found.get(&((*name).to_owned(), life as i64));
                let found = found.map_or(&[][..], Vec::as_slice);
                let count = found.len() as u64;
                let what = format!("{name} of life {life}, {count} samples: {reported:?}");
                assert!(found.iter().copied().eq(1..=count), "{what}");
                assert!((least..=reported.submitted).contains(&count), "{what}");
            }
        }
    }
}

impl Life {
    fn append(&mut self, now_ns: i64) {
        self.reported.submitted += 1;
        let number = self.reported.submitted;
        let value = (number * number % 1_000) as i64;
        let streams = 0..STREAMS.len() as u32;
        let mut entries = streams
            .map(|key| sample(key, number, now_ns, value))
            .collect();
        let position = self.journal.submit(&mut entries);
        self.unsynced.push((position, number));
    }

    fn seal(&mut self) {
        let request = self.keeper.request_seal().unwrap();
        self.sealing = Some((request, self.reported.submitted));
    }

    /// Steps the loops until so much time has passed, and notes what they report.
    fn run(&mut self, clock: &ManualClock, for_ns: i64) {
        let end_ns = clock.now_ns() + for_ns;
        while clock.now_ns() < end_ns {
            let due_ns = self.loops.step(clock.monotonic_ns());
            clock.advance(due_ns.min(end_ns) - clock.now_ns());
            self.note();
        }
    }

    fn note(&mut self) {
        let is_synced = |(position, _): &(JournalPosition, u64)| {
            self.journal.wait_durable(*position, Duration::ZERO)
        };
        let synced = self.unsynced.iter().take_while(|of| is_synced(of)).count();
        if let Some((_, number)) = self.unsynced.drain(..synced).next_back() {
            self.reported.synced = number;
        }
        let answer = self
            .sealing
            .as_ref()
            .and_then(|(sealing, _)| sealing.poll());
        if let Some(answer) = answer
            && let Some((_, number)) = self.sealing.take()
            && answer.is_ok()
        {
            self.reported.sealed = number;
        }
    }
}

/// Returns the numbers of all samples, by stream and life.
fn numbers(root: &Path) -> BTreeMap<(String, i64), Vec<u64>> {
    let view = ArchiveReader::open(root).view().unwrap();
    let all: Vec<usize> = (0..view.series().len()).collect();
    let mut found = BTreeMap::<_, Vec<u64>>::new();
    for chunk in view.scan(&all, Span::ALL, &AtomicBool::new(false)) {
        let chunk = chunk.unwrap();
        let name = view.series()[chunk.series].descriptor.name.as_str();
        let of = found.entry((name.to_owned(), chunk.life)).or_default();
        of.extend(&chunk.columns.numbers);
    }
    found
}

/// Returns the content of every file below a directory.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(next) = dirs.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else {
                let content = std::fs::read(&path).unwrap();
                files.insert(path.strip_prefix(dir).unwrap().to_owned(), content);
            }
        }
    }
    files
}

/// Runs all hours; returns the number of power failures, and all files.
fn simulate(seed: u64) -> (usize, BTreeMap<PathBuf, Vec<u8>>) {
    let mut simulation = Simulation::new(seed);
    let end_ns = BEGIN + HOURS * 3_600 * NS_PER_S;
    while simulation.clock.now_ns() < end_ns {
        simulation.live(end_ns);
        simulation.check();
    }
    assert_sound(simulation.dir.path());
    assert!(simulation.lives.iter().any(|life| life.sealed > 0));
    assert!(!simulation.copies.lock().unwrap().is_empty());
    (simulation.lives.len() - 1, files(simulation.dir.path()))
}

#[test]
fn what_was_reported_survives_each_power_failure_once() {
    for seed in 1..=4 {
        let (failures, _) = simulate(seed);
        assert!(failures > 0, "seed {seed}");
    }
}

#[test]
fn the_same_seed_gives_the_same_files() {
    let (first, second) = (simulate(1), simulate(1));
    assert_eq!(first.0, second.0);
    assert!(first.1.keys().eq(second.1.keys()), "other files");
    for (path, content) in &first.1 {
        assert!(second.1[path] == *content, "{} differs", path.display());
    }
    assert!(simulate(2).1 != first.1);
}
