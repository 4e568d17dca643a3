//! What a process declares, and the streams that come of it; what finds no room waits for some.

use barograph_model::{Descriptor, Kind, ModelError, NS_PER_S, StreamKey, ValueType, text_start};
use barograph_stream::ingest::{Declaration, Readers};
use barograph_stream::{StreamError, value_bytes_max};
use tracing::debug;

use super::{Process, Publication, Round, Target};
use crate::applications::access::Reader;
use crate::applications::identity::{FRAME, Identity, PROCESS};
use crate::applications::scope::NoStream;
use crate::applications::who::group_of;

/// Bytes that are kept of why a declaration was refused.
pub const REFUSAL_BYTES_MAX: usize = 256;
/// Declarations that wait for room are looked at this often at most.
const RETRY_NS: i64 = NS_PER_S / 2;
/// Why there is no stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NotMade {
    /// There is no room now.
    Waits,
    Refused,
}

/// A value as its file declares it.
struct DeclaredValue {
    name: String,
    value_type: ValueType,
    kind: Kind,
    unit: String,
    help: String,
}

impl DeclaredValue {
    fn stream(&self, identity: &Identity) -> Result<Descriptor, ModelError> {
        identity.stream(
            &self.name,
            self.value_type,
            self.kind,
            &self.unit,
            &self.help,
        )
    }

    fn of(declaration: Declaration) -> Option<Self> {
        match declaration {
            Declaration::Value {
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

impl Process {
    pub(super) fn declare(&mut self, declaration: Declaration, round: &mut Round<'_, '_>) {
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
                let value = DeclaredValue {
                    name,
                    value_type,
                    kind,
                    unit,
                    help,
                };
                let is_full = self.targets.len() >= self.values_max;
                let made = match is_full {
                    true => {
                        self.refuse("more values than [applications] values_max".into());
                        Err(NotMade::Refused)
                    }
                    false => self.make_value(publication, round, bytes_max, &value),
                };
                let counter = self.counter(&value, publication);
                let begins_anew = self.begins_anew(counter.as_ref(), round);
                let DeclaredValue {
                    name, unit, help, ..
                } = value;
                self.targets.push(Target {
                    publication,
                    value_type,
                    bytes_max,
                    key: made.ok(),
                    waits: made == Err(NotMade::Waits),
                    counter: counter.map(|(_, stream)| stream.series_id()),
                    begins_anew,
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

    /// Declares what found no room once more, when there has been some since: as the file has it, so that nothing
    /// of it need be kept.
    pub(super) fn retry(&mut self, round: &mut Round<'_, '_>) -> Result<(), StreamError> {
        let rooms = round.scopes.rooms();
        let is_due = round.monotonic_ns >= self.next_retry_ns
            && self.waits_for_room.is_some_and(|seen| seen != rooms);
        if !is_due {
            return Ok(());
        }
        self.next_retry_ns = round.monotonic_ns.saturating_add(RETRY_NS);
        self.waits_for_room = None;
        let mut declared = Vec::new();
        self.file
            .declarations_again(&mut |declaration| declared.push(declaration))?;
        for at in 0..self.publications.len() {
            if std::mem::take(&mut self.publications[at].waits) {
                self.counts.refused = self.counts.refused.saturating_sub(1);
                let values = self.publications[at].values;
                self.declare_frames(at, round);
                self.publications[at].values = values;
            }
        }
        let mut at = 0;
        let mut made = Vec::new();
        for declaration in declared {
            match declaration {
                Declaration::Knob { value, min, max } if made.contains(&(value as usize)) => {
                    let known = self.declare_knob(value, min, max);
                    known.unwrap_or_else(|reason| self.refuse(reason));
                }
                declaration => {
                    let Some(value) = DeclaredValue::of(declaration) else {
                        continue;
                    };
                    if self.retry_value(at, &value, round) {
                        made.push(at);
                    }
                    at += 1;
                }
            }
        }
        Ok(())
    }

    /// Whether a value that waited for room has its stream now. When one finds none, the others are not tried.
    fn retry_value(&mut self, at: usize, value: &DeclaredValue, round: &mut Round<'_, '_>) -> bool {
        let Some(target) = self.targets.get(at).filter(|target| target.waits) else {
            return false;
        };
        if self.waits_for_room.is_some() {
            return false;
        }
        let (publication, bytes_max) = (target.publication, target.bytes_max);
        self.counts.refused = self.counts.refused.saturating_sub(1);
        let made = self.make_value(publication, round, bytes_max, value);
        self.targets[at].waits = made == Err(NotMade::Waits);
        self.targets[at].key = made.ok();
        self.targets[at].key.is_some()
    }

    /// The readers and the stream of a value that is a counter.
    fn counter(&self, value: &DeclaredValue, publication: usize) -> Option<(Reader, Descriptor)> {
        let publication = self.publications.get(publication)?;
        let is_counter = value.kind == Kind::Counter && value.value_type.is_number();
        let identity = publication.identity.as_ref().filter(|_| is_counter)?;
        Some((publication.reader, value.stream(identity).ok()?))
    }

    /// Whether it counts on a series that another process had, from the beginning of this one.
    fn begins_anew(
        &self,
        counter: Option<&(Reader, Descriptor)>,
        round: &mut Round<'_, '_>,
    ) -> bool {
        let has_begun = !self.taken.is_empty() || self.file.positions().any(|at| at > 0);
        counter
            .filter(|_| !has_begun)
            .is_some_and(|(reader, stream)| {
                let scope = round.scopes.of(*reader);
                scope.is_some_and(|scope| scope.was_there(stream))
            })
    }

    fn declare_frames(&mut self, at: usize, round: &mut Round<'_, '_>) {
        let frames = |identity: &Identity| identity.frames().map_err(|e| e.to_string());
        let made = self.declare_value(at, round, 0, frames);
        self.publications[at].waits = made == Err(NotMade::Waits);
        self.publications[at].frames = made.ok();
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
            waits: false,
            newest_frame: None,
            values: 0,
        });
        let at = self.publications.len() - 1;
        self.declare_frames(at, round);
        self.publications[at].values = 0;
    }

    fn make_value(
        &mut self,
        publication: usize,
        round: &mut Round<'_, '_>,
        bytes_max: u32,
        value: &DeclaredValue,
    ) -> Result<StreamKey, NotMade> {
        self.declare_value(publication, round, bytes_max, |identity| {
            if value.name == FRAME {
                return Err("frame is the name of the frames themselves".to_owned());
            }
            value.stream(identity).map_err(|e| e.to_string())
        })
    }

    fn declare_value(
        &mut self,
        publication: usize,
        round: &mut Round<'_, '_>,
        bytes_max: u32,
        descriptor: impl FnOnce(&Identity) -> Result<Descriptor, String>,
    ) -> Result<StreamKey, NotMade> {
        let Some(found) = self.publications.get_mut(publication) else {
            self.refuse("a value of no publication".into());
            return Err(NotMade::Refused);
        };
        // Where there is none the publication was refused, and that was said.
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
