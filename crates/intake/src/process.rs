//! One process that publishes: its file, its declarations, and the streams of its values.

mod about;
mod called;
mod cells;
mod declared;
mod maps;
mod phases;
mod records;
mod rows;
mod takes;

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::Ordering;

use barograph_archive::JournalPosition;
use barograph_model::{NS_PER_S, SeriesId, StreamKey, Value, ValueType};
use barograph_stream::ingest::{CellsTold, IngestDeclaration, IngestFile};
use barograph_stream::{StreamError, user_name};
use tracing::debug;

use super::answers::CallAnswer;
use super::counts::{IngestCounts, ProcessCounts};
use super::identity::{Instances, PublicationIdentity};
use super::maps::{MapNews, NamedMap};
use super::offers::Offers;
use super::phases::PhaseNews;
use super::scope::{OpenScopes, Scope};
use super::shares::Shares;
use super::taken::TakenMarks;
use super::timing::TickClock;
use about::ProcessStreams;
use barograph_call::Board;
use barograph_stream::ScopeReader;
use cells::Cells;
pub(crate) use declared::REFUSAL_BYTES_MAX;
pub(crate) use takes::TakeBuffer;

/// Work of a look, in records that could be gone through in its time; rings and declarations add to
/// it.
pub(crate) const LOOK_WORK: u64 = 32;
const RINGS_PER_WORK: u64 = 8;
/// Work of one declaration, in records.
const DECLARATION_WORK: u64 = 128;
/// Most declarations that one look takes; further ones come at the next look, and records after
/// them.
const DECLARATIONS_MAX: u64 = 256;
/// Bytes of memory kept for a process, beside its declarations, and for each of its rings,
/// including positions that wait for the disk.
pub(crate) const PROCESS_BYTES: u64 = 4 << 10;
const RING_BYTES: u64 = 640;
/// Minor version of the ingest format since which writers read their refusals.
const REFUSALS_SINCE: u32 = 2;
/// Most batches that wait for the disk separately; beyond it, each two become one.
const WAITING_MAX: usize = 64;
/// Age from which a batch counts as safe: the archive has counted the losses of it.
const SAFE_NS_MAX: i64 = 10 * NS_PER_S;
/// Longest time for which the file of an ended process waits for a scope that cannot be opened. It
/// does not wait for ever, since its memory may be what the scope lacks, and there may be as many
/// scopes as there can be. Values that are given up then are counted by the agent itself.
const ENDED_WAITS_NS_MAX: i64 = 300 * NS_PER_S;

/// A declared publication.
struct Publication {
    identity: Option<PublicationIdentity>,
    /// The labels as declared.
    labels: Vec<(String, String)>,
    reader: ScopeReader,
    frames: Option<StreamKey>,
    /// Whether there was no room for its stream of frames; this is tried again.
    waits: bool,
    newest_frame: Option<u64>,
    values: u32,
    /// The volume, if its frames tell of phases of I/O.
    volume: Option<String>,
    /// The map of servers that it names.
    map: Option<NamedMap>,
}

impl Publication {
    /// One that is refused, and keeps its number.
    fn refused(reader: ScopeReader) -> Self {
        Self {
            identity: None,
            labels: Vec::new(),
            reader,
            frames: None,
            waits: false,
            newest_frame: None,
            values: 0,
            volume: None,
            map: None,
        }
    }
}

/// A declared value.
struct Target {
    publication: usize,
    value_type: ValueType,
    /// Most bytes of its values, for types that are no numbers.
    bytes_max: u32,
    key: Option<StreamKey>,
    /// Whether there was no room for its stream; this is tried again.
    waits: bool,
    /// The series of a counter.
    counter: Option<SeriesId>,
    /// Whether a counter continues a series of an earlier process: then a 0 is appended before its
    /// first value.
    begins_anew: bool,
    /// Name, unit and help, in case it is declared a knob.
    texts: [Box<str>; 3],
}

