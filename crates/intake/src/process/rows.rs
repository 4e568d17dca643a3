//! The rows of a process in documents.

use serde_json::{Value as Json, json};

use super::PublishingProcess;
use barograph_stream::PublicationsRow;
use barograph_stream::ScopeReader;

impl PublishingProcess {
    /// One row for each of its publications for these readers.
    pub(crate) fn rows(&self, reader: ScopeReader) -> impl Iterator<Item = Json> {
        let of_reader = self.publications.iter().filter(move |p| p.reader == reader);
        of_reader.filter_map(|publication| {
            let identity = publication.identity.as_ref()?;
            Some(json!(PublicationsRow {
                name: identity.name().into(),
                labels: identity.label_map(),
                application: self.application.clone(),
                user: self.user.clone(),
                pid: Some(self.file.pid()),
                incarnation: self.file.incarnation().to_string(),
                started_ts: self.file.created_ns(),
                values: publication.values.into(),
                frame: publication.newest_frame,
                refusal: self.last_refusal.clone(),
                newest_ts: self.newest_ns,
                ..self.counts.to_row()
            }))
        })
    }

    /// Number of rows of [`Self::rows`].
    pub(crate) fn row_count(&self, reader: ScopeReader) -> usize {
        let publications = self.publications.iter();
        let of_reader = publications.filter(|p| p.reader == reader && p.identity.is_some());
        of_reader.count()
    }

    /// Number of rows of [`Self::knob_rows`].
    pub(crate) fn knob_count(&self, reader: ScopeReader) -> usize {
        let of = self.offers.knob_publications();
        of.filter(|at| self.reader_of(*at) == Some(reader)).count()
    }

    /// Number of rows of [`Self::handler_rows`].
    pub(crate) fn handler_count(&self, reader: ScopeReader) -> usize {
        let of = self.offers.handler_publications();
        let readers = of.map(|at| at.and_then(|at| self.reader_of(at)));
        readers
            .filter(|of| of.unwrap_or(self.owner) == reader)
            .count()
    }

    fn reader_of(&self, publication: usize) -> Option<ScopeReader> {
        let publication = self.publications.get(publication)?;
        publication.identity.as_ref().map(|_| publication.reader)
    }

    /// One row for each of its knobs for these readers.
    pub(crate) fn knob_rows(&self, reader: ScopeReader) -> impl Iterator<Item = Json> {
        let rows = self.offers.knob_rows(|at| self.known(at));
        let rows = rows.filter(move |(of, _)| *of == reader);
        rows.map(|(_, row)| self.with_process(row))
    }

    /// One row for each handler that it has for these readers.
    pub(crate) fn handler_rows(&self, reader: ScopeReader) -> impl Iterator<Item = Json> {
        let rows = self.offers.handler_rows(self.owner, |at| self.known(at));
        let rows = rows.filter(move |(of, _)| *of == reader);
        rows.map(|(_, row)| self.with_process(row))
    }

    /// Readers, name and labels of a publication, if it was not refused.
    fn known(&self, publication: usize) -> Option<(ScopeReader, &str, Json)> {
        let publication = self.publications.get(publication)?;
        let identity = publication.identity.as_ref()?;
        Some((
            publication.reader,
            identity.name(),
            json!(identity.label_map()),
        ))
    }

    fn with_process(&self, mut row: Json) -> Json {
        row["application"] = json!(self.application);
        row["user"] = json!(self.user);
        row["pid"] = json!(self.file.pid());
        row["incarnation"] = json!(self.file.incarnation().to_string());
        row
    }

    /// The readers whose documents have rows of this process.
    pub(crate) fn readers(&self) -> impl Iterator<Item = ScopeReader> {
        let owner = (!self.offers.is_empty()).then_some(self.owner);
        self.readers.iter().copied().chain(owner)
    }
}
