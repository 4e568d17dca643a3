//! The declarations of a process: each is checked, paid for by the process's user, and kept, or
//! refused and counted.
//!
//! It is a module of its own because all of it comes from a stranger: of a refused declaration only
//! its number is kept.

use std::collections::BTreeSet;

use barograph_model::{Descriptor, Kind, ModelError, NS_PER_S, StreamKey, ValueType, text_start};
use barograph_stream::ingest::{FRAME_VALUE, IngestDeclaration, PublicationReaders};
use barograph_stream::{StreamError, value_bytes_max};
use tracing::debug;

use super::{DECLARATIONS_MAX, IntakeRound, Publication, PublishingProcess, Target};
use crate::identity::{PROCESS, PublicationIdentity};
use crate::maps::map_of;
use crate::phases::volume_of;
use crate::scope::NoStream;
use crate::who::group_of;
use barograph_stream::ScopeReader;

/// Bytes kept for a declaration, beside its texts, and for one that was refused.
const DECLARED_BYTES: u64 = 1 << 10;
const REFUSED_BYTES: u64 = 192;
/// Most bytes that are kept of the reason for a refusal.
pub(crate) const REFUSAL_BYTES_MAX: usize = 256;
/// Shortest time between two attempts at declarations that wait for room.
const RETRY_NS: i64 = NS_PER_S / 2;
/// A value that `Scopes::rooms` never has, so that the next attempt is made in any case.
const NEVER_SEEN: u64 = u64::MAX;

/// The reason why there is no stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NotMade {
    /// There is no room now.
    Waits,
    Refused,
}

/// A value as its file declares it.
#[derive(Clone)]
struct DeclaredValue {
    name: String,
    value_type: ValueType,
    kind: Kind,
    unit: String,
    help: String,
}

impl DeclaredValue {
    fn kept_bytes(&self, bytes_max: u32) -> u64 {
        let texts = self.name.len() + self.unit.len() + self.help.len();
        kept_of_value(texts, bytes_max)
    }

    fn into_texts(self) -> [Box<str>; 3] {
        [self.name, self.unit, self.help].map(String::into_boxed_str)
    }

    fn stream(&self, identity: &PublicationIdentity) -> Result<Descriptor, ModelError> {
        identity.stream(
            &self.name,
            self.value_type,
            self.kind,
            &self.unit,
            &self.help,
        )
    }

    fn of(declaration: IngestDeclaration) -> Option<Self> {
        match declaration {
            IngestDeclaration::Value {
                name,
                value_type,
                kind,
                unit,
                help,
                ..
            } => Some(Self {
                name,
                value_type,
                kind,
                unit,
                help,
            }),
            _ => None,
        }
    }
}

impl PublishingProcess {
    /// Counts the memory for a declaration against the process's user; false if there is not
    /// enough.
    fn pay(&mut self, bytes: u64, round: &mut IntakeRound<'_, '_>) -> bool {
        let is_paid = !self.is_spent && round.memory.take(self.uid(), bytes);
        self.kept_bytes += if is_paid { bytes } else { 0 };
        is_paid
    }

    pub(super) fn declare(&mut self, declared: IngestDeclaration, round: &mut IntakeRound<'_, '_>) {
        let bytes = DECLARED_BYTES + kept_texts(&declared);
        let is_numbered = matches!(
            declared,
            IngestDeclaration::Publication { .. } | IngestDeclaration::Value { .. }
        );
        if !self.pay(bytes, round) {
            self.refuse("its user has no memory left for declarations".into());
            // Only its number is kept, as long as there is memory for that.
            self.is_spent |= is_numbered && !self.pay(REFUSED_BYTES, round);
            self.pass_over(&declared);
            return;
        }
        if !self.declare_paid(declared, round) {
            let back = bytes - REFUSED_BYTES;
            self.kept_bytes -= back;
            round.memory.give_back(&self.uid(), back);
        }
    }

