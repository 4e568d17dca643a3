//! The columns of file events in sealed files: the archive knows no records, so it is given this.

use barograph_archive::{EventFields, EventReader};
use barograph_event::{EVENT_STREAM, EventFlags, EventRecord, SOURCE_LABEL};

/// Reads records of events for the archive.
#[derive(Debug)]
pub(crate) struct RecordFields;

impl EventReader for RecordFields {
    fn stream(&self) -> &'static str {
        EVENT_STREAM
    }

    fn source_label(&self) -> &'static str {
        SOURCE_LABEL
    }

    fn read<'a>(&self, record: &'a [u8]) -> Option<EventFields<'a>> {
        let record = EventRecord::read(record).ok()?;
        Some(EventFields {
            kind: record.kind.as_str(),
            path: record.path,
            old_path: record.old_path,
            size: record.size,
            uid: record.uid,
            gid: record.gid,
            job: record.job,
            is_directory: record.flags.has(EventFlags::DIRECTORY),
            is_complete: !record.flags.has(EventFlags::PATH_INCOMPLETE),
            index: record.index,
        })
    }
}
