//! The thread that takes in what applications publish: rounds over those that are busy, sleep with an ear
//! at the door for the others.
//!
//! Whoever may publish is a stranger to all others, and may do anything with his files. So all that a round does
//! for a user is bounded by a share of the round, and the directory is read in steps beside the rounds.

mod documents;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use barograph_model::{Clock, NS_PER_S};
use barograph_stream::ingest::IngestFile;
use barograph_stream::{Incarnation, StreamError};
use tracing::{debug, warn};

use super::answers::Answers;
use super::bridge::Bridge;
use super::closer::Closer;
use super::config::ApplicationsConfig;
use super::counts::IngestCounts;
use super::directory::{Directory, Found, is_named};
use super::door::{Door, descriptors_for_processes};
use super::identity::Instances;
use super::process::{LOOK_WORK, PROCESS_BYTES, Process, Round, Takes};
use super::rates::Rates;
use super::roster::Roster;
use super::scope::{Places, Scopes};
use super::shares::Shares;
use super::timing::Timing;
use crate::call_streams::CallStreams;
use barograph_call::Board;
use barograph_recorder::Reader;

/// A process without news for so long is told to knock.
const AWAKE_NS: i64 = 50_000_000;
/// Every process is looked at so often, knock or no knock, and the directory as well.
const SCAN_NS: i64 = NS_PER_S;
/// After something that others wait for there is a rest of so many times as long as it took.
const REST: i64 = 20;
/// The rest behind a round is at least `round_ms` divided by this.
const REST_DIVISOR: i64 = 4;
/// Work of one round, in records that are gone through: some milliseconds. It is shared by the users who have
/// news, and the share of each by his processes…
const ROUND_WORK_MAX: u64 = 1 << 15;
/// …of which none has less than this.
const USER_WORK_MIN: u64 = 1 << 10;
const PROCESS_WORK_MIN: u64 = 1 << 9;
/// Sleeping processes that one round looks at for news.
const SWEEP_MAX: usize = 2_048;
/// A stop waits so long for applications that go on putting, and for the disk.
const FINISH_NS_MAX: i64 = 2 * NS_PER_S;
/// …and takes so many steps over the directory.
const LAST_STEPS_MAX: usize = 64;
const PAUSE: Duration = Duration::from_millis(2);

/// All that the thread owns.
pub struct Intake<'c> {
    clock: &'c Arc<dyn Clock>,
    limits: ApplicationsConfig,
    door: Door,
    board: Arc<Board>,
    call_streams: CallStreams,
    answers: Answers,
    scopes: Scopes<'c>,
    instances: Instances,
    timing: Timing,
    roster: Roster,
    /// Places of processes, by user.
    places: Shares<u32>,
    /// What is kept of them, in bytes.
    memory: Shares<u32>,
    closer: Closer,
    directory: Directory,
    /// Files that wait, of the pass over the directory that is under way.
    waiting: u64,
    rates: Rates,
    bridge: Bridge,
    next_scan_ns: i64,
    /// Whether the directory is to be looked at as soon as it may be.
    is_scan_due: bool,
    /// Files that were given up since the last beat.
    given_up: u64,
    /// No sweep for news, and no documents, before these times.
    next_sweep_ns: i64,
    next_documents_ns: i64,
    /// Whether more knocked than could be heard.
    is_deaf: bool,
    /// Whose documents have to be written.
    changed: BTreeSet<Reader>,
    /// What becomes of files.
    counts: Arc<IngestCounts>,
    takes: Takes,
}

/// What came of a round.
#[derive(Clone, Copy, Debug, Default)]
struct RoundEnd {
    has_news: bool,
    /// Whether there is work left that only the round's bound has kept it from.
    has_more: bool,
}

/// What a round has to do with: of all that the thread owns, so that the rest can be used beside it.
macro_rules! round {
    ($intake:ident) => {
        Round {
            board: &$intake.board,
            scopes: &mut $intake.scopes,
            instances: &mut $intake.instances,
            memory: &mut $intake.memory,
            timing: &$intake.timing,
            counts: &$intake.counts,
            takes: &mut $intake.takes,
            now_ns: $intake.clock.now_ns(),
            monotonic_ns: $intake.clock.monotonic_ns(),
        }
    };
}