    /// Keeps the number of a declaration that is not kept.
    fn pass_over(&mut self, declaration: &IngestDeclaration) {
        if self.is_spent {
            return;
        }
        match declaration {
            IngestDeclaration::Publication { .. } if self.publications.len() < self.values_max => {
                self.publications.push(Publication::refused(self.owner));
            }
            IngestDeclaration::Value { .. } if self.targets.len() < self.values_max => {
                self.targets.push(Target {
                    publication: usize::MAX,
                    value_type: ValueType::Int,
                    bytes_max: 0,
                    key: None,
                    waits: false,
                    counter: None,
                    begins_anew: false,
                    texts: Default::default(),
                });
                self.tell_refused(self.targets.len() - 1);
            }
            _ => {}
        }
    }

    /// Writes into the ingest file whether a value has no stream.
    fn tell_refused(&mut self, at: usize) {
        let is_refused = self.targets[at].key.is_none();
        let number = u32::try_from(at).unwrap_or(u32::MAX);
        if let Err(error) = self.file.set_refused(number, is_refused) {
            debug!(%error, "a process is not told that a value is refused");
        }
    }

    /// Takes in a declaration that was paid for; returns whether it is kept.
    fn declare_paid(&mut self, paid: IngestDeclaration, round: &mut IntakeRound<'_, '_>) -> bool {
        match paid {
            IngestDeclaration::Process {
                application,
                labels,
            } => {
                (self.application, self.labels) = (application, labels);
                self.offers.rename();
                true
            }
            IngestDeclaration::Publication {
                name,
                readers,
                labels,
            } => self.declare_publication(&name, readers, &labels, round),
            value @ IngestDeclaration::Value { .. } => self.declare_target(value, round),
            IngestDeclaration::Trigger {
                publication,
                name,
                help,
            } => {
                let publications = self.publications.len();
                let declared = self
                    .offers
                    .declare_handler(publication, publications, name, help);
                self.is_accepted(declared)
            }
            IngestDeclaration::Knob { value, min, max } => {
                let declared = self.declare_knob(value, min, max);
                self.is_accepted(declared)
            }
            // Cells were noted by [`Cells::note`].
            IngestDeclaration::Cell { .. } => true,
        }
    }

    fn declare_target(
        &mut self,
        declared: IngestDeclaration,
        round: &mut IntakeRound<'_, '_>,
    ) -> bool {
        let IngestDeclaration::Value {
            publication,
            name,
            value_type,
            kind,
            unit,
            help,
            bytes_max,
        } = declared
        else {
            return false;
        };
        if self.targets.len() >= self.values_max {
            self.refuse("a value too many".into());
            return false;
        }
        let publication = publication as usize;
        let bytes_max = value_bytes_max(value_type, bytes_max);
        let value = DeclaredValue {
            name,
            value_type,
            kind,
            unit,
            help,
        };
        let made = self.make_value(publication, round, bytes_max, &value);
        let counter = self.counter(&value, publication);
        let begins_anew = self.begins_anew(counter.as_ref(), round);
        // The texts of a value that is not kept are never needed.
        let texts = match made {
            Ok(_) => value.into_texts(),
            Err(_) => Default::default(),
        };
        self.targets.push(Target {
            publication,
            value_type,
            bytes_max,
            key: made.ok(),
            waits: made == Err(NotMade::Waits),
            counter: counter.map(|(_, stream)| stream.series_id()),
            begins_anew,
            texts,
        });
        let at = self.targets.len() - 1;
        self.tell_refused(at);
        made.is_ok()
    }

    fn is_accepted(&mut self, declared: Result<(), String>) -> bool {
        let is_accepted = declared.is_ok();
        declared.unwrap_or_else(|reason| self.refuse(reason));
        is_accepted
    }

