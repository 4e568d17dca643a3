//! The thread that takes in what applications publish: rounds over those that are busy, sleep with an ear
//! at the door for the others.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use barograph_model::{Clock, NS_PER_S};
use barograph_stream::ingest::IngestFile;
use barograph_stream::{Incarnation, RunDir};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value as Json;
use tracing::{debug, warn};

use super::access::Reader;
use super::answers::Answers;
use super::bridge::Bridge;
use super::calls::{Board, CallStreams};
use super::closer::Closer;
use super::config::ApplicationsConfig;
use super::counts::IngestCounts;
use super::identity::Instances;
use super::leftovers;
use super::process::{Process, Round};
use super::rates::Rates;
use super::scope::{
    CALLS_DOCUMENT, HANDLERS_DOCUMENT, KNOBS_DOCUMENT, PUBLICATIONS_DOCUMENT, Places, Scopes,
};
use super::timing::Timing;
use crate::AgentError;

/// A process without news for so long is told to knock.
const AWAKE_NS: i64 = 50_000_000;
/// Every process is looked at so often, knock or no knock, and the directory as well.
const SCAN_NS: i64 = NS_PER_S;
/// After a look at the directory for somebody who knocks there is none for so many times as long as it took.
const SEARCH_REST: i64 = 20;
/// Files that could not be opened and are not tried again.
const UNUSABLE_MAX: usize = 1_024;
/// A stop waits so long for applications that go on putting, and for the disk.
const FINISH_NS_MAX: i64 = 2 * NS_PER_S;
const PAUSE: Duration = Duration::from_millis(2);
/// Knocks that are heard between two rounds.
const KNOCKS_MAX: usize = 1_024;
const INCARNATION_BYTES: usize = 16;
/// How many knocks wait at the door at most, unless the kernel says otherwise; further ones fail.
const DOOR_QUEUE_DEFAULT: usize = 10;

/// Mode of the directory where other users publish: they make files there, remove and replace none but their own,
/// and do not see whose others there are. Files have the group of who makes them, and let nobody but the
/// agent's user read.
const DOOR_TO_ALL: u32 = 0o1733;

/// The directory and the socket, open to those who may publish.
pub fn open_door(run_dir: &RunDir, to_all: bool) -> Result<UnixDatagram, AgentError> {
    let dir = run_dir.ingest_dir();
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| AgentError::Directory { path, source }
    };
    let mode = if to_all { DOOR_TO_ALL } else { 0o700 };
    let made = fs::DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(&dir);
    made.and_then(|()| fs::set_permissions(&dir, fs::Permissions::from_mode(mode)))
        .map_err(failed(&dir))?;
    let socket = run_dir.ingest_socket();
    let new = socket.with_extension("new");
    let open = || {
        let _ = fs::remove_file(&new);
        let door = UnixDatagram::bind(&new)?;
        door.set_nonblocking(true)?;
        let mode = if to_all { 0o666 } else { 0o600 };
        fs::set_permissions(&new, fs::Permissions::from_mode(mode))?;
        fs::rename(&new, &socket)?;
        Ok(door)
    };
    open().map_err(failed(&socket))
}

/// How many datagrams wait at a socket at most: the kernel takes one more.
fn door_queue() -> usize {
    let said = fs::read_to_string("/proc/sys/net/unix/max_dgram_qlen");
    let said = said.ok().and_then(|text| text.trim().parse().ok());
    said.unwrap_or(DOOR_QUEUE_DEFAULT).max(1)
}

/// All that the thread owns.
pub struct Intake<'c> {
    clock: &'c Arc<dyn Clock>,
    run_dir: RunDir,
    limits: ApplicationsConfig,
    door: UnixDatagram,
    /// Knocks that wait there at most.
    door_queue: usize,
    board: Arc<Board>,
    call_streams: CallStreams,
    answers: Answers,
    scopes: Scopes<'c>,
    instances: Instances,
    timing: Timing,
    processes: Vec<Process>,
    closer: Closer,
    /// Files that are none of ours; looked at once.
    unusable: BTreeSet<PathBuf>,
    rates: Rates,
    bridge: Bridge,
    next_scan_ns: i64,
    /// When all files may be looked at again for somebody who knocks.
    next_search_ns: i64,
    /// Whether a document has to be written at the next beat.
    changed: BTreeSet<Reader>,
    /// What becomes of files.
    counts: Arc<IngestCounts>,
}

