//! The intake, which takes in what applications publish: it makes rounds over busy processes, and
//! sleeps until a knock from the others. [`Intake::step`] does what is due and returns when it is
//! to be called next, [`Intake::apply`] applies one event, and neither waits: `shell.rs` does.
//!
//! A user who publishes is a stranger to all others and may do anything with his files. So
//! everything that a round does for a user is bounded by a share of the round, and the directory is
//! read in steps beside the rounds.

mod documents;
mod knocks;
mod maps;
mod phases;
mod step;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use barograph_model::{Clock, NS_PER_S};
use barograph_stream::ingest::IngestFile;
use barograph_stream::{Incarnation, StreamError};
use tracing::{debug, warn};

use super::answers::CallAnswers;
use super::bridge::Bridge;
use super::closer::Closer;
use super::config::ApplicationsConfig;
use super::counts::IngestCounts;
use super::directory::{FoundFile, IngestDirectory, is_named};
use super::door::descriptors_for_processes;
use super::event_door::EventStreams;
use super::identity::Instances;
use super::process::{IntakeRound, LOOK_WORK, PROCESS_BYTES, PublishingProcess, TakeBuffer};
use super::rates::RecordRates;
use super::roster::ProcessRoster;
use super::scope::OpenScopes;
use super::shares::Shares;
use super::timing::TickClock;
use crate::call_streams::CallStreams;
use barograph_call::Board;
use barograph_stream::ScopeReader;
use maps::IntakeMaps;
use phases::IntakePhases;
pub(crate) use step::{IntakeEvent, IntakeParts, NextStep};
use step::{IntakeStage, RoundEnd};

/// A process without news for so long is put to sleep: it has to knock.
const AWAKE_NS: i64 = 50_000_000;
/// Time between two looks at every process, and between two passes over the directory.
const SCAN_NS: i64 = NS_PER_S;
/// The same while there is neither process nor scope: looks are for programs that could not knock.
const IDLE_SCAN_NS: i64 = 10 * NS_PER_S;
/// The rest after a round is at least `round_ms` divided by this.
const REST_DIVISOR: i64 = 4;
/// Work of one round, in records that are gone through: some milliseconds. The users with news
/// share it, and each user's processes share his part.
const ROUND_WORK_MAX: u64 = 1 << 15;
/// Least work for a user and a process in a round.
const USER_WORK_MIN: u64 = 1 << 10;
const PROCESS_WORK_MIN: u64 = 1 << 9;
/// Most sleeping processes that one round checks for news.
const SWEEP_MAX: usize = 2_048;
/// The start waits at most so long for the scopes of earlier lives of the agent. Those that take
/// longer are waited for by their own programs alone.
const BEGIN_NS_MAX: i64 = 2 * NS_PER_S;
/// When the thread stops, it waits at most so long for the disk and applications that keep putting.
const FINISH_NS_MAX: i64 = 2 * NS_PER_S;
/// When the thread stops, it makes at most this many steps over the directory.
const LAST_STEPS_MAX: usize = 64;
/// Time between two steps while other threads are waited for, at the beginning and at the end.
const PAUSE_NS: i64 = 2_000_000;

pub(crate) struct Intake<'c> {
    clock: &'c Arc<dyn Clock>,
    limits: ApplicationsConfig,
    stage: IntakeStage,
    board: Arc<Board>,
    call_streams: CallStreams,
    answers: CallAnswers,
    scopes: OpenScopes<'c>,
    instances: Instances,
    timing: TickClock,
    roster: ProcessRoster,
    /// Places of processes, by user.
    places: Shares<u32>,
    /// Bytes of memory that are kept for processes, by user.
    memory: Shares<u32>,
    closer: Closer,
    directory: IngestDirectory,
    /// Files that wait, counted in the current pass over the directory.
    waiting: u64,
    rates: RecordRates,
    bridge: Bridge,
    events: EventStreams,
    /// Time at which the last pass over the directory was begun.
    scanned_ns: i64,
    /// Whether the directory is to be read as soon as its rest ends.
    is_scan_due: bool,
    /// Number of files that were given up since the last beat.
    given_up: u64,
    /// No sweep for news, and no documents, before these monotonic times.
    next_sweep_ns: i64,
    next_documents_ns: i64,
    /// Whether there were more knocks than could be read.
    is_deaf: bool,
    /// Readers whose documents have to be written.
    changed: BTreeSet<ScopeReader>,
    /// Counts of ingest files for the agent's own streams.
    counts: Arc<IngestCounts>,
    takes: TakeBuffer,
    phases: IntakePhases,
    maps: IntakeMaps,
}

