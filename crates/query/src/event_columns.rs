//! The columns of the table `events`, which are read from the records that its samples hold.
//!
//! The table is that of the streams called `events`, whose values are records. So it has the rings,
//! the archive, the nodes and the rights of all tables.

use barograph_event::{EventFlags, EventRecord};
use rusqlite::Result;
use rusqlite::types::Null;
use rusqlite::vtab::Context;

/// A column of the table of events that is a part of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventColumn {
    Kind,
    Path,
    OldPath,
    Size,
    Uid,
    Gid,
    Job,
    IsDirectory,
    IsComplete,
    Index,
    PathBytes,
    OldPathBytes,
    Target,
    Parent,
    Flags,
    Detail,
}

use EventColumn as E;

impl EventColumn {
    /// The declared type.
    pub(crate) fn declared(self) -> &'static str {
        match self {
            E::Kind | E::Path | E::OldPath | E::Job | E::Target | E::Parent | E::Detail => "TEXT",
            E::Size | E::Uid | E::Gid | E::Index | E::Flags => "INTEGER",
            E::IsDirectory | E::IsComplete => "BOOLEAN",
            E::PathBytes | E::OldPathBytes => "BLOB",
        }
    }

    /// Sets the result of a scan to this part of a record; NULL if the bytes are no record.
    pub(crate) fn set(self, context: &mut Context, bytes: &[u8]) -> Result<()> {
        let Ok(record) = EventRecord::read(bytes) else {
            return context.set_result(Null);
        };
        let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        match self {
            E::Kind => context.set_result(record.kind.as_str()),
            E::Path => set_path(context, record.path),
            E::OldPath => set_path(context, record.old_path),
            E::Size => context.set_result(record.size.map(whole)),
            E::Uid => context.set_result(record.uid),
            E::Gid => context.set_result(record.gid),
            E::Job => context.set_result(some(record.job)),
            E::IsDirectory => context.set_result(record.flags.has(EventFlags::DIRECTORY)),
            E::IsComplete => context.set_result(!record.flags.has(EventFlags::PATH_INCOMPLETE)),
            E::Index => context.set_result(whole(record.index)),
            E::PathBytes => context.set_result(Some(record.path).filter(|path| !path.is_empty())),
            E::OldPathBytes => {
                context.set_result(Some(record.old_path).filter(|path| !path.is_empty()))
            }
            E::Target => context.set_result(id(record.target)),
            E::Parent => context.set_result(id(record.parent)),
            E::Flags => context.set_result(record.flags.0),
            E::Detail => context.set_result(some(record.detail)),
        }
    }
}

/// A path as text, in which bytes that are no UTF-8 are replaced: `path_bytes` has them.
fn set_path(context: &mut Context, path: &[u8]) -> Result<()> {
    match path.is_empty() {
        true => context.set_result(Null),
        false => context.set_result(&*String::from_utf8_lossy(path)),
    }
}

fn some(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

fn id(id: barograph_event::ObjectId) -> Option<String> {
    (!id.is_none()).then(|| id.to_string())
}
