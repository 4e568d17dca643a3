//! The items of a log in their order: records, and indexes that are missing.

/// Something in the order of a log, which waits for the other logs.
#[derive(Debug)]
pub(crate) struct LogItem {
    pub(crate) index: u64,
    /// Time of the event, in ns since the epoch.
    pub(crate) time_ns: i64,
    /// When it was read, in ns of the monotonic clock.
    pub(crate) read_ns: i64,
    pub(crate) content: LogContent,
}

/// What an item is.
#[derive(Debug)]
pub(crate) enum LogContent {
    /// A record, in bytes that parse.
    Record(Box<[u8]>),
    /// Indexes from this one up to that of the item are missing.
    Gap {
        /// The first missing index.
        first: u64,
    },
}
