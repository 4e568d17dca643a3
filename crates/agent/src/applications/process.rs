//! One process that publishes: its file, what it declared, and where its values go.

mod about;
mod called;
mod cells;
mod declare;
mod records;
mod rows;
mod takes;

use std::collections::VecDeque;

use barograph_archive::Position;
use barograph_model::{NS_PER_S, SeriesId, StreamKey, Value, ValueType};
use barograph_stream::ingest::{CellsTold, IngestFile};
use barograph_stream::{StreamError, user_name};
use tracing::debug;

use super::access::Reader;
use super::answers::Answer;
use super::calls::Board;
use super::counts::Counts;
use super::identity::{Identity, Instances};
use super::offers::Offers;
use super::scope::Scopes;
use super::taken::Taken;
use super::timing::Timing;
use about::About;
use cells::Cells;
pub use declare::REFUSAL_BYTES_MAX;

/// Records of one process that one round takes, so that none keeps the others waiting.
const RECORDS_MAX: u64 = 1 << 16;
/// Batches that wait for the disk and are told apart; of more, each two become one.
const WAITING_MAX: usize = 64;
/// After this time a batch counts as safe as it gets: the archive has counted what it lost of it.
const SAFE_NS_MAX: i64 = 10 * NS_PER_S;

/// A publication.
struct Publication {
    identity: Option<Identity>,
    /// As declared.
    labels: Vec<(String, String)>,
    reader: Reader,
    frames: Option<StreamKey>,
    /// Whether there was no room for its frames, and may be later.
    waits: bool,
    newest_frame: Option<u64>,
    values: u32,
}

/// A value.
struct Target {
    publication: usize,
    value_type: ValueType,
    /// Of what is no number: the longest that its stream holds.
    bytes_max: u32,
    key: Option<StreamKey>,
    /// Whether there was no room for it, and may be later.
    waits: bool,
    /// Of a counter, its series.
    counter: Option<SeriesId>,
    /// A counter that goes on a series of an earlier process: a 0 is told before its first value.
    begins_anew: bool,
    /// Name, unit and help, for it may be declared a knob.
    texts: [Box<str>; 3],
}

/// What was given to the archive and is not safe yet.
struct Waiting {
    until: Vec<(Reader, Position)>,
    tails: Vec<u64>,
    cells: CellsTold,
    newest_ns: i64,
    /// When, on the monotonic clock.
    since_ns: i64,
}

impl Waiting {
    /// This one together with one before it.
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
pub struct Process {
    file: IngestFile,
    user: String,
    owner: Reader,
    application: String,
    labels: Vec<(String, String)>,
    publications: Vec<Publication>,
    targets: Vec<Target>,
    offers: Offers,
    cells: Cells,
    /// What it has answered, as long as a round lasts.
    answers: Vec<Answer>,
    about: Option<About>,
    waiting: VecDeque<Waiting>,
    /// Values that were declared; those beyond the bound too.
    values_max: usize,
    last_refusal: String,
    /// Whether a declaration waits for room, and how often there was some when that was last looked at.
    waits_for_room: Option<u64>,
    /// When declarations that wait may be looked at again, on the monotonic clock.
    next_retry_ns: i64,
    /// Its streams have ended; what is left waits for the disk.
    is_retired: bool,
    /// What it gave up itself, as far as that is counted.
    dropped_told: u64,
    newest_ns: i64,
    /// The time of each ring's last record; a frame's and 1 ns.
    reached: Vec<i64>,
    pub counts: Counts,
    /// What earlier lives of the agent took in.
    pub taken: Taken,
    /// Whether it is looked at each round; else it knocks.
    pub is_awake: bool,
    /// When it last had news, on the monotonic clock.
    pub news_ns: i64,
}

/// What a round has to do with.
pub struct Round<'r, 'c> {
    pub board: &'r Board,
    pub scopes: &'r mut Scopes<'c>,
    pub instances: &'r mut Instances,
    pub timing: &'r Timing,
    pub now_ns: i64,
    pub monotonic_ns: i64,
}

impl Process {
    pub fn new(file: IngestFile, values_max: usize, monotonic_ns: i64) -> Self {
        let (uid, _) = file.owner();
        Self {
            user: user_name(uid),
            owner: Reader::User(uid),
            cells: Cells::new(&file),
            file,
            application: String::new(),
            labels: Vec::new(),
            publications: Vec::new(),
            targets: Vec::new(),
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
            counts: Counts::default(),
            taken: Taken::default(),
            is_awake: true,
            news_ns: monotonic_ns,
        }
    }

