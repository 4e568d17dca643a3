//! The documents of the scopes: publications, knobs, handlers and calls.
//!
//! They are a module of their own because they are written after the rounds, at their own pace.

use std::collections::BTreeSet;

use barograph_stream::ScopeReader;
use barograph_stream::{CALLS_DOCUMENT, HANDLERS_DOCUMENT, KNOBS_DOCUMENT, PUBLICATIONS_DOCUMENT};

use super::Intake;
use crate::process::PublishingProcess;
use crate::rows::fair_rows;
use crate::timing::after_rest;

impl Intake<'_> {
    pub(super) fn write_knobs(&mut self, readers: &BTreeSet<ScopeReader>) {
        for reader in readers {
            let reader = *reader;
            let count = |p: &PublishingProcess| p.knob_count(reader);
            let knobs = fair_rows(self.roster.iter(), count, |p| p.knob_rows(reader));
            if let Some(scope) = self.scopes.of(reader) {
                scope.publish(KNOBS_DOCUMENT, &knobs);
            }
        }
        for process in self.roster.iter_mut() {
            process.listed(readers);
        }
    }

    pub(super) fn write_documents(&mut self) {
        let begun_ns = self.clock.monotonic_ns();
        let changed = std::mem::take(&mut self.changed);
        self.write_knobs(&changed);
        // Every process that has answered has news, so its readers are in `changed`.
        let ended_ns = self.clock.monotonic_ns();
        self.answers.tell(begun_ns, ended_ns, &self.board);
        for reader in changed {
            let count = |p: &PublishingProcess| p.row_count(reader);
            let mut publications = fair_rows(self.roster.iter(), count, |p| p.rows(reader));
            publications.extend(self.bridge.rows(reader));
            let count = |p: &PublishingProcess| p.handler_count(reader);
            let handlers = fair_rows(self.roster.iter(), count, |p| p.handler_rows(reader));
            if let Some(scope) = self.scopes.of(reader) {
                scope.publish(PUBLICATIONS_DOCUMENT, &publications);
                scope.publish(HANDLERS_DOCUMENT, &handlers);
            }
        }
        let is_open = |uid| !self.scopes.awaits(ScopeReader::User(uid));
        for (uid, calls) in self.board.documents(is_open) {
            if let Some(scope) = self.scopes.of(ScopeReader::User(uid)) {
                scope.publish(CALLS_DOCUMENT, &calls);
            }
        }
        // This comes after the documents of users, which have more of the same calls.
        if !self.scopes.awaits(ScopeReader::All)
            && let Some(calls) = self.board.public_document()
            && let Some(scope) = self.scopes.of(ScopeReader::All)
        {
            scope.publish(CALLS_DOCUMENT, &calls);
        }
        self.next_documents_ns = after_rest(begun_ns, self.clock.monotonic_ns());
    }
}