    /// Whether a declaration has to wait for a scope that is being opened.
    pub(super) fn awaits_scope(
        &self,
        declaration: &IngestDeclaration,
        round: &mut IntakeRound<'_, '_>,
    ) -> bool {
        let IngestDeclaration::Publication { readers, .. } = declaration else {
            return false;
        };
        // Only a mark of an earlier life may name the group of a process that is gone.
        let is_unknown = *readers == PublicationReaders::Group && self.taken.group().is_none();
        self.may_wait(round.monotonic_ns)
            && (is_unknown && round.scopes.are_groups_opening()
                || round.scopes.is_opening(self.reader_for(*readers)))
    }

    fn reader_for(&self, readers: PublicationReaders) -> ScopeReader {
        match readers {
            PublicationReaders::Owner => self.owner,
            PublicationReaders::All => ScopeReader::All,
            PublicationReaders::Group => {
                let group = self.taken.group();
                let group = group.or_else(|| group_of(self.file.pid(), self.uid()));
                group.map_or(self.owner, ScopeReader::Group)
            }
        }
    }

    fn declare_publication(
        &mut self,
        name: &str,
        readers: PublicationReaders,
        labels: &[(String, String)],
        round: &mut IntakeRound<'_, '_>,
    ) -> bool {
        let reader = self.reader_for(readers);
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
            // The values of further publications are refused as well.
            return false;
        }
        let labels = match identity {
            Some(_) => labels.to_vec(),
            None => Vec::new(),
        };
        if identity.is_some() {
            self.readers.insert(reader);
        }
        self.publications.push(Publication {
            volume: volume_of(name, &labels),
            map: map_of(name, &labels),
            identity,
            labels,
            reader,
            frames: None,
            waits: false,
            newest_frame: None,
            values: 0,
        });
        let at = self.publications.len() - 1;
        self.declare_frames(at, round);
        self.publications[at].values = 0;
        self.publications[at].identity.is_some()
    }

    /// Tries declarations that found no room once more, if there has been some since. They are read
    /// from the file again, so that nothing of them has to be kept. Returns the number of
    /// declarations read.
    pub(super) fn retry(&mut self, round: &mut IntakeRound<'_, '_>) -> Result<u64, StreamError> {
        let rooms = round.scopes.rooms();
        // An ended process makes room itself, and needs none.
        let is_due = !self.is_retired
            && round.monotonic_ns >= self.next_retry_ns
            && self.waits_for_room.is_some_and(|seen| seen != rooms);
        if !is_due {
            return Ok(0);
        }
        self.next_retry_ns = round.monotonic_ns.saturating_add(RETRY_NS);
        let mut declared = Vec::new();
        self.file
            .declarations_again(&mut |declaration| declared.push(declaration))?;
        self.waits_for_room = None;
        // At most as many as the first look takes.
        let mut left = self.retry_frames(DECLARATIONS_MAX, round);
        let work = declared.len() as u64;
        let mut at = 0u32;
        let mut made = BTreeSet::new();
        for declaration in declared {
            match declaration {
                IngestDeclaration::Knob { value, min, max } if made.contains(&value) => {
                    let known = self.declare_knob(value, min, max);
                    known.unwrap_or_else(|reason| self.refuse(reason));
                }
                declaration => {
                    let Some(value) = DeclaredValue::of(declaration) else {
                        continue;
                    };
                    let waits = self.targets.get(at as usize).is_some_and(|t| t.waits);
                    if waits && left == 0 {
                        self.waits_for_room.get_or_insert(NEVER_SEEN);
                    } else if waits && self.waits_for_room.is_none() {
                        left -= 1;
                        if self.retry_value(at as usize, &value, round) {
                            made.insert(at);
                        }
                    }
                    at += 1;
                }
            }
        }
        if self.counts.refused == 0 {
            self.last_refusal.clear();
        }
        if self.has_more_to_retry() {
            self.next_retry_ns = round.monotonic_ns;
        }
        Ok(work)
    }

    /// Whether the last retry stopped at its bound rather than when room was used up.
    pub(super) fn has_more_to_retry(&self) -> bool {
        self.waits_for_room == Some(NEVER_SEEN)
    }

    /// Declares at most `frames_max` streams of frames that waited for room; returns how many more
    /// declarations may be made. If one finds no room, the others of the same readers are not
    /// tried.
    fn retry_frames(&mut self, frames_max: u64, round: &mut IntakeRound<'_, '_>) -> u64 {
        let mut left = frames_max;
        let mut full: BTreeSet<ScopeReader> = BTreeSet::new();
        for at in 0..self.publications.len() {
            let publication = &self.publications[at];
            let (reader, values) = (publication.reader, publication.values);
            if !publication.waits || full.contains(&reader) {
                continue;
            }
            if left == 0 {
                self.waits_for_room.get_or_insert(NEVER_SEEN);
                break;
            }
            left -= 1;
            self.counts.refused = self.counts.refused.saturating_sub(1);
            self.declare_frames(at, round);
            self.publications[at].values = values;
            if self.publications[at].waits {
                full.insert(reader);
            }
        }
        left
    }

    /// Tries a value that waited for room; returns whether it has its stream now. If it finds no
    /// room, the others are not tried.
    fn retry_value(
        &mut self,
        at: usize,
        value: &DeclaredValue,
        round: &mut IntakeRound<'_, '_>,
    ) -> bool {
        let Some(target) = self.targets.get(at) else {
            return false;
        };
        let (publication, bytes_max) = (target.publication, target.bytes_max);
        let counter = self.counter(value, publication);
        let counter = counter.map(|(_, stream)| stream.series_id());
        // The file is a stranger's, who may have overwritten the first declaration.
        if value.value_type != target.value_type || counter != target.counter {
            self.targets[at].waits = false;
            // The first attempt has counted it as refused.
            self.counts.refused = self.counts.refused.saturating_sub(1);
            self.refuse("a value is declared otherwise than it was".into());
            return false;
        }
        // Its memory is paid for as for a first declaration.
        let bytes = DECLARED_BYTES + value.kept_bytes(bytes_max) - REFUSED_BYTES;
        if !self.pay(bytes, round) {
            if !self.is_spent {
                self.waits_for_room = Some(round.scopes.rooms());
            }
            return false;
        }
        // The first attempt has counted it as refused and as a value of its publication.
        self.counts.refused = self.counts.refused.saturating_sub(1);
        if let Some(found) = self.publications.get_mut(publication) {
            found.values = found.values.saturating_sub(1);
        }
        let made = self.make_value(publication, round, bytes_max, value);
        if made.is_err() {
            self.kept_bytes -= bytes;
            round.memory.give_back(&self.uid(), bytes);
        } else {
            self.targets[at].texts = value.clone().into_texts();
        }
        self.targets[at].waits = made == Err(NotMade::Waits);
        self.targets[at].key = made.ok();
        self.tell_refused(at);
        self.targets[at].key.is_some()
    }

    /// The readers and the stream of a value, if it is a counter.
    fn counter(
        &self,
        value: &DeclaredValue,
        publication: usize,
    ) -> Option<(ScopeReader, Descriptor)> {
        let publication = self.publications.get(publication)?;
        let is_counter = value.kind == Kind::Counter && value.value_type.is_number();
        let identity = publication.identity.as_ref().filter(|_| is_counter)?;
        Some((publication.reader, value.stream(identity).ok()?))
    }

    /// Whether a counter continues a series that another process had, and this process begins now.
    fn begins_anew(
        &self,
        counter: Option<&(ScopeReader, Descriptor)>,
        round: &mut IntakeRound<'_, '_>,
    ) -> bool {
        let has_begun = !self.taken.is_empty() || self.file.positions().any(|at| at > 0);
        counter
            .filter(|_| !has_begun)
            .is_some_and(|(reader, stream)| {
                let scope = round.scopes.of(*reader);
                scope.is_some_and(|scope| scope.was_there(stream))
            })
    }

    fn declare_frames(&mut self, at: usize, round: &mut IntakeRound<'_, '_>) {
        let frames = |identity: &PublicationIdentity| identity.frames().map_err(|e| e.to_string());
        let made = self.declare_value(at, round, 0, frames);
        self.publications[at].waits = made == Err(NotMade::Waits);
        self.publications[at].frames = made.ok();
    }

    fn make_value(
        &mut self,
        publication: usize,
        round: &mut IntakeRound<'_, '_>,
        bytes_max: u32,
        value: &DeclaredValue,
    ) -> Result<StreamKey, NotMade> {
        self.declare_value(publication, round, bytes_max, |identity| {
            if value.name == FRAME_VALUE {
                return Err("frame is the name of the frames themselves".to_owned());
            }
            value.stream(identity).map_err(|e| e.to_string())
        })
    }

    fn declare_value(
        &mut self,
        publication: usize,
        round: &mut IntakeRound<'_, '_>,
        bytes_max: u32,
        descriptor: impl FnOnce(&PublicationIdentity) -> Result<Descriptor, String>,
    ) -> Result<StreamKey, NotMade> {
        let Some(found) = self.publications.get_mut(publication) else {
            self.refuse("a value of no publication".into());
            return Err(NotMade::Refused);
        };
        // Without an identity the publication was refused, and that was counted.
        let identity = found.identity.as_ref().ok_or(NotMade::Refused)?;
        let descriptor = match descriptor(identity) {
            Ok(descriptor) => descriptor,
            Err(reason) => {
                self.refuse(reason);
                return Err(NotMade::Refused);
            }
        };
        let scope = round.scopes.of(found.reader).ok_or(NoStream::NoScope);
        let made = scope.and_then(|scope| scope.declare(&descriptor, bytes_max, &self.user));
        found.values += 1;
        made.map_err(|why| {
            self.refuse(format!("{descriptor}: {why}"));
            if !why.is_passing() {
                return NotMade::Refused;
            }
            self.waits_for_room = Some(round.scopes.rooms());
            NotMade::Waits
        })
    }

    pub(super) fn refuse(&mut self, reason: String) {
        self.counts.refused += 1;
        debug!(pid = self.file.pid(), reason, "a declaration is refused");
        text_start(&reason, REFUSAL_BYTES_MAX).clone_into(&mut self.last_refusal);
    }
}

