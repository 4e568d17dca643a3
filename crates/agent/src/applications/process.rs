//! One process that publishes: its file, what it declared, and where its values go.

mod about;
mod called;
mod cells;
mod records;
mod rows;

use std::collections::VecDeque;

use barograph_archive::Position;
use barograph_model::{Descriptor, NS_PER_S, Sample, StreamKey, Value, ValueType};
use barograph_stream::ingest::{
    CellsTold, Declaration, IngestFile, Payload, Readers, Record,
};
use barograph_stream::{StreamError, user_name, value_bytes_max};
use tracing::debug;

use super::access::Reader;
use super::answers::Answer;
use super::calls::Board;
use super::counts::Counts;
use super::identity::{Identity, Instances, PROCESS};
use super::offers::Offers;
use super::scope::Scopes;
use super::taken::Taken;
use super::timing::Timing;
use super::who::group_of;
use about::About;
use cells::Cells;
use records::{Times, in_order, mark_of, place};

/// Records of one process that one round takes, so that none keeps the others waiting.
const RECORDS_MAX: u64 = 1 << 16;
/// Batches that wait for the disk before the next is given to it.
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
        if self.waiting.len() >= WAITING_MAX {
            // The disk is behind: its ring is the queue.
            return Ok(has_news);
        }
        if has_counted {
            self.tell_cells(round)?;
        }
        let before = self.counts;
        self.drain(round, records_max.min(RECORDS_MAX))?;
        self.counts.dropped = self.file.dropped();
        self.tell_loss(round);
        has_news |= self.counts != before;
        if has_news {
            self.news_ns = round.monotonic_ns;
            self.is_awake = true;
        }
        Ok(has_news || has_counted)
    }

    fn drain(&mut self, round: &mut Round<'_, '_>, records_max: u64) -> Result<(), StreamError> {
        let Self {
            file,
            publications,
            targets,
            offers,
            counts,
            newest_ns,
            reached,
            taken,
            ..
        } = self;
        let incarnation = file.incarnation();
        let mut answers = Vec::new();
        let mut times = Times::new(file, round.timing, round.now_ns);
        let scopes = &mut round.scopes;
        let drained = file.drain(records_max, &mut |record: Record<'_>| {
            let ts = times.of(record.time);
            let is_frame = matches!(record.payload, Payload::Frame(_));
            let ts = in_order(reached, record.ring as usize, ts, is_frame);
            if let Payload::Ack { id, status } = record.payload {
                answers.push((id, status));
                return;
            }
            let Some((publication, key, value)) = place(&record, publications, targets) else {
                counts.damaged += 1;
                return;
            };
            let reader = publications[publication].reader;
            if taken.has(reader, record.ring, record.next) {
                return;
            }
            let Some(scope) = scopes.of(reader) else {
                counts.damaged += 1;
                return;
            };
            match record.payload {
                Payload::Frame(number) => {
                    counts.frames += 1;
                    publications[publication].newest_frame = Some(number);
                }
                _ => {
                    counts.values += 1;
                    offers.note(record.series, ts, &value);
                }
            }
            if let (Value::Text(text), Some(of)) = (&value, targets.get(record.series as usize)) {
                counts.cut += u64::from(text.len() > of.bytes_max as usize);
            }
            *newest_ns = (*newest_ns).max(ts);
            let sample = Sample::measured(ts, value);
            scope.append(key, &sample, Some(mark_of(&record, incarnation)));
        })?;
        let error_ns = times.error_ns;
        counts.missed += drained.missed;
        counts.damaged += drained.damaged;
        self.note_answers(&answers);
        if drained == Default::default() {
            return Ok(());
        }
        self.hand_over(round, error_ns);
        Ok(())
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
        self.waiting.push_back(Waiting {
            until,
            tails: self.file.positions().collect(),
            cells: self.cells.told(),
            newest_ns: self.newest_ns,
            since_ns: round.monotonic_ns,
        });
        self.settle(round);
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

    fn declare(&mut self, declaration: Declaration, round: &mut Round<'_, '_>) {
        match declaration {
            Declaration::Process {
                application,
                labels,
            } => {
                (self.application, self.labels) = (application, labels);
                self.offers.rename();
            }
            Declaration::Publication {
                name,
                readers,
                labels,
            } => self.declare_publication(&name, readers, &labels, round),
            Declaration::Value {
                publication,
                name,
                value_type,
                kind,
                unit,
                help,
                bytes_max,
            } => {
                let publication = publication as usize;
                let bytes_max = value_bytes_max(value_type, bytes_max);
                let key = self.declare_value(publication, round, bytes_max, |identity| {
                    if name == super::identity::FRAME {
                        return Err("frame is the name of the frames themselves".to_owned());
                    }
                    let stream = identity.stream(&name, value_type, kind, &unit, &help);
                    stream.map_err(|e| e.to_string())
                });
                self.targets.push(Target {
                    publication,
                    value_type,
                    bytes_max,
                    key,
                    texts: [name, unit, help].map(String::into_boxed_str),
                });
            }
            Declaration::Trigger {
                publication,
                name,
                help,
            } => {
                let publications = self.publications.len();
                let declared = self
                    .offers
                    .declare_trigger(publication, publications, name, help);
                declared.unwrap_or_else(|reason| self.refuse(reason));
            }
            Declaration::Knob { value, min, max } => {
                let declared = self.declare_knob(value, min, max);
                declared.unwrap_or_else(|reason| self.refuse(reason));
            }
            // The cells know.
            Declaration::Cell { .. } => {}
        }
    }

    fn declare_publication(
        &mut self,
        name: &str,
        readers: Readers,
        labels: &[(String, String)],
        round: &mut Round<'_, '_>,
    ) {
        let reader = match readers {
            Readers::Owner => self.owner,
            Readers::All => Reader::All,
            Readers::Group => {
                let group = self.taken.group();
                let group = group.or_else(|| group_of(self.file.pid(), self.uid()));
                group.map_or(self.owner, Reader::Group)
            }
        };
        let full = self.publications.len() >= self.values_max;
        let taken = if full || name == PROCESS {
            Err("there are too many, or the name is the agent's own".to_owned())
        } else {
            let labels = [&self.labels[..], labels];
            let taken = round
                .instances
                .take(name, &self.user, &self.application, &labels);
            taken.map_err(|e| e.to_string())
        };
        let identity = match taken {
            Ok(identity) => Some(identity),
            Err(reason) => {
                self.refuse(format!("publication {name:?}: {reason}"));
                None
            }
        };
        if full {
            // Those of them that are not kept are refused by their values, too.
            return;
        }
        self.publications.push(Publication {
            identity,
            labels: labels.to_vec(),
            reader,
            frames: None,
            newest_frame: None,
            values: 0,
        });
        let at = self.publications.len() - 1;
        let frames = |identity: &Identity| identity.frames().map_err(|e| e.to_string());
        self.publications[at].frames = self.declare_value(at, round, 0, frames);
        self.publications[at].values = 0;
    }

    fn declare_value(
        &mut self,
        publication: usize,
        round: &mut Round<'_, '_>,
        bytes_max: u32,
        descriptor: impl FnOnce(&Identity) -> Result<Descriptor, String>,
    ) -> Option<StreamKey> {
        let is_full = self.targets.len() >= self.values_max;
        let found = self.publications.get_mut(publication);
        let Some(found) = found.filter(|_| !is_full) else {
            self.refuse("a value of no publication, or one too many".into());
            return None;
        };
        // The publication was refused, and that was said.
        let identity = found.identity.as_ref()?;
        let descriptor = match descriptor(identity) {
            Ok(descriptor) => descriptor,
            Err(reason) => {
                self.refuse(reason);
                return None;
            }
        };
        let scope = round.scopes.of(found.reader);
        let key = scope.and_then(|scope| scope.declare(&descriptor, bytes_max, &self.user));
        found.values += 1;
        if key.is_none() {
            self.refuse(format!(
                "{descriptor}: there is no room, for all or for this user, or it is declared twice"
            ));
        }
        key
    }

    fn refuse(&mut self, reason: String) {
        self.counts.refused += 1;
        debug!(pid = self.file.pid(), reason, "a declaration is refused");
        self.last_refusal = reason;
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

    /// Ends its streams; gives its file back.
    pub fn end(self, round: &mut Round<'_, '_>) -> IngestFile {
        round.board.leave(self.uid(), self.file.incarnation());
        let values = self
            .targets
            .iter()
            .filter_map(|t| Some((self.publications.get(t.publication)?.reader, t.key?)));
        let frames = self
            .publications
            .iter()
            .filter_map(|p| Some((p.reader, p.frames?)));
        let about = self.about.iter();
        let about = about.flat_map(About::keys);
        let about = about.map(|key| (self.owner, key));
        for (reader, key) in values.chain(frames).chain(about) {
            if let Some(scope) = round.scopes.of(reader) {
                scope.retire(key);
            }
        }
        let publications = self.publications.iter();
        let identities = publications.filter_map(|p| p.identity.as_ref());
        for identity in identities.chain(self.about.iter().map(|about| &about.identity)) {
            round.instances.give_back(identity);
        }
        self.file
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
