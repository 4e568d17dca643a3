//! The streams of calls: when each was made and answered, beside all else that happened.

use std::collections::HashMap;

use barograph_model::{
    Descriptor, Kind, Labels, Name, Quality, Sample, StreamKey, Unit, Value, ValueType,
};
use barograph_stream::user_name;
use tracing::{debug, warn};

use crate::scope::{Scope, Scopes};
use crate::shares::Shares;
use barograph_call::{Board, CallEvent};
use barograph_recorder::Reader;

/// Names of calls that have streams in the scopes of users, and in that of all; those of more have none.
const STREAMS_MAX: u64 = 1_024;

/// `app.call.fired.id{name, user}` and `app.call.acked.id{name, user}`, in the scope of those who may read of the
/// call: of everyone, or of the user whose processes are called. Of each call in one of them, as that user reads both.
pub struct CallStreams {
    of_users: Written,
    of_all: Written,
}

/// Streams of one kind of scopes.
struct Written {
    /// By user, whether it is of answers, and name.
    keys: HashMap<(u32, bool, String), StreamKey>,
    /// Streams, by user.
    shares: Shares<u32>,
    newest_ns: HashMap<u32, i64>,
}

impl CallStreams {
    /// Streams of one user's calls, or of several users', who share them.
    pub fn new(is_shared: bool) -> Self {
        Self {
            of_users: Written::new(is_shared),
            of_all: Written::new(is_shared),
        }
    }

    /// Appends what has happened on the board.
    pub fn append(&mut self, board: &Board, scopes: &mut Scopes<'_>) {
        let (events, lost) = board.events();
        if lost > 0 {
            warn!(
                lost,
                "calls and answers are missing in the streams of calls"
            );
        }
        for event in events {
            let (written, reader) = match event.is_public {
                true => (&mut self.of_all, Reader::All),
                false => (&mut self.of_users, Reader::User(event.uid)),
            };
            if let Some(scope) = scopes.of(reader) {
                written.append(event, scope);
            }
        }
    }
}

impl Written {
    fn new(is_shared: bool) -> Self {
        Self {
            keys: HashMap::new(),
            shares: Shares::new(STREAMS_MAX, STREAMS_MAX, is_shared),
            newest_ns: HashMap::new(),
        }
    }

    fn append(&mut self, event: CallEvent, scope: &mut Scope<'_>) {
        let key = (event.uid, event.is_answer, event.name);
        let stream = if let Some(stream) = self.keys.get(&key) {
            *stream
        } else {
            if !self.shares.has_room(&key.0, 1) {
                debug!(name = key.2, "there are too many streams of calls");
                return;
            }
            let user = user_name(key.0);
            let descriptor = descriptor(&user, key.1, &key.2);
            let declared = descriptor.and_then(|of| scope.declare(&of, 0, &user).ok());
            // There may be room for the next call.
            let Some(stream) = declared else {
                return;
            };
            self.shares.take(key.0, 1);
            self.keys.insert(key, stream);
            stream
        };
        // A stream's samples are in order, whatever is done to the clock.
        let newest = self.newest_ns.entry(event.uid).or_insert(i64::MIN);
        *newest = (*newest).max(event.ts);
        scope.append(
            stream,
            &Sample {
                ts: *newest,
                value: Value::Int(i64::try_from(event.id).unwrap_or(i64::MAX)),
                quality: Quality::Measured,
                error: 0.0,
            },
            None,
        );
    }
}

fn descriptor(user: &str, is_answer: bool, name: &str) -> Option<Descriptor> {
    let (stream, help) = match is_answer {
        false => ("app.call.fired.id", "A call was made: its id."),
        true => (
            "app.call.acked.id",
            "A process has answered a call: the call's id.",
        ),
    };
    Some(Descriptor {
        name: Name::new(stream).ok()?,
        labels: Labels::new([("name", name), ("user", user)]).ok()?,
        value_type: ValueType::Int,
        unit: Unit::new("1").ok()?,
        kind: Kind::Gauge,
        help: help.into(),
    })
}
