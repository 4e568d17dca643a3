//! A process as a target of calls: its offers and its answers.

use std::collections::BTreeSet;

use barograph_stream::calls::{AckStatus, CallSubject};

use super::{IntakeRound, PublishingProcess};
use crate::answers::{CallAnswer, CallAnswers};
use crate::offers::KnobValue;
use barograph_call::{Board, CallMember, Offer};
use barograph_stream::ScopeReader;

/// Minor version of ingest files since which writers apply a knob's setting at the end of a frame.
const FRAMES_SINCE: u32 = 2;

impl PublishingProcess {
    pub(super) fn declare_knob(&mut self, value: u32, min: f64, max: f64) -> Result<(), String> {
        let target = self.targets.get(value as usize);
        // A value without a stream was refused, which has been counted.
        let target = target.filter(|t| t.key.is_some());
        let known = target.and_then(|target| {
            let publication = self.publications.get(target.publication)?;
            let [name, unit, help] = &target.texts;
            Some(KnobValue {
                publication: target.publication,
                publication_name: publication.identity.as_ref()?.name(),
                name,
                value_type: target.value_type,
                unit,
                help,
            })
        });
        let known = known.ok_or("a knob that is no value that is kept")?;
        self.offers.declare_knob(value, &known, min, max)
    }

    /// Gives the board the process's offers, if they are new.
    pub(super) fn join(&mut self, round: &mut IntakeRound<'_, '_>) {
        if !self.offers.is_new {
            return;
        }
        // The board needs the user's scope, which this opens if it is not open.
        if round.scopes.of(self.owner).is_none() {
            // This is tried again at the next look, and counted once.
            if !std::mem::replace(&mut self.is_uncallable, true) {
                self.refuse("the process cannot be called: its user has no scope".into());
            }
            return;
        }
        self.offers.is_new = false;
        if std::mem::take(&mut self.is_uncallable) {
            self.counts.refused = self.counts.refused.saturating_sub(1);
            if self.counts.refused == 0 {
                self.last_refusal.clear();
            }
        }
        round.board.join(self.member());
    }

    fn member(&self) -> CallMember {
        let (incarnation, pid) = (self.file.incarnation(), self.file.pid());
        let offers = self.offers.iter();
        let offers = offers.map(|(kind, name, publication, bounds)| {
            let publication = publication.and_then(|at| self.publications.get(at));
            let own = publication.map_or(&[][..], |p| &p.labels);
            let labels = [&self.labels[..], own];
            // A publication that was refused has no readers.
            let kept = publication.and_then(|p| Some((p.identity.as_ref()?, p.reader)));
            Offer {
                kind,
                name: name.to_owned(),
                publication: kept.map(|(identity, _)| identity.name().to_owned()),
                is_public: kept.is_some_and(|(_, reader)| reader == ScopeReader::All),
                subject: CallSubject::new(incarnation, &self.application, pid, &self.user, &labels),
                bounds,
                takes_frames: self.file.version_minor() >= FRAMES_SINCE,
            }
        });
        CallMember {
            incarnation,
            uid: self.uid(),
            offers: offers.collect(),
        }
    }

    pub(super) fn note_answers(&mut self, answers: &[(u64, u32)]) {
        let (uid, from) = (self.uid(), self.file.incarnation());
        for &(id, status) in answers {
            self.counts.answers += 1;
            match AckStatus::from_u32(status) {
                Some(status) => self.answers.push(CallAnswer {
                    uid,
                    from,
                    id,
                    status,
                }),
                None => self.counts.damaged += 1,
            }
        }
    }

    /// Passes on its answers since the last call.
    pub(crate) fn answer(&mut self, answers: &mut CallAnswers, board: &Board) {
        if self.answers.is_empty() {
            return;
        }
        let unlisted = self.offers.unlisted();
        let of = unlisted.filter_map(|publication| self.publications.get(publication));
        let behind = of.map(|publication| publication.reader).collect();
        answers.take(std::mem::take(&mut self.answers), behind, board);
    }

    /// Notes that the lists of these readers have the newest values of its knobs.
    pub(crate) fn listed(&mut self, readers: &BTreeSet<ScopeReader>) {
        let publications = &self.publications;
        let is_listed = |at: usize| {
            publications
                .get(at)
                .is_none_or(|p| readers.contains(&p.reader))
        };
        self.offers.listed(is_listed);
    }
}
