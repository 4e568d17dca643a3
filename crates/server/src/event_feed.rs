//! The seam through which the server gets file events: it knows neither events nor the client
//! library, so the agent gives it the feeds.

use std::fmt;
use std::time::Duration;

use barograph_model::ControlFault;

/// The events that a client asks for, in the words of its request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventQuery {
    /// Kinds of events; all kinds if there are none.
    pub kinds: Vec<String>,
    /// File or directory: events of it and of what is below it.
    pub path: Option<String>,
    /// Pattern of the path.
    pub glob: Option<String>,
    /// Name of the source.
    pub source: Option<String>,
    /// Earliest time of past events, in ns since the epoch; without it only new ones are meant.
    pub since_ns: Option<i64>,
    /// Id of the last message that the client has seen.
    pub after: Option<String>,
}

/// A message of a feed of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventMessage {
    /// The text from which a reader goes on that has seen this message.
    pub id: String,
    /// The JSON object of the event, or of the gap.
    pub json: String,
    /// Whether events are missing here.
    pub is_gap: bool,
}

/// The events that one client gets.
pub trait EventMessages: Send {
    /// The next message; waits for one at most about so long.
    fn next(&mut self, timeout: Duration) -> Option<EventMessage>;

    /// The id of the last message; before the first one, the text from which a reader begins here.
    fn id(&self) -> String;

    /// About how many bytes of events are held.
    fn held_bytes(&self) -> usize;
}

/// Makes feeds of the events that everyone on the node may read.
pub trait EventFeeds: Send + Sync + fmt::Debug {
    /// Opens a feed. It may read the history, so it is called on a thread that may wait.
    ///
    /// # Errors
    ///
    /// The query is malformed, or the history cannot be read now.
    fn open(&self, query: &EventQuery) -> Result<Box<dyn EventMessages>, ControlFault>;
}