/// Borrows the fields that a round needs, so that the other fields can be used beside it.
macro_rules! round {
    ($intake:ident) => {
        IntakeRound {
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
    /// Puts the parts together, and begins to open the scopes of earlier lives of the agent.
    pub(crate) fn new(clock: &'c Arc<dyn Clock>, parts: IntakeParts) -> Self {
        let IntakeParts {
            settings,
            limits,
            counts,
            board,
            bridge,
            events,
        } = parts;
        let closer = Closer::new(&settings.shared.world.work);
        let phases = IntakePhases::new(settings.shared.phases.clone());
        let maps = IntakeMaps::new(settings.shared.maps.clone());
        let directory = IngestDirectory::new(settings.run_dir.ingest_dir());
        let mut scopes = OpenScopes::new(settings, clock);
        scopes.reopen();
        let is_shared = limits.is_open_to_all();
        let processes_max = (limits.processes_max as u64).min(descriptors_for_processes());
        let of_user_max = limits.processes_of_user_max() as u64;
        Self {
            timing: TickClock::new(&**clock),
            clock,
            rates: RecordRates::new(limits.rate_max),
            places: Shares::new(processes_max, of_user_max, is_shared),
            memory: Shares::new(limits.memory_bytes_max, u64::MAX, is_shared),
            limits,
            stage: IntakeStage::Beginning(clock.monotonic_ns().saturating_add(BEGIN_NS_MAX)),
            board,
            call_streams: CallStreams::new(is_shared),
            answers: CallAnswers::default(),
            bridge,
            events,
            scopes,
            instances: Instances::default(),
            roster: ProcessRoster::default(),
            closer,
            directory,
            waiting: 0,
            scanned_ns: i64::MIN,
            is_scan_due: true,
            given_up: 0,
            next_sweep_ns: i64::MIN,
            next_documents_ns: i64::MIN,
            is_deaf: false,
            changed: BTreeSet::new(),
            counts,
            takes: TakeBuffer::default(),
            phases,
            maps,
        }
    }

    /// Does what is due.
    pub(crate) fn step(&mut self) -> NextStep {
        let begun_ns = self.clock.monotonic_ns();
        let stage = self.stage;
        match stage {
            IntakeStage::Beginning(until_ns) if !self.has_begun(begun_ns, until_ns) => {
                return NextStep::At(begun_ns + PAUSE_NS);
            }
            IntakeStage::Beginning(_) | IntakeStage::Running => self.stage = IntakeStage::Running,
            IntakeStage::Ending(until_ns) => return self.step_to_end(begun_ns, until_ns),
            IntakeStage::Ended => return NextStep::Never,
        }
        self.beat();
        let begun_ns = self.clock.monotonic_ns();
        self.attend_doors();
        let round = self.round(false);
        if self.bridge.has_more() || self.events.has_more() || round.has_more {
            return NextStep::At(begun_ns);
        }
        self.next_round(begun_ns, round.has_news)
    }

    /// Applies one event. Work that becomes due by it is done by the next [`Self::step`].
    pub(crate) fn apply(&mut self, event: IntakeEvent) {
        match event {
            IntakeEvent::Knocks(knocks) => self.hear(knocks),
            IntakeEvent::Phases(from) => self.attend_phases(&from),
            IntakeEvent::Stop => {
                self.scan_all();
                let until_ns = self.clock.monotonic_ns().saturating_add(FINISH_NS_MAX);
                self.stage = IntakeStage::Ending(until_ns);
            }
        }
    }

    /// Whether rounds can be made: the rate of the counter is known, and the scopes of earlier
    /// lives are open or take too long.
    fn has_begun(&mut self, now_ns: i64, until_ns: i64) -> bool {
        let is_timed = self.timing.begin(&**self.clock);
        (is_timed && self.scopes.are_reopened()) || now_ns >= until_ns
    }

    /// Takes in what is committed until all of it is safe, so that the next agent does not take it
    /// in again.
    fn step_to_end(&mut self, now_ns: i64, until_ns: i64) -> NextStep {
        if now_ns < until_ns {
            let round = self.round(true);
            let is_waiting =
                self.scopes.are_opening() || self.roster.iter().any(PublishingProcess::is_waiting);
            if round.has_more {
                return NextStep::At(now_ns);
            }
            if round.has_news || is_waiting {
                return NextStep::At(self.clock.monotonic_ns() + PAUSE_NS);
            }
        }
        self.write_documents();
        self.end_phases();
        self.stage = IntakeStage::Ended;
        NextStep::Never
    }

    /// Time at which the next pass over the directory is due, and what else is done at each pass.
    fn next_scan_ns(&self) -> i64 {
        let has_waiting = self.counts.waiting.load(Ordering::Relaxed) > 0;
        let is_idle = !has_waiting && self.roster.is_empty() && self.scopes.are_none();
        let every_ns = if is_idle { IDLE_SCAN_NS } else { SCAN_NS };
        self.scanned_ns.saturating_add(every_ns)
    }

    /// Does what is due at each pass: searches for new files, beats scopes and board, writes
    /// documents. Goes on with the search of the directory when its rest has ended.
    fn beat(&mut self) {
        let now_ns = self.clock.monotonic_ns();
        let is_due = now_ns >= self.next_scan_ns();
        self.is_scan_due |= is_due;
        if self.is_scan_due && now_ns >= self.directory.next_ns() {
            self.is_scan_due = !self.scan();
        }
        if !is_due {
            return;
        }
        self.scanned_ns = now_ns;
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
        self.scopes.beat(now_ns, monotonic_ns);
        self.board.beat();
        if monotonic_ns >= self.next_documents_ns {
            self.write_documents();
        }
    }

    /// Makes one step over the directory: opens new files while there are places; the others wait.
    /// Returns whether it was the last step of a pass.
    fn scan(&mut self) -> bool {
        let begun_ns = self.clock.monotonic_ns();
        let roster = &self.roster;
        let mut step = self
            .directory
            .step(self.clock.now_ns(), |process| roster.has(process));
        self.counts
            .abandoned
            .fetch_add(step.abandoned, Ordering::Relaxed);
        let mut files: Vec<(FoundFile, IngestFile)> = std::mem::take(&mut step.found)
            .into_iter()
            .filter_map(|found| Some((found, self.open(found)?)))
            .collect();
        // Files are added by age, since the directory has no order: older processes get the smaller
        // instance numbers.
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

    /// Searches the whole directory, unless it is too full: the last chance for new files before
    /// the thread stops.
    fn scan_all(&mut self) {
        self.directory.begin_anew();
        for _ in 0..LAST_STEPS_MAX {
            if self.scan() {
                return;
            }
        }
    }

    /// Takes in an unknown process that has knocked; looks only at its own file.
    fn welcome(&mut self, incarnation: Incarnation) {
        // Waiting files are counted by the passes over the directory only.
        let waiting = self.waiting;
        if let Some(found) = self.directory.look_at(incarnation)
            && let Some(file) = self.open(found)
        {
            self.add(found, file);
        }
        self.waiting = waiting;
    }

    /// Opens an ingest file, if there is a place for its process and the file is valid.
    fn open(&mut self, found: FoundFile) -> Option<IngestFile> {
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

    fn add(&mut self, found: FoundFile, file: IngestFile) {
        let (incarnation, uid) = (file.incarnation(), file.owner().0);
        // What was taken in is known by its incarnation, which is also the file's name: a process
        // must not come twice, nor under another one's name.
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
        let mut process = PublishingProcess::new(file, self.limits.values_max, now_ns);
        process.set_schedules(self.phases.schedules());
        self.roster.add(process);
    }

    /// Frees the places of processes whose files are closed.
    fn reap(&mut self) {
        for uid in self.closer.closed() {
            self.places.give_back(&uid, 1);
        }
    }

    /// Takes in values that other protocols have written, and events of files.
    fn attend_doors(&mut self) {
        let mut round = round!(self);
        self.events.attend(&mut round);
        let changed = self.bridge.attend(&mut round, &mut self.rates);
        self.changed.extend(changed);
    }

    /// Makes a round: takes in records of the awake processes, for each user up to a share of the
    /// round. The last rounds look at all processes.
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
        self.answer_phases();
        self.tell_maps();
        end.has_news |= self.end_round();
        end
    }

    /// Gives the processes of a user their turns, until all had one or the user's share is spent.
    fn round_of_user(&mut self, uid: u32, awake: usize, share: u64) -> RoundEnd {
        let mut end = RoundEnd::default();
        let mut left = share;
        let of_process = (share / (awake as u64).max(1)).max(PROCESS_WORK_MIN);
        for _ in 0..awake {
            if left == 0 {
                end.has_more = true;
                break;
            }
            let Some((number, process)) = self.roster.take_turn(uid) else {
                break;
            };
            let allowed = self.rates.allowed(uid, self.clock.monotonic_ns());
            let records_max = allowed.min(left).min(of_process);
            if let Some((look, work)) = self.attend_one(number, process, records_max) {
                left = left.saturating_sub(work);
                end.has_news |= look.has_news;
                // Work that the user's rate holds back is for later.
                end.has_more |= look.has_more && records_max < allowed;
            }
        }
        end
    }

    /// Looks at a process that was taken from the roster, and puts it back, or ends it. Returns the
    /// result and the work, unless its file is damaged.
    fn attend_one(
        &mut self,
        number: u64,
        mut process: Box<PublishingProcess>,
        records_max: u64,
    ) -> Option<(RoundEnd, u64)> {
        let attended = self.attend(&mut process, records_max);
        let is_over = attended.is_err() || {
            let is_quiet = process.quiet_ns(self.clock.monotonic_ns()) > AWAKE_NS;
            process.is_over(is_quiet) && !self.maps.holds(&process, self.clock.monotonic_ns())
        };
        if is_over {
            self.let_go(process, attended.is_ok());
        } else {
            process.answer(&mut self.answers, &self.board);
            self.roster.put_back(number, process);
        }
        attended.ok()
    }

    /// Looks at a process. If it is quiet it is put to sleep and looked at once more, since it may
    /// have put something before it saw that. Returns the result, and the work in records.
    fn attend(
        &mut self,
        process: &mut PublishingProcess,
        records_max: u64,
    ) -> Result<(RoundEnd, u64), StreamError> {
        let mut round = round!(self);
        let mut look = |process: &mut PublishingProcess, records_max: u64| {
            let attended = process.attend(&mut round, records_max);
            match attended {
                // The system refused, and may allow it the next time.
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
            // Such a process does not knock: it is looked at by the clock.
            process.is_awake = false;
        } else if is_quiet && !has_more && !process.is_waiting() && process.set_asleep(true).is_ok()
        {
            // Looks once more for records that were committed before the process could know.
            let again = look(process, records_max)?.unwrap_or_default();
            process.is_awake = again.has_news || again.has_more;
            has_news |= again.has_news;
            has_more |= again.has_more;
            records += again.records;
            work += again.work;
        }
        work += self.phases.report(process, is_quiet);
        work += self
            .maps
            .report(process, is_quiet, self.clock.monotonic_ns());
        self.rates.used(process.uid(), records);
        if has_news {
            self.changed.extend(process.readers());
        }
        Ok((RoundEnd { has_news, has_more }, work))
    }

    /// Ends a process that has nothing more to take in, or whose file is damaged (`is_sound` is
    /// false).
    fn let_go(&mut self, mut process: Box<PublishingProcess>, is_sound: bool) {
        let incarnation = process.file().incarnation();
        self.phases.leave(&mut process);
        self.maps.leave(&mut process);
        process.answer(&mut self.answers, &self.board);
        self.answers.tell_of(incarnation, &self.board);
        self.changed.extend(process.readers());
        self.roster.let_go(&process);
        let mut round = round!(self);
        let file = process.end(&mut round);
        if !is_sound {
            // A damaged file is not removed, so that people can look at it.
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

    /// Ends a round: writes lists of knobs and passes on the answers that wait for them, appends
    /// the streams of calls, and hands over what was appended to the scopes. Returns whether a
    /// scope was opened, so that there may be news that waited for it.
    fn end_round(&mut self) -> bool {
        let begun_ns = self.clock.monotonic_ns();
        if let Some(behind) = self.answers.due(begun_ns) {
            self.write_knobs(&behind);
            let ended_ns = self.clock.monotonic_ns();
            self.answers.tell(begun_ns, ended_ns, &self.board);
        }
        self.call_streams.append(&self.board, &mut self.scopes);
        let directory = &self.directory;
        let has_opened = self.scopes.attend(|process| directory.has(process));
        if has_opened {
            self.roster.wake_all();
        }
        for (_, scope) in self.scopes.iter_mut() {
            scope.finish();
        }
        has_opened
    }

    /// Time of the next round. Rounds begin `round_ms` apart: the duration of a round is taken off
    /// the rest after it, but some rest always remains, so that others have the processor.
    fn next_round(&self, begun_ns: i64, has_news: bool) -> NextStep {
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
        let mut until_ns = self.next_scan_ns().min(self.roster.next_look_ns());
        until_ns = until_ns.min(self.phases.next_ns()).min(self.maps.next_ns());
        if self.is_scan_due {
            until_ns = until_ns.min(self.directory.next_ns());
        }
        if self.is_deaf {
            until_ns = until_ns.min(self.next_sweep_ns);
        }
        // After too many knocks at once, single knocks do not end the sleep.
        if is_busy || self.is_deaf {
            NextStep::At(until_ns.min(now_ns + rest_ns))
        } else {
            NextStep::AtOrKnock(until_ns)
        }
    }
}

#[cfg(test)]
mod tests;