/// A batch that was given to the archive and is not safe yet.
struct Waiting {
    until: Vec<(ScopeReader, JournalPosition)>,
    tails: Vec<u64>,
    cells: CellsTold,
    newest_ns: i64,
    /// Monotonic time at which it was given.
    since_ns: i64,
}

impl Waiting {
    /// Joins this batch with an earlier one.
    fn after(mut self, earlier: Self) -> Self {
        for (reader, position) in earlier.until {
            if self.until.iter().all(|(of, _)| *of != reader) {
                self.until.push((reader, position));
            }
        }
        self
    }
}

/// A process that publishes, living or not.
pub(crate) struct PublishingProcess {
    file: IngestFile,
    user: String,
    owner: ScopeReader,
    application: String,
    labels: Vec<(String, String)>,
    publications: Vec<Publication>,
    targets: Vec<Target>,
    /// Declarations that wait for a scope that is being opened.
    undeclared: VecDeque<IngestDeclaration>,
    offers: Offers,
    cells: Cells,
    /// Its answers in this round.
    answers: Vec<CallAnswer>,
    about: Option<ProcessStreams>,
    waiting: VecDeque<Waiting>,
    /// Most values, and most publications, that it may declare.
    values_max: usize,
    /// Bytes of memory that are counted for it against its user.
    kept_bytes: u64,
    /// Number of rings that are included in `kept_bytes`.
    rings_paid: u64,
    /// Whether its user had no memory left for a declaration: all later ones would get wrong
    /// numbers.
    is_spent: bool,
    /// Whether it cannot be called since its user's scope could not be opened; this is counted as a
    /// refusal.
    is_uncallable: bool,
    /// The readers of its publications.
    readers: BTreeSet<ScopeReader>,
    last_refusal: String,
    /// If a declaration waits for room: [`OpenScopes::rooms`] when it was last tried.
    waits_for_room: Option<u64>,
    /// Monotonic time from which waiting declarations may be tried again.
    next_retry_ns: i64,
    /// Its streams have ended; the rest waits for the disk.
    is_retired: bool,
    /// Number of values that it dropped itself, as far as they are counted in the ledger.
    dropped_told: u64,
    newest_ns: i64,
    /// Time of each ring's last record; after a frame, 1 ns more.
    reached: Vec<i64>,
    pub counts: ProcessCounts,
    phases: PhaseNews,
    maps: MapNews,
    /// The values that earlier lives of the agent took in.
    taken: TakenMarks,
    /// [`OpenScopes::marks_read`] when `taken` was last read.
    marks_known: u64,
    /// Whether it is looked at in each round; otherwise it knocks.
    pub is_awake: bool,
    /// Monotonic time of its last news.
    pub news_ns: i64,
}

/// The parts of the intake that a round works with.
pub(crate) struct IntakeRound<'r, 'c> {
    pub board: &'r Board,
    pub scopes: &'r mut OpenScopes<'c>,
    pub instances: &'r mut Instances,
    /// Bytes of memory that are kept for processes, by user.
    pub memory: &'r mut Shares<u32>,
    pub timing: &'r TickClock,
    pub counts: &'r IngestCounts,
    pub takes: &'r mut TakeBuffer,
    pub now_ns: i64,
    pub monotonic_ns: i64,
}

impl IntakeRound<'_, '_> {
    /// Counts values that are lost since there is no scope that could report it.
    fn lose(&self, count: u64) {
        self.counts.lost.fetch_add(count, Ordering::Relaxed);
    }
}

/// The result of a look.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProcessLook {
    pub has_news: bool,
    /// Whether there is more that could be taken now.
    pub has_more: bool,
    /// Number of records gone through, of any kind.
    pub records: u64,
    /// Work of the whole look, in records.
    pub work: u64,
}