impl<'c> Intake<'c> {
    pub fn new(
        clock: &'c Arc<dyn Clock>,
        places: Places,
        limits: ApplicationsConfig,
        door: UnixDatagram,
        counts: Arc<IngestCounts>,
        board: Arc<Board>,
        bridge: Bridge,
    ) -> Self {
        let run_dir = places.run_dir.clone();
        let mut scopes = Scopes::new(places, clock);
        scopes.reopen();
        scopes.forget_all_but(|process| run_dir.ingest_file(process).exists());
        Self {
            timing: Timing::new(&**clock),
            clock,
            run_dir,
            rates: Rates::new(limits.rate_max),
            limits,
            door,
            door_queue: door_queue(),
            board,
            call_streams: CallStreams::default(),
            answers: Answers::default(),
            bridge,
            scopes,
            instances: Instances::default(),
            processes: Vec::new(),
            closer: Closer::new(),
            unusable: BTreeSet::new(),
            next_scan_ns: i64::MIN,
            next_search_ns: i64::MIN,
            changed: BTreeSet::new(),
            counts,
        }
    }

    /// Takes in until told to stop; then what is committed by then.
    pub fn run(mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Acquire) {
            self.beat();
            self.attend_bridge();
            let has_news = self.round(false);
            if self.bridge.has_more() {
                self.hear();
            } else {
                self.wait(has_news);
            }
        }
        self.scan();
        self.finish();
        self.write_documents();
    }

    /// Takes in what is committed, and waits until it is safe, so that it is not taken in again.
    fn finish(&mut self) {
        let until_ns = self.clock.monotonic_ns() + FINISH_NS_MAX;
        while self.clock.monotonic_ns() < until_ns {
            let has_news = self.round(true);
            if !has_news && !self.processes.iter().any(Process::is_waiting) {
                return;
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Once a second: new files, signs of life, documents.
    fn beat(&mut self) {
        let now_ns = self.clock.monotonic_ns();
        if now_ns < self.next_scan_ns {
            return;
        }
        self.next_scan_ns = now_ns + SCAN_NS;
        self.timing.attend(&**self.clock);
        self.scan();
        let left = leftovers::remove(&self.run_dir.ingest_dir(), self.clock.now_ns());
        self.counts.abandoned.fetch_add(left, Ordering::Relaxed);
        for process in &mut self.processes {
            process.is_awake = true;
        }
        let (now_ns, monotonic_ns) = (self.clock.now_ns(), self.clock.monotonic_ns());
        for (_, scope) in self.scopes.iter_mut() {
            scope.beat(now_ns, monotonic_ns);
        }
        self.board.beat();
        self.write_documents();
    }

    /// Opens the files that are new, as far as there are places; the others wait.
    fn scan(&mut self) {
        let Ok(entries) = fs::read_dir(self.run_dir.ingest_dir()) else {
            return;
        };
        let known: BTreeSet<&Path> = self.processes.iter().map(|p| p.file().path()).collect();
        let is_new = |path: &PathBuf| {
            let is_ours = path.extension().is_some_and(|e| e == "ingest");
            is_ours && !known.contains(&**path) && !self.unusable.contains(path)
        };
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let new: Vec<PathBuf> = paths.filter(is_new).collect();
        let mut waiting = 0;
        let mut of_users: HashMap<u32, usize> = HashMap::new();
        for process in &self.processes {
            *of_users.entry(process.uid()).or_default() += 1;
        }
        let of_user_max = self.limits.processes_of_user_max();
        let first_new = self.processes.len();
        for path in new {
            // Who has the file, without opening it.
            let Ok(uid) = fs::symlink_metadata(&path).map(|metadata| metadata.uid()) else {
                continue;
            };
            let of_user = of_users.entry(uid).or_default();
            if self.processes.len() >= self.limits.processes_max || *of_user >= of_user_max {
                waiting += 1;
                continue;
            }
            *of_user += usize::from(self.open(path));
        }
        // Who came first has his streams' names first; a directory has no order.
        self.processes[first_new..].sort_by_key(|process| process.file().created_ns());
        self.counts.waiting.store(waiting, Ordering::Relaxed);
    }

    /// Somebody who is not known has knocked: looks for all who have come, so that one who was there before him,
    /// his parent say, has his streams' names before him. Not for each who comes when that costs much: it would
    /// cost as the square of their number.
    fn search(&mut self) {
        let begun_ns = self.clock.monotonic_ns();
        self.scan();
        let ended_ns = self.clock.monotonic_ns();
        let took_ns = ended_ns.saturating_sub(begun_ns);
        self.next_search_ns = ended_ns.saturating_add(took_ns.saturating_mul(SEARCH_REST));
    }

    /// Takes in a process that has knocked and is not known, by a look at its file alone.
    fn welcome(&mut self, incarnation: Incarnation) {
        let path = self.run_dir.ingest_file(incarnation);
        let Ok(uid) = fs::symlink_metadata(&path).map(|metadata| metadata.uid()) else {
            return;
        };
        let of_user = self.processes.iter().filter(|p| p.uid() == uid).count();
        let is_full = self.processes.len() >= self.limits.processes_max;
        if !is_full
            && of_user < self.limits.processes_of_user_max()
            && !self.unusable.contains(&path)
        {
            self.open(path);
        }
    }

    /// Whether it is a process's file and taken in.
    fn open(&mut self, path: PathBuf) -> bool {
        match IngestFile::open(&path) {
            Ok(file) => self.add(file),
            Err(error) => {
                debug!(%error, "a file in the ingest directory is passed over");
                // One that is being made is tried again.
                if fs::metadata(&path).is_ok_and(|m| m.len() > 0) {
                    self.pass_over(path);
                }
                false
            }
        }
    }

    fn add(&mut self, file: IngestFile) -> bool {
        // One incarnation twice would be taken in twice.
        let is_twin = |p: &Process| p.file().incarnation() == file.incarnation();
        // Nor under another's name: what was taken in is known by it.
        let is_itself = self.run_dir.ingest_file(file.incarnation()) == file.path();
        if !is_itself || self.processes.iter().any(is_twin) {
            self.pass_over(file.path().to_owned());
            return false;
        }
        let now_ns = self.clock.monotonic_ns();
        let taken = self.scopes.taken(file.incarnation());
        let mut process = Process::new(file, self.limits.values_max, now_ns);
        process.taken = taken;
        // Who has ended gives its names back before the new one takes any.
        let same_user = |p: &&mut Process| p.uid() == process.uid();
        for other in self.processes.iter_mut().filter(same_user) {
            other.is_awake = true;
        }
        self.processes.push(process);
        true
    }

    fn pass_over(&mut self, path: PathBuf) {
        if self.unusable.len() >= UNUSABLE_MAX {
            self.unusable.pop_first();
        }
        self.unusable.insert(path);
    }

    /// Takes what other protocols have written.
    fn attend_bridge(&mut self) {
        let mut round = Round {
            board: &self.board,
            scopes: &mut self.scopes,
            instances: &mut self.instances,
            timing: &self.timing,
            now_ns: self.clock.now_ns(),
            monotonic_ns: self.clock.monotonic_ns(),
        };
        let changed = self.bridge.attend(&mut round, &mut self.rates);
        self.changed.extend(changed);
    }

    /// Takes in what the busy ones have; whether there was anything. The last round takes of all.
    fn round(&mut self, is_last: bool) -> bool {
        let monotonic_ns = self.clock.monotonic_ns();
        if is_last || self.processes.iter().any(|p| p.is_due(monotonic_ns)) {
            self.timing.attend(&**self.clock);
        }
        let mut round = Round {
            board: &self.board,
            scopes: &mut self.scopes,
            instances: &mut self.instances,
            timing: &self.timing,
            now_ns: self.clock.now_ns(),
            monotonic_ns: self.clock.monotonic_ns(),
        };
        let mut has_news = false;
        let mut at = 0;
        while at < self.processes.len() {
            let process = &mut self.processes[at];
            if !process.is_due(round.monotonic_ns) && !is_last {
                at += 1;
                continue;
            }
            let uid = process.uid();
            let before = process.counts.values;
            let allowed = self.rates.allowed(uid, round.monotonic_ns);
            let attended = process.attend(&mut round, allowed);
            self.rates.used(uid, process.counts.values - before);
            let is_over = match &attended {
                Ok(news) => {
                    has_news |= news;
                    if *news {
                        self.changed.extend(process.readers());
                    }
                    process.is_over(process.quiet_ns(round.monotonic_ns) > AWAKE_NS)
                }
                Err(error) => {
                    warn!(pid = process.file().pid(), %error, "a process's file is given up");
                    true
                }
            };
            if is_over {
                // In order: whoever has ended gives its names back before who came later takes any.
                let mut process = self.processes.remove(at);
                let incarnation = process.file().incarnation();
                process.answer(&mut self.answers, &self.board);
                self.answers.tell_of(incarnation, &self.board);
                self.changed.extend(process.readers());
                let file = process.end(&mut round);
                if attended.is_err() {
                    // It may be worth a look by people.
                    self.unusable.insert(file.path().to_owned());
                } else if let Err(error) = file.remove() {
                    debug!(%error, "the file of a process that has ended");
                }
                self.closer.close(file);
                if !self.run_dir.ingest_file(incarnation).exists() {
                    round.scopes.forget(incarnation);
                }
                continue;
            }
            let is_quiet = process.quiet_ns(round.monotonic_ns) > AWAKE_NS;
            if is_quiet
                && process.is_awake
                && !process.is_waiting()
                && process.set_asleep(true).is_ok()
            {
                // What was committed before it could know is looked for once more.
                process.is_awake = process.attend(&mut round, allowed).is_ok_and(|news| news);
                if process.is_awake {
                    has_news = true;
                    self.changed.extend(process.readers());
                }
            }
            process.answer(&mut self.answers, &self.board);
            at += 1;
        }
        self.end_round();
        has_news
    }

    /// Lists the knobs that answers are about, tells these, and ends what was appended.
    fn end_round(&mut self) {
        let begun_ns = self.clock.monotonic_ns();
        if let Some(behind) = self.answers.due(begun_ns) {
            self.write_knobs(&behind);
            let ended_ns = self.clock.monotonic_ns();
            self.answers.tell(begun_ns, ended_ns, &self.board);
        }
        self.call_streams.append(&self.board, &mut self.scopes);
        let run_dir = &self.run_dir;
        self.scopes
            .attend(|process| run_dir.ingest_file(process).exists());
        for (_, scope) in self.scopes.iter_mut() {
            scope.finish();
        }
    }

    /// Until the next round is due, or somebody knocks.
    fn wait(&mut self, has_news: bool) {
        let is_awake = || self.processes.iter().any(|p| p.is_awake);
        let is_busy = has_news || !self.answers.is_empty() || is_awake();
        let looks = self.processes.iter().filter_map(Process::look_due_ns);
        let next_ns = looks.fold(self.next_scan_ns, i64::min);
        let until_due_ns = next_ns.saturating_sub(self.clock.monotonic_ns());
        let wait_ns = if is_busy {
            (self.limits.round_ms * 1e6) as i64
        } else {
            until_due_ns
        };
        let wait_ns = wait_ns.clamp(0, until_due_ns.max(0));
        if is_busy {
            std::thread::sleep(Duration::from_nanos(wait_ns.unsigned_abs()));
        } else {
            let timeout = Timespec {
                tv_sec: wait_ns / NS_PER_S,
                tv_nsec: wait_ns % NS_PER_S,
            };
            let mut door = [PollFd::new(&self.door, PollFlags::IN)];
            // Interrupted or not: what is there is looked at.
            let _ = poll(&mut door, Some(&timeout));
        }
        self.hear();
    }

    /// Wakes those who have knocked; when so many have that the door's queue was full, all: a program may have
    /// found it so, and say nothing more.
    fn hear(&mut self) {
        let heard = self.hear_knocks();
        if heard < self.door_queue.min(KNOCKS_MAX) {
            return;
        }
        for process in &mut self.processes {
            process.is_awake = true;
        }
        // Among them may be some who are not known.
        self.next_scan_ns = self.next_scan_ns.min(self.next_search_ns);
    }

    fn hear_knocks(&mut self) -> usize {
        let mut knock = [0; INCARNATION_BYTES + 1];
        for heard in 0..KNOCKS_MAX {
            let Ok(length) = self.door.recv(&mut knock) else {
                return heard;
            };
            if length == 0 {
                // A bridge's: it is attended next.
                continue;
            }
            let Some((incarnation, [])) = knock[..length].split_first_chunk() else {
                continue;
            };
            let incarnation = Incarnation(*incarnation);
            let is_it = |p: &&mut Process| p.file().incarnation() == incarnation;
            match self.processes.iter_mut().find(is_it) {
                Some(process) => process.is_awake = true,
                None if self.clock.monotonic_ns() >= self.next_search_ns => self.search(),
                None => self.welcome(incarnation),
            }
        }
        KNOCKS_MAX
    }

    fn write_knobs(&mut self, readers: &BTreeSet<Reader>) {
        for reader in readers {
            let all = self.processes.iter();
            let knobs: Json = all.flat_map(|p| p.knob_rows(*reader)).collect();
            if let Some(scope) = self.scopes.of(*reader) {
                scope.publish(KNOBS_DOCUMENT, &knobs);
            }
        }
        for process in &mut self.processes {
            process.listed(readers);
        }
    }

    fn write_documents(&mut self) {
        let begun_ns = self.clock.monotonic_ns();
        let changed = std::mem::take(&mut self.changed);
        self.write_knobs(&changed);
        // Whoever has answered has had news.
        let ended_ns = self.clock.monotonic_ns();
        self.answers.tell(begun_ns, ended_ns, &self.board);
        for reader in changed {
            let all = self.processes.iter();
            let publications = all.clone().flat_map(|p| p.rows(reader));
            let publications: Json = publications.chain(self.bridge.rows(reader)).collect();
            let handlers: Json = all.flat_map(|p| p.trigger_rows(reader)).collect();
            if let Some(scope) = self.scopes.of(reader) {
                scope.publish(PUBLICATIONS_DOCUMENT, &publications);
                scope.publish(HANDLERS_DOCUMENT, &handlers);
            }
        }
        for (uid, calls) in self.board.documents() {
            if let Some(scope) = self.scopes.of(Reader::User(uid)) {
                scope.publish(CALLS_DOCUMENT, &calls);
            }
        }
        // After those of users, which have more of the same calls.
        if let Some(calls) = self.board.public_document()
            && let Some(scope) = self.scopes.of(Reader::All)
        {
            scope.publish(CALLS_DOCUMENT, &calls);
        }
    }
}

#[cfg(test)]
mod tests {
    use barograph_stream::SystemClock;
    use barograph_stream::ingest::{Producer, ProducerConfig};

    use super::super::bridge::bridge;
    use super::*;
    use crate::Config;

    /// Made by hand: no thread takes anything in meanwhile.
    fn with_intake(test: impl FnOnce(&mut Intake<'_>, &RunDir)) {
        let dir = tempfile::tempdir().unwrap();
        let config = Config {
            run_dir: dir.path().join("run"),
            state_dir: dir.path().join("state"),
            ..Config::default()
        };
        let run_dir = RunDir::new(&config.run_dir);
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let door = open_door(&run_dir, false).unwrap();
        let room = crate::forecasts::Room::new(&config.forecast).unwrap();
        let places = Places::new(&config, run_dir.clone(), room);
        let state_dir = config.state_dir.clone();
        let board = Arc::new(Board::new(run_dir.clone(), state_dir, Arc::clone(&clock)));
        let (_to, from) = bridge(run_dir.ingest_socket(), false, 16).unwrap();
        let limits = config.applications.clone();
        let counts = Arc::default();
        let mut intake = Intake::new(&clock, places, limits, door, counts, board, from);
        test(&mut intake, &run_dir);
    }

    fn programs(run_dir: &RunDir, count: usize) -> Vec<Producer> {
        let clock = SystemClock::new();
        let made =
            || Producer::create(&run_dir.ingest_dir(), ProducerConfig::default(), &clock).unwrap();
        (0..count).map(|_| made()).collect()
    }

    fn knock(run_dir: &RunDir, of: &Producer) {
        let socket = UnixDatagram::unbound().unwrap();
        let sent = socket.send_to(&of.incarnation().0, run_dir.ingest_socket());
        assert_eq!(sent.unwrap(), INCARNATION_BYTES);
    }

    fn taken_in(intake: &Intake<'_>) -> Vec<Incarnation> {
        let all = intake.processes.iter();
        all.map(|process| process.file().incarnation()).collect()
    }

    fn incarnations(of: &[Producer]) -> Vec<Incarnation> {
        of.iter().map(Producer::incarnation).collect()
    }

    #[test]
    fn parents_that_are_known_late_are_taken_before_their_child_that_knocks() {
        with_intake(|intake, run_dir| {
            // Enough of them that no directory has them in this order by chance.
            let family = programs(run_dir, 12);
            knock(run_dir, &family[11]);
            intake.hear();
            assert_eq!(taken_in(intake), incarnations(&family));
            // Those who come later are behind, and nobody is there twice.
            let later = programs(run_dir, 12);
            knock(run_dir, &family[3]);
            knock(run_dir, &later[0]);
            intake.next_search_ns = i64::MIN;
            intake.hear();
            let all = [incarnations(&family), incarnations(&later)].concat();
            assert_eq!(taken_in(intake), all);
        });
    }

    #[test]
    fn a_queue_that_was_full_wakes_those_who_found_it_so() {
        with_intake(|intake, run_dir| {
            let family = programs(run_dir, 3);
            intake.scan();
            let awake =
                |intake: &Intake<'_>| intake.processes.iter().filter(|p| p.is_awake).count();
            intake.processes.iter_mut().for_each(|p| p.is_awake = false);
            (intake.door_queue, intake.next_scan_ns) = (2, i64::MAX);
            knock(run_dir, &family[0]);
            intake.hear();
            assert_eq!((awake(intake), intake.next_scan_ns), (1, i64::MAX));
            knock(run_dir, &family[0]);
            knock(run_dir, &family[0]);
            intake.hear();
            assert_eq!(awake(intake), 3);
            // And those who are not known are looked for.
            assert_eq!(intake.next_scan_ns, intake.next_search_ns);
        });
    }

    #[test]
    fn while_a_search_rests_who_knocks_is_taken_in_alone() {
        with_intake(|intake, run_dir| {
            intake.search();
            assert!(intake.next_search_ns > i64::MIN);
            intake.next_search_ns = i64::MAX;
            let family = programs(run_dir, 3);
            knock(run_dir, &family[2]);
            intake.hear();
            assert_eq!(taken_in(intake), [family[2].incarnation()]);
            // The look each second finds the others.
            intake.scan();
            assert_eq!(intake.processes.len(), 3);
        });
    }
}