/// Number of copies of each text: names of streams and documents contain them too.
const COPIES: u64 = 4;

fn kept_of_value(texts: usize, bytes_max: u32) -> u64 {
    COPIES * texts as u64 + u64::from(bytes_max)
}

/// Bytes kept for a declaration's texts, which names of streams and documents contain too, and for
/// the newest value.
fn kept_texts(declaration: &IngestDeclaration) -> u64 {
    let of_labels = |labels: &[(String, String)]| {
        let bytes = labels
            .iter()
            .map(|(name, value)| name.len() + value.len() + 64);
        bytes.sum::<usize>() as u64
    };
    match declaration {
        IngestDeclaration::Process {
            application,
            labels,
        } => application.len() as u64 + of_labels(labels),
        IngestDeclaration::Publication { name, labels, .. } => {
            COPIES * (name.len() as u64 + of_labels(labels))
        }
        IngestDeclaration::Value {
            name,
            value_type,
            unit,
            help,
            bytes_max,
            ..
        } => {
            let texts = name.len() + unit.len() + help.len();
            kept_of_value(texts, value_bytes_max(*value_type, *bytes_max))
        }
        IngestDeclaration::Trigger { name, help, .. } => COPIES * (name.len() + help.len()) as u64,
        IngestDeclaration::Knob { .. } | IngestDeclaration::Cell { .. } => DECLARED_BYTES,
    }
}
