//! The columns of the table `control_events`, which are read from the records that its samples
//! hold.
//!
//! The table has the streams of the control events of programs and of agents: one kind of thing
//! that comes by two streams. So it has the rings, the archive, the nodes and the rights of all
//! tables, and each stream has its plain table as well.

use barograph_stream::{
    CONTROL_EVENT_STREAM_OF_AGENTS, CONTROL_EVENT_STREAM_OF_PROGRAMS, ControlEventRecord,
};
use rusqlite::Result;
use rusqlite::types::Null;
use rusqlite::vtab::Context;
use serde_json::{Map, Value as Json};

/// The name of the table.
pub(crate) const CONTROL_EVENTS: &str = "control_events";

/// Whether a stream of this name is in the table of control events; dots may be underscores, as in
/// the names of tables.
pub(crate) fn is_in_control_events(name: &str) -> bool {
    let fold = |b: u8| if b == b'.' { b'_' } else { b };
    let is = |stream: &str| name.bytes().map(fold).eq(stream.bytes().map(fold));
    is(CONTROL_EVENT_STREAM_OF_PROGRAMS) || is(CONTROL_EVENT_STREAM_OF_AGENTS)
}

/// A column of the table that is a part of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ControlColumn {
    Kind,
    Subject,
    Value,
    Confidence,
    Sequence,
    Pid,
    Thread,
    Life,
    Properties,
}

use ControlColumn as C;

impl ControlColumn {
    /// The declared type.
    pub(crate) fn declared(self) -> &'static str {
        match self {
            C::Kind | C::Subject | C::Life | C::Properties => "TEXT",
            C::Sequence | C::Pid | C::Thread => "INTEGER",
            C::Value | C::Confidence => "REAL",
        }
    }

    /// Sets the result of a scan to this part of a record; NULL if the bytes are no record.
    pub(crate) fn set(self, context: &mut Context, bytes: &[u8]) -> Result<()> {
        let Ok(record) = ControlEventRecord::read(bytes) else {
            return context.set_result(Null);
        };
        match self {
            C::Kind => context.set_result(record.kind),
            C::Subject => context.set_result(record.subject),
            C::Value => context.set_result(record.value),
            C::Confidence => context.set_result(record.confidence),
            C::Sequence => context.set_result(i64::try_from(record.sequence).unwrap_or(i64::MAX)),
            C::Pid => context.set_result(record.pid),
            C::Thread => context.set_result(record.thread),
            C::Life => context.set_result(format!("{:016x}", record.life)),
            C::Properties => {
                let pairs = record.properties.iter();
                let pairs = pairs.map(|(name, text)| (name.to_owned(), Json::from(text)));
                context.set_result(Json::Object(pairs.collect::<Map<_, _>>()).to_string())
            }
        }
    }
}