impl<'c> Intake<'c> {
    pub fn new(
        clock: &'c Arc<dyn Clock>,
        places: Places,
        limits: ApplicationsConfig,
        door: Door,
        counts: Arc<IngestCounts>,
        board: Arc<Board>,
        bridge: Bridge,
    ) -> Self {
        let directory = Directory::new(places.run_dir.ingest_dir());
        let mut scopes = Scopes::new(places, clock);
        scopes.reopen();
        scopes.forget_all_but(|process| directory.has(process));
        let is_shared = limits.is_open_to_all();
        let processes_max = (limits.processes_max as u64).min(descriptors_for_processes());
        let of_user_max = limits.processes_of_user_max() as u64;
        Self {
            timing: Timing::new(&**clock),
            clock,
            rates: Rates::new(limits.rate_max),
            places: Shares::new(processes_max, of_user_max, is_shared),
            memory: Shares::new(limits.memory_bytes_max, u64::MAX, is_shared),
            limits,
            door,
            board,
            call_streams: CallStreams::new(is_shared),
            answers: Answers::default(),
            bridge,
            scopes,
            instances: Instances::default(),
            roster: Roster::default(),
            closer: Closer::new(),
            directory,
            waiting: 0,
            next_scan_ns: i64::MIN,
            is_scan_due: true,
            given_up: 0,
            next_sweep_ns: i64::MIN,
            next_documents_ns: i64::MIN,
            is_deaf: false,
            changed: BTreeSet::new(),
            counts,
            takes: Takes::default(),
        }
    }

