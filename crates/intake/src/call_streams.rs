//! The streams of calls: when each call was made and answered.

use std::collections::HashMap;

use barograph_model::{
    Descriptor, Kind, Labels, Name, Quality, Sample, StreamKey, Unit, Value, ValueType,
};
use barograph_stream::user_name;
use tracing::{debug, warn};

use crate::scope::{OpenScopes, Scope};
use crate::shares::Shares;
use barograph_call::{Board, CallEvent};
use barograph_stream::ScopeReader;

/// Most names of calls that have streams, separately in users' scopes and in that of all; further
/// names have none.
const STREAMS_MAX: u64 = 1_024;
/// Most events that wait for scopes; the streams lack further ones.
const HELD_MAX: usize = 4_096;

/// The streams `app.call.fired.id{name, user}` and `app.call.acked.id{name, user}`. A call appears
/// in the scope of those who may read about it: the scope of all, or that of the user whose
/// processes are called. It appears in only one of them, since that user reads both.
pub(crate) struct CallStreams {
    of_users: Written,
    of_all: Written,
    /// Events whose scopes are being opened.
    held: Vec<CallEvent>,
}

/// The streams of one kind of scope.
struct Written {
    /// Streams by user, whether they hold answers, and name of the call.
    keys: HashMap<(u32, bool, String), StreamKey>,
    /// Number of streams by user.
    shares: Shares<u32>,
    newest_ns: HashMap<u32, i64>,
}

impl CallStreams {
    /// Makes the streams. `is_shared` is whether several users share their number.
    pub(crate) fn new(is_shared: bool) -> Self {
        Self {
            of_users: Written::new(is_shared),
            of_all: Written::new(is_shared),
            held: Vec::new(),
        }
    }

    /// Appends the board's new events.
    pub(crate) fn append(&mut self, board: &Board, scopes: &mut OpenScopes<'_>) {
        let (events, lost) = board.events();
        if lost > 0 {
            warn!(
                lost,
                "calls and answers are missing in the streams of calls"
            );
        }
        for event in std::mem::take(&mut self.held).into_iter().chain(events) {
            let (written, reader) = match event.is_public {
                true => (&mut self.of_all, ScopeReader::All),
                false => (&mut self.of_users, ScopeReader::User(event.uid)),
            };
            if scopes.is_opening(reader) && self.held.len() < HELD_MAX {
                self.held.push(event);
            } else if let Some(scope) = scopes.of(reader) {
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
            // There may be room at the next call.
            let Some(stream) = declared else {
                return;
            };
            self.shares.take(key.0, 1);
            self.keys.insert(key, stream);
            stream
        };
        // The samples of a stream stay in order even if the clock is set back.
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
        false => (
            "app.call.fired.id",
            "Id of a call, at the time when it was made.",
        ),
        true => (
            "app.call.acked.id",
            "Id of a call, at the time when a process answered it.",
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
