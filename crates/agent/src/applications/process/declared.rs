//! What a process declares: checked, paid for by its user, and kept, or refused and counted.
//!
//! It stands alone because a stranger says all of it: of what is refused nothing is kept but its number.

use barograph_model::{Descriptor, StreamKey, ValueType};
use barograph_stream::ingest::{Declaration, Readers};
use barograph_stream::value_bytes_max;
use tracing::debug;

use super::{Process, Publication, Round, Target};
use crate::applications::access::Reader;
use crate::applications::identity::{FRAME, Identity, PROCESS};
use crate::applications::who::group_of;

/// What is kept of a declaration, in bytes, beside its texts; and of one that was refused.
const DECLARED_BYTES: u64 = 1 << 10;
const REFUSED_BYTES: u64 = 192;
/// Characters of the last refusal that are kept.
const REFUSAL_CHARS_MAX: usize = 256;
impl Process {
    /// Has its user pay for what is kept of a declaration; false where he cannot.
    fn pay(&mut self, bytes: u64, round: &mut Round<'_, '_>) -> bool {
        let is_paid = !self.is_spent && round.memory.take(self.uid(), bytes);
        self.kept_bytes += if is_paid { bytes } else { 0 };
        is_paid
    }

    pub(super) fn declare(&mut self, declaration: Declaration, round: &mut Round<'_, '_>) {
        let bytes = DECLARED_BYTES + kept_texts(&declaration);
        let is_numbered = matches!(
            declaration,
            Declaration::Publication { .. } | Declaration::Value { .. }
        );
        if !self.pay(bytes, round) {
            self.refuse("its user has no memory left for declarations".into());
            // Only its number is kept, as long as there is memory for that.
            self.is_spent |= is_numbered && !self.pay(REFUSED_BYTES, round);
            self.pass_over(&declaration);
            return;
        }
        if !self.declare_paid(declaration, round) {
            let back = bytes - REFUSED_BYTES;
            self.kept_bytes -= back;
            round.memory.give_back(&self.uid(), back);
        }
    }

    /// Keeps the number of what is not kept.
    fn pass_over(&mut self, declaration: &Declaration) {
        if self.is_spent {
            return;
        }
        match declaration {
            Declaration::Publication { .. } if self.publications.len() < self.values_max => {
                self.publications.push(Publication {
                    identity: None,
                    labels: Vec::new(),
                    reader: self.owner,
                    frames: None,
                    newest_frame: None,
                    values: 0,
                });
            }
            Declaration::Value { .. } if self.targets.len() < self.values_max => {
                self.targets.push(Target {
                    publication: usize::MAX,
                    value_type: ValueType::Int,
                    bytes_max: 0,
                    key: None,
                    texts: Default::default(),
                });
            }
            _ => {}
        }
    }

    /// Whether it is kept.
    fn declare_paid(&mut self, declaration: Declaration, round: &mut Round<'_, '_>) -> bool {
        match declaration {
            Declaration::Process {
                application,
                labels,
            } => {
                (self.application, self.labels) = (application, labels);
                self.offers.rename();
                true
            }
            Declaration::Publication {
                name,
                readers,
                labels,
            } => self.declare_publication(&name, readers, &labels, round),
            value @ Declaration::Value { .. } => self.declare_target(value, round),
            Declaration::Trigger {
                publication,
                name,
                help,
            } => {
                let publications = self.publications.len();
                let declared = self
                    .offers
                    .declare_trigger(publication, publications, name, help);
                self.is_accepted(declared)
            }
            Declaration::Knob { value, min, max } => {
                let declared = self.declare_knob(value, min, max);
                self.is_accepted(declared)
            }
        }
    }

    fn declare_target(&mut self, declared: Declaration, round: &mut Round<'_, '_>) -> bool {
        let Declaration::Value {
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
        let key = self.declare_value(publication, round, bytes_max, |identity| {
            if name == FRAME {
                return Err("frame is the name of the frames themselves".to_owned());
            }
            let stream = identity.stream(&name, value_type, kind, &unit, &help);
            stream.map_err(|e| e.to_string())
        });
        // Of what is not kept nobody asks for the texts.
        let texts = match key {
            Some(_) => [name, unit, help].map(String::into_boxed_str),
            None => Default::default(),
        };
        self.targets.push(Target {
            publication,
            value_type,
            bytes_max,
            key,
            texts,
        });
        key.is_some()
    }

    fn is_accepted(&mut self, declared: Result<(), String>) -> bool {
        let is_accepted = declared.is_ok();
        declared.unwrap_or_else(|reason| self.refuse(reason));
        is_accepted
    }

    fn declare_publication(
        &mut self,
        name: &str,
        readers: Readers,
        labels: &[(String, String)],
        round: &mut Round<'_, '_>,
    ) -> bool {
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
            identity,
            labels,
            reader,
            frames: None,
            newest_frame: None,
            values: 0,
        });
        let at = self.publications.len() - 1;
        let frames = |identity: &Identity| identity.frames().map_err(|e| e.to_string());
        self.publications[at].frames = self.declare_value(at, round, 0, frames);
        self.publications[at].values = 0;
        self.publications[at].identity.is_some()
    }

    fn declare_value(
        &mut self,
        publication: usize,
        round: &mut Round<'_, '_>,
        bytes_max: u32,
        descriptor: impl FnOnce(&Identity) -> Result<Descriptor, String>,
    ) -> Option<StreamKey> {
        let Some(found) = self.publications.get_mut(publication) else {
            self.refuse("a value of no publication".into());
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

    pub(super) fn refuse(&mut self, reason: String) {
        self.counts.refused += 1;
        let reason: String = reason.chars().take(REFUSAL_CHARS_MAX).collect();
        debug!(pid = self.file.pid(), reason, "a declaration is refused");
        self.last_refusal = reason;
    }
}

/// Bytes of what is kept of a declaration's texts, which stand in names of streams and in documents too, and of
/// the newest value.
fn kept_texts(declaration: &Declaration) -> u64 {
    const COPIES: u64 = 4;
    let of_labels = |labels: &[(String, String)]| {
        let bytes = labels
            .iter()
            .map(|(name, value)| name.len() + value.len() + 64);
        bytes.sum::<usize>() as u64
    };
    match declaration {
        Declaration::Process {
            application,
            labels,
        } => application.len() as u64 + of_labels(labels),
        Declaration::Publication { name, labels, .. } => {
            COPIES * (name.len() as u64 + of_labels(labels))
        }
        Declaration::Value {
            name,
            value_type,
            unit,
            help,
            bytes_max,
            ..
        } => {
            let texts = (name.len() + unit.len() + help.len()) as u64;
            COPIES * texts + u64::from(value_bytes_max(*value_type, *bytes_max))
        }
        Declaration::Trigger { name, help, .. } => COPIES * (name.len() + help.len()) as u64,
        Declaration::Knob { .. } => DECLARED_BYTES,
    }
}