    /// Takes in until told to stop; then what is committed by then.
    pub fn run(mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Acquire) {
            self.beat();
            let begun_ns = self.clock.monotonic_ns();
            self.attend_bridge();
            let round = self.round(false);
            if !self.bridge.has_more() && !round.has_more {
                self.wait(begun_ns, round.has_news);
            }
            self.hear();
        }
        self.scan_all();
        self.finish();
        self.write_documents();
    }

    /// Takes in what is committed, and waits until it is safe, so that it is not taken in again.
    fn finish(&mut self) {
        let until_ns = self.clock.monotonic_ns() + FINISH_NS_MAX;
        while self.clock.monotonic_ns() < until_ns {
            let round = self.round(true);
            if !round.has_news && !round.has_more && !self.roster.iter().any(Process::is_waiting) {
                return;
            }
            if !round.has_more {
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// Once a second: new files, signs of life, documents. More of the directory when it is time for it.
    fn beat(&mut self) {
        let now_ns = self.clock.monotonic_ns();
        let is_due = now_ns >= self.next_scan_ns;
        self.is_scan_due |= is_due;
        if self.is_scan_due && now_ns >= self.directory.next_ns() {
            self.is_scan_due = !self.scan();
        }
        if !is_due {
            return;
        }
        self.next_scan_ns = now_ns + SCAN_NS;
        let given_up = std::mem::take(&mut self.given_up);
        if given_up > 0 {
            warn!(
                given_up,
                "files of processes are damaged and no longer read: `log = \"debug\"` names them"
            );
        }
        self.timing.attend(&**self.clock);
        self.rates.forget_idle(now_ns);
        self.roster.wake_all();
        let (now_ns, monotonic_ns) = (self.clock.now_ns(), self.clock.monotonic_ns());
        for (_, scope) in self.scopes.iter_mut() {
            scope.beat(now_ns, monotonic_ns);
        }
        self.board.beat();
        if monotonic_ns >= self.next_documents_ns {
            self.write_documents();
        }
    }

    /// One step over the directory: opens the files that are new, as far as there are places; the others wait.
    /// Whether it was the last of a pass.
    fn scan(&mut self) -> bool {
        let begun_ns = self.clock.monotonic_ns();
        let roster = &self.roster;
        let mut step = self
            .directory
            .step(self.clock.now_ns(), |process| roster.has(process));
        self.counts
            .abandoned
            .fetch_add(step.abandoned, Ordering::Relaxed);
        let mut files: Vec<(Found, IngestFile)> = std::mem::take(&mut step.found)
            .into_iter()
            .filter_map(|found| Some((found, self.open(found)?)))
            .collect();
        // Who came first has his streams' names first; a directory has no order.
        files.sort_by_key(|(_, file)| file.created_ns());
        for (found, file) in files {
            self.add(found, file);
        }
        if step.is_last {
            let waiting = std::mem::take(&mut self.waiting);
            self.counts.waiting.store(waiting, Ordering::Relaxed);
        }
        self.directory.rest(begun_ns, self.clock.monotonic_ns());
        step.is_last
    }

    /// All of the directory, if it is not too full: the last chance of those who have come.
    fn scan_all(&mut self) {
        self.directory.begin_anew();
        for _ in 0..LAST_STEPS_MAX {
            if self.scan() {
                return;
            }
        }
    }

    /// Takes in a process that has knocked and is not known, by a look at its file alone.
    fn welcome(&mut self, incarnation: Incarnation) {
        // Who waits is counted where the directory is read.
        let waiting = self.waiting;
        if let Some(found) = self.directory.look_at(incarnation)
            && let Some(file) = self.open(found)
        {
            self.add(found, file);
        }
        self.waiting = waiting;
    }

    /// The file, if there is a place for it and it is one.
    fn open(&mut self, found: Found) -> Option<IngestFile> {
        if !self.places.has_room(&found.uid, 1) || !self.directory.may_open(&found) {
            self.waiting += 1;
            return None;
        }
        match IngestFile::open(&self.directory.file(found.incarnation)) {
            Ok(file) => Some(file),
            Err(error) => {
                debug!(%error, "a file in the ingest directory is passed over");
                self.waiting += u64::from(error.is_passing());
                self.directory.failed(&found, &error);
                None
            }
        }
    }

    fn add(&mut self, found: Found, file: IngestFile) {
        let (incarnation, uid) = (file.incarnation(), file.owner().0);
        // What was taken in is known by its incarnation, which is the file's name: not twice, nor under another's.
        if !is_named(file.path(), incarnation) || self.roster.has(incarnation) {
            self.directory.opened_in_vain(&found);
            self.directory.refuse(found);
            return;
        }
        if !self.places.has_room(&uid, 1) || !self.memory.take(uid, PROCESS_BYTES) {
            self.directory.opened_in_vain(&found);
            self.waiting += 1;
            return;
        }
        self.places.take(uid, 1);
        let now_ns = self.clock.monotonic_ns();
        let process = Process::new(file, self.limits.values_max, now_ns);
        self.roster.add(process);
    }

    /// The places of those whose files are closed are free.
    fn reap(&mut self) {
        for uid in self.closer.closed() {
            self.places.give_back(&uid, 1);
        }
    }

    /// Takes what other protocols have written.
    fn attend_bridge(&mut self) {
        let mut round = round!(self);
        let changed = self.bridge.attend(&mut round, &mut self.rates);
        self.changed.extend(changed);
    }

    /// Takes in what the busy ones have, each user's up to a share of the round. The last rounds take of all.
    fn round(&mut self, is_last: bool) -> RoundEnd {
        if is_last {
            self.roster.wake_all();
        }
        self.reap();
        self.roster.wake_due(self.clock.monotonic_ns());
        let users = self.roster.awake();
        if !users.is_empty() {
            self.timing.attend(&**self.clock);
        }
        let share = (ROUND_WORK_MAX / (users.len() as u64).max(1)).max(USER_WORK_MIN);
        let mut end = RoundEnd::default();
        for (uid, awake) in users {
            let of_user = self.round_of_user(uid, awake, share);
            end.has_news |= of_user.has_news;
            end.has_more |= of_user.has_more;
        }
        self.end_round();
        end
    }

    /// The processes of a user in turns, until all had one or his share is spent.
    fn round_of_user(&mut self, uid: u32, awake: usize, share: u64) -> RoundEnd {
        let mut end = RoundEnd::default();
        let mut left = share;
        let of_process = (share / (awake as u64).max(1)).max(PROCESS_WORK_MIN);
        for _ in 0..awake {
            if left == 0 {
                end.has_more = true;
                break;
            }
            let Some((number, mut process)) = self.roster.take_turn(uid) else {
                break;
            };
            let allowed = self.rates.allowed(uid, self.clock.monotonic_ns());
            let records_max = allowed.min(left).min(of_process);
            let attended = self.attend(&mut process, records_max);
            if let Ok((look, work)) = attended {
                left = left.saturating_sub(work);
                end.has_news |= look.has_news;
                // Where the rate is what holds it back, more is for later.
                end.has_more |= look.has_more && records_max < allowed;
            }
            let is_over = attended.is_err() || {
                let is_quiet = process.quiet_ns(self.clock.monotonic_ns()) > AWAKE_NS;
                process.is_over(is_quiet)
            };
            if is_over {
                self.let_go(process, attended.is_ok());
            } else {
                process.answer(&mut self.answers, &self.board);
                self.roster.put_back(number, process);
            }
        }
        end
    }

    /// Looks at a process, and again after it was told to knock, which it may not have seen in time. What that
    /// cost, in records.
    fn attend(
        &mut self,
        process: &mut Process,
        records_max: u64,
    ) -> Result<(RoundEnd, u64), StreamError> {
        let mut round = round!(self);
        let mut look = |process: &mut Process, records_max: u64| {
            let attended = process.attend(&mut round, records_max);
            match attended {
                // The system refused, and may not the next time.
                Err(error) if error.is_passing() => {
                    debug!(pid = process.file().pid(), %error, "a process is looked at later");
                    Ok(None)
                }
                Err(error) => {
                    debug!(pid = process.file().pid(), %error, "a process's file is given up");
                    Err(error)
                }
                Ok(attended) => Ok(Some(attended)),
            }
        };
        let Some(first) = look(process, records_max)? else {
            process.is_awake = false;
            return Ok((RoundEnd::default(), LOOK_WORK));
        };
        let (mut has_news, mut has_more) = (first.has_news, first.has_more);
        let (mut records, mut work) = (first.records, first.work);
        let is_quiet = process.quiet_ns(self.clock.monotonic_ns()) > AWAKE_NS;
        if process.has_cells_alone() {
            // It does not knock: it is looked at by the clock.
            process.is_awake = false;
        } else if is_quiet && !has_more && !process.is_waiting() && process.set_asleep(true).is_ok()
        {
            // What was committed before it could know is looked for once more.
            let again = look(process, records_max)?.unwrap_or_default();
            process.is_awake = again.has_news || again.has_more;
            has_news |= again.has_news;
            has_more |= again.has_more;
            records += again.records;
            work += again.work;
        }
        self.rates.used(process.uid(), records);
        if has_news {
            self.changed.extend(process.readers());
        }
        Ok((RoundEnd { has_news, has_more }, work))
    }

    /// Ends a process: nothing will come of it any more, or its file `is_sound` no longer.
    fn let_go(&mut self, mut process: Box<Process>, is_sound: bool) {
        let incarnation = process.file().incarnation();
        process.answer(&mut self.answers, &self.board);
        self.answers.tell_of(incarnation, &self.board);
        self.changed.extend(process.readers());
        self.roster.let_go(&process);
        let mut round = round!(self);
        let file = process.end(&mut round);
        if !is_sound {
            // It may be worth a look by people.
            self.given_up += 1;
            self.directory.give_up(incarnation);
        } else if let Err(error) = file.remove() {
            debug!(%error, "the file of a process that has ended");
        }
        self.closer.close(file);
        if !self.directory.has(incarnation) {
            self.scopes.forget(incarnation);
        }
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
        let directory = &self.directory;
        self.scopes.attend(|process| directory.has(process));
        for (_, scope) in self.scopes.iter_mut() {
            scope.finish();
        }
    }

    /// Waits until the next round is due, or somebody knocks. Rounds begin `round_ms` apart: the time that a round took is
    /// taken off the rest behind it. Some rest is left always, so that others have the processor.
    fn wait(&mut self, begun_ns: i64, has_news: bool) {
        let now_ns = self.clock.monotonic_ns();
        let round_ns = (self.limits.round_ms * 1e6) as i64;
        let took_ns = now_ns.saturating_sub(begun_ns);
        let rest_ns = round_ns
            .saturating_sub(took_ns)
            .clamp(round_ns / REST_DIVISOR, round_ns);
        let is_busy = has_news
            || !self.answers.is_empty()
            || self.roster.is_anyone_awake()
            || self.roster.is_sweeping();
        let mut until_ns = self.next_scan_ns.min(self.roster.next_look_ns());
        if self.is_scan_due {
            until_ns = until_ns.min(self.directory.next_ns());
        }
        if self.is_deaf {
            until_ns = until_ns.min(self.next_sweep_ns);
        }
        let wait_ns = until_ns.saturating_sub(now_ns).max(0);
        // Who is deaf to single knocks for their number does not get up for each.
        if is_busy || self.is_deaf {
            std::thread::sleep(Duration::from_nanos(wait_ns.min(rest_ns).unsigned_abs()));
        } else {
            self.door.wait(wait_ns);
        }
    }

    /// Wakes those who have knocked, and, where that were so many that others were not heard, all who have
    /// news.
    fn hear(&mut self) {
        let heard = self.door.hear();
        let mut strangers = Vec::new();
        for incarnation in heard.knocks {
            if !self.roster.wake(incarnation) {
                strangers.push(incarnation);
            }
        }
        if !strangers.is_empty() && self.clock.monotonic_ns() >= self.directory.next_ns() {
            // Looks for all who have come, so that one who was there before him, his parent say, has his streams'
            // names before him.
            self.scan();
        }
        for incarnation in strangers {
            if !self.roster.has(incarnation) {
                self.welcome(incarnation);
            }
        }
        self.is_deaf |= heard.is_burst;
        self.sweep();
    }

    /// Looks at sleeping processes for news, where somebody may have knocked in vain.
    fn sweep(&mut self) {
        let begun_ns = self.clock.monotonic_ns();
        if self.is_deaf && begun_ns >= self.next_sweep_ns {
            self.is_deaf = false;
            self.roster.begin_sweep();
        }
        if self.roster.is_sweeping() {
            self.roster.sweep(SWEEP_MAX);
            self.next_sweep_ns = after_rest(begun_ns, self.clock.monotonic_ns());
        }
    }
}

/// When something may be done again that took so long.
fn after_rest(begun_ns: i64, ended_ns: i64) -> i64 {
    let took_ns = ended_ns.saturating_sub(begun_ns).max(0);
    ended_ns.saturating_add(took_ns.saturating_mul(REST))
}

#[cfg(test)]
mod tests;