impl PublishingProcess {
    /// Makes a process; the caller has counted [`PROCESS_BYTES`] against its user.
    pub(crate) fn new(file: IngestFile, values_max: usize, monotonic_ns: i64) -> Self {
        let (uid, _) = file.owner();
        Self {
            user: user_name(uid),
            owner: ScopeReader::User(uid),
            cells: Cells::new(&file),
            kept_bytes: PROCESS_BYTES,
            rings_paid: 0,
            is_spent: false,
            is_uncallable: false,
            readers: BTreeSet::new(),
            file,
            application: String::new(),
            labels: Vec::new(),
            publications: Vec::new(),
            targets: Vec::new(),
            undeclared: VecDeque::new(),
            offers: Offers::default(),
            answers: Vec::new(),
            about: None,
            waiting: VecDeque::new(),
            values_max,
            last_refusal: String::new(),
            waits_for_room: None,
            next_retry_ns: i64::MIN,
            is_retired: false,
            dropped_told: 0,
            newest_ns: 0,
            reached: Vec::new(),
            counts: ProcessCounts::default(),
            phases: PhaseNews::default(),
            maps: MapNews::default(),
            taken: TakenMarks::default(),
            marks_known: 0,
            is_awake: true,
            news_ns: monotonic_ns,
        }
    }

    pub(crate) fn file(&self) -> &IngestFile {
        &self.file
    }

    /// Time since its last news.
    pub(crate) fn quiet_ns(&self, monotonic_ns: i64) -> i64 {
        monotonic_ns.saturating_sub(self.news_ns)
    }

    /// The user id of its file's owner.
    pub(crate) fn uid(&self) -> u32 {
        self.file.owner().0
    }

    /// Takes in what is new, at most about `records_max` records.
    pub(crate) fn attend(
        &mut self,
        round: &mut IntakeRound<'_, '_>,
        records_max: u64,
    ) -> Result<ProcessLook, StreamError> {
        self.settle(round);
        self.file.look()?;
        let awaits_scope =
            self.may_wait(round.monotonic_ns) && round.scopes.is_opening(self.loss_reader());
        self.learn_taken(round);
        if awaits_scope {
            self.cells.put_off(round.monotonic_ns);
        }
        if awaits_scope || !self.pay_rings(round) {
            // Its records wait in the rings.
            return Ok(ProcessLook {
                work: LOOK_WORK,
                ..ProcessLook::default()
            });
        }
        let mut declared = Vec::new();
        let read = match self.undeclared.is_empty() {
            true => self
                .file
                .some_declarations(DECLARATIONS_MAX as usize, &mut |declaration| {
                    declared.push(declaration);
                }),
            // There may be more after those that wait.
            false => Ok(true),
        };
        let rings = self.file.positions().len() as u64;
        let declared_work = declared.len() as u64 * DECLARATION_WORK;
        // Cells are noted before other declarations are taken: it may be long before a process does
        // anything that is worth a stream.
        self.counts.refused += self.cells.note(declared);
        let has_counted = self.look_at_cells(round)? && records_max > 0;
        self.undeclared.extend(self.cells.declared());
        let mut attended = ProcessLook {
            work: LOOK_WORK + rings / RINGS_PER_WORK + declared_work,
            ..ProcessLook::default()
        };
        while let Some(declaration) = self.undeclared.pop_front() {
            if self.awaits_scope(&declaration, round) {
                // Its records wait as well.
                self.undeclared.push_front(declaration);
                return read.map(|_| attended);
            }
            self.learn_taken(round);
            self.declare(declaration, round);
            attended.has_news = true;
        }
        self.join(round);
        if read? {
            // Records may belong to values that are yet to be declared.
            attended.has_more = true;
            self.news_ns = round.monotonic_ns;
            return Ok(attended);
        }
        if attended.has_news {
            self.news_ns = round.monotonic_ns;
        }
        if self.may_wait(round.monotonic_ns) && round.scopes.of(self.loss_reader()).is_none() {
            // Nothing can be recorded now: the ring is the queue.
            return Ok(attended);
        }
        self.take_in(round, records_max, has_counted, attended)
    }