    pub fn file(&self) -> &IngestFile {
        &self.file
    }

    /// How long it has had no news.
    pub fn quiet_ns(&self, monotonic_ns: i64) -> i64 {
        monotonic_ns.saturating_sub(self.news_ns)
    }

    /// Whose it is.
    pub fn uid(&self) -> u32 {
        self.file.owner().0
    }

    /// Takes in what is new, at most about so many records: whether there was anything.
    pub fn attend(
        &mut self,
        round: &mut Round<'_, '_>,
        records_max: u64,
    ) -> Result<bool, StreamError> {
        self.settle(round);
        self.file.look()?;
        let mut declared = Vec::new();
        let read = self
            .file
            .declarations(&mut |declaration| declared.push(declaration));
        // It may be long before a process does anything that is worth a stream.
        self.counts.refused += self.cells.note(declared);
        let has_counted = self.look_at_cells(round)? && records_max > 0;
        let declared = self.cells.declared();
        let mut has_news = !declared.is_empty();
        for declaration in declared {
            self.declare(declaration, round);
        }
        self.join(round);
        read?;
        let readers = self.publications.iter().map(|p| p.reader);
        self.taken.skip(&mut self.file, readers);
        let before = self.counts;
        if !self.file.is_closed() && round.scopes.of(self.loss_reader()).is_none() {
            // Nothing of it can be kept now: its ring is the queue.
            return Ok(has_news);
        }
        self.retry(round)?;
        if has_counted {
            self.tell_cells(round)?;
        }
        self.drain(round, records_max.min(RECORDS_MAX))?;
        self.tell_loss(round);
        let has_ended = match self.file.has_cells() {
            true => self.cells.is_final(),
            false => self.file.is_closed(),
        };
        if has_ended && self.file.is_drained() {
            self.retire(round);
        }
        has_news |= self.counts != before;
        if has_news {
            self.news_ns = round.monotonic_ns;
            self.is_awake = true;
        }
        Ok(has_news || has_counted)
    }

    /// Gives the archive what was taken in; the tails follow when it is safe. `error_ns` is of the times of what
    /// was read.
    fn hand_over(&mut self, round: &mut Round<'_, '_>, error_ns: Option<i64>) {
        self.tell_received(round, error_ns);
        let mut until = Vec::new();
        for (reader, scope) in round.scopes.iter_mut() {
            if let Some(position) = scope.finish() {
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

    /// The disk is behind, and nobody waits for it: each two batches become one, which is safe when the later is.
    fn join_waiting(&mut self) {
        let mut all = std::mem::take(&mut self.waiting).into_iter();
        while let Some(earlier) = all.next() {
            self.waiting.push_back(match all.next() {
                Some(later) => later.after(earlier),
                None => earlier,
            });
        }
    }

    /// Moves the tails of what has become safe.
    fn settle(&mut self, round: &mut Round<'_, '_>) {
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
        let stored = |about: &About| about.stored;
        self.tell(round, stored, Value::Int(settled.newest_ns));
    }

    /// Whether nothing will come any more, and all that came is safe. Whether a process that has not said
    /// goodbye is gone costs a look at /proc: only for one that is quiet.
    pub fn is_over(&self, is_quiet: bool) -> bool {
        let is_done = self.file.is_drained() && self.waiting.is_empty();
        if self.file.has_cells() {
            return is_done && self.cells.is_final();
        }
        is_done && (self.file.is_closed() || (is_quiet && self.file.is_orphan()))
    }

    /// Gives its file back.
    pub fn end(mut self, round: &mut Round<'_, '_>) -> IngestFile {
        self.retire(round);
        round.board.leave(self.uid(), self.file.incarnation());
        if let Some(about) = &self.about {
            if let Some(scope) = round.scopes.of(self.owner) {
                about.keys().for_each(|key| scope.retire(key));
            }
            round.instances.give_back(&about.identity);
        }
        self.file
    }

    /// Ends the streams of what it published, whose names are free for who comes next.
    fn retire(&mut self, round: &mut Round<'_, '_>) {
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

    /// Tells it to knock, or that it need not.
    pub fn set_asleep(&self, asleep: bool) -> Result<(), StreamError> {
        self.file.set_asleep(asleep)
    }

    /// Whether it is to be looked at in this round.
    pub fn is_due(&self, monotonic_ns: i64) -> bool {
        self.is_awake || self.look_due_ns().is_some_and(|due| monotonic_ns >= due)
    }

    /// Whether something waits for the disk.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }
}