    /// Takes in records and counted cells, and ends the streams of a process that will have no
    /// more.
    fn take_in(
        &mut self,
        round: &mut IntakeRound<'_, '_>,
        records_max: u64,
        has_counted: bool,
        mut attended: ProcessLook,
    ) -> Result<ProcessLook, StreamError> {
        let before = self.counts;
        attended.work += self.retry(round)? * DECLARATION_WORK;
        if self.has_more_to_retry() {
            // Records wait here as well: there may be room for the other declarations.
            attended.has_more = true;
            self.news_ns = round.monotonic_ns;
            return Ok(attended);
        }
        // A scope may just have been opened.
        self.learn_taken(round);
        self.taken
            .skip(&mut self.file, self.readers.iter().copied());
        if has_counted {
            let told = self.tell_cells(round)?;
            attended.records += told;
            attended.work += told;
        }
        let drained = self.drain(round, records_max)?;
        attended.records += drained.passed;
        attended.work += drained.passed;
        attended.has_more = drained.has_more;
        self.tell_loss(round);
        let has_ended = match self.file.has_cells() {
            true => self.cells.is_final(),
            false => self.file.is_closed(),
        };
        if has_ended && self.file.is_drained() {
            self.retire(round);
        }
        if self.file.version_minor() >= REFUSALS_SINCE
            && let Err(error) = self.file.set_refusals(self.counts.refused)
        {
            debug!(%error, "a process is not told what is refused");
        }
        attended.has_news |= self.counts != before;
        if attended.has_news {
            self.news_ns = round.monotonic_ns;
        }
        Ok(attended)
    }

    /// Whether its records may wait for a scope that cannot be opened. An ended process without
    /// records needs none.
    fn may_wait(&self, monotonic_ns: i64) -> bool {
        let has_ended = self.file.is_closed() || self.cells.is_gone();
        if !has_ended {
            return true;
        }
        let is_told = !self.file.has_cells() || self.cells.is_final();
        let has_nothing = is_told && self.file.is_drained();
        !has_nothing && self.quiet_ns(monotonic_ns) < ENDED_WAITS_NS_MAX
    }

    /// Asks the scopes what earlier lives of the agent took in from it, if a scope has read new
    /// marks since. This comes before its rings are read.
    fn learn_taken(&mut self, round: &IntakeRound<'_, '_>) {
        let marks = round.scopes.marks_read();
        if self.marks_known != marks {
            self.marks_known = marks;
            round
                .scopes
                .tell_taken(self.file.incarnation(), &mut self.taken);
        }
    }

    /// Counts the memory for new rings against its user; false if that is too much.
    fn pay_rings(&mut self, round: &mut IntakeRound<'_, '_>) -> bool {
        let rings = self.file.positions().len() as u64;
        let bytes = rings.saturating_sub(self.rings_paid) * RING_BYTES;
        let is_paid = bytes == 0 || round.memory.take(self.uid(), bytes);
        if is_paid {
            self.kept_bytes += bytes;
            self.rings_paid = rings.max(self.rings_paid);
        }
        is_paid
    }

    /// Gives the archive what was taken in; the tails follow when it is safe. `error_ns` is the
    /// error of the times that were read.
    fn hand_over(&mut self, round: &mut IntakeRound<'_, '_>, error_ns: Option<i64>) {
        self.tell_received(round, error_ns);
        let mut until = Vec::new();
        // Only the scopes of its readers and its owner contain anything of this process.
        for reader in self.readers.iter().copied().chain([self.owner]) {
            if let Some(position) = round.scopes.of(reader).and_then(Scope::finish) {
                until.push((reader, position));
            }
        }
        if self.waiting.len() >= WAITING_MAX {
            self.join_waiting();
        }
        self.waiting.push_back(Waiting {
            until,
            tails: self.file.positions().collect(),
            cells: self.cells.told(),
            newest_ns: self.newest_ns,
            since_ns: round.monotonic_ns,
        });
        self.settle(round);
    }

    /// Joins each two waiting batches, since the disk is behind and nothing waits for it; a joined
    /// batch is safe when the later one is.
    fn join_waiting(&mut self) {
        let mut all = std::mem::take(&mut self.waiting).into_iter();
        while let Some(earlier) = all.next() {
            self.waiting.push_back(match all.next() {
                Some(later) => later.after(earlier),
                None => earlier,
            });
        }
    }

    /// Moves the tails past batches that have become safe.
    fn settle(&mut self, round: &mut IntakeRound<'_, '_>) {
        let mut settled = None;
        while let Some(waiting) = self.waiting.front() {
            let mut until = waiting.until.iter();
            let is_safe = until.all(|(reader, at)| {
                let scope = round.scopes.of(*reader);
                scope.is_none_or(|scope| scope.is_safe(*at))
            });
            let age_ns = round.monotonic_ns.saturating_sub(waiting.since_ns);
            if !is_safe && age_ns < SAFE_NS_MAX {
                break;
            }
            settled = self.waiting.pop_front();
        }
        let Some(settled) = settled else {
            return;
        };
        for (ring, tail) in (0..).zip(&settled.tails) {
            if let Err(error) = self.file.set_tail(ring, *tail) {
                debug!(%error, "a process is not told how far it was read");
            }
        }
        if self.file.has_cells()
            && let Err(error) = self.file.set_cells_told(settled.cells)
        {
            debug!(%error, "a process is not told how far its cells were read");
        }
        let stored = |about: &ProcessStreams| about.stored;
        self.tell(round, stored, Value::Int(settled.newest_ns));
    }

    /// Whether nothing more will come, and all that came is safe. For a process that has not closed
    /// its file this needs a look at /proc, which is made only if it is quiet.
    pub(crate) fn is_over(&self, is_quiet: bool) -> bool {
        let is_done = self.file.is_drained() && self.waiting.is_empty();
        if self.file.has_cells() {
            return is_done && self.cells.is_final();
        }
        is_done && (self.file.is_closed() || (is_quiet && self.file.is_orphan()))
    }

    /// Ends the process and returns its file.
    pub(crate) fn end(mut self, round: &mut IntakeRound<'_, '_>) -> IngestFile {
        self.retire(round);
        round.board.leave(self.uid(), self.file.incarnation());
        round.memory.give_back(&self.uid(), self.kept_bytes);
        if let Some(about) = &self.about {
            if let Some(scope) = round.scopes.of(self.owner) {
                about.keys().for_each(|key| scope.retire(key));
            }
            round.instances.give_back(&about.identity);
        }
        self.file
    }

    /// Retires the streams of its publications, so that later processes can have their names.
    fn retire(&mut self, round: &mut IntakeRound<'_, '_>) {
        if std::mem::replace(&mut self.is_retired, true) {
            return;
        }
        for target in &self.targets {
            let publication = self.publications.get(target.publication);
            let (Some(publication), Some(key)) = (publication, target.key) else {
                continue;
            };
            if let Some(scope) = round.scopes.of(publication.reader) {
                match target.counter {
                    Some(series) => scope.retire_counter(key, series),
                    None => scope.retire(key),
                }
            }
        }
        for publication in &self.publications {
            if let (Some(key), Some(scope)) =
                (publication.frames, round.scopes.of(publication.reader))
            {
                scope.retire(key);
            }
        }
        let publications = self.publications.iter();
        let identities = publications.filter_map(|p| p.identity.as_ref());
        for identity in identities {
            round.instances.give_back(identity);
        }
    }

    /// Tells the process to knock, or not to.
    pub(crate) fn set_asleep(&self, asleep: bool) -> Result<(), StreamError> {
        self.file.set_asleep(asleep)
    }

    /// Whether it has cells but no rings: such a process does not knock.
    pub(crate) fn has_cells_alone(&self) -> bool {
        self.file.has_cells() && self.file.positions().len() == 0
    }

    /// Whether a batch waits for the disk.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }
}
