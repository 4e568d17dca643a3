//! The search of a feed for the lives that ended before it began: asked of the archive, again after
//! a failure, and given up after [`PATIENCE_NS`].

use std::collections::HashMap;

use barograph_model::{NS_PER_S, SeriesId};

use crate::past::{EndedList, EndedQuery, PastReading, PastSource};

/// Time for which what cannot be read is waited for, in ns.
pub(crate) const PATIENCE_NS: i64 = 60 * NS_PER_S;
/// Time until what could not be read is read again, in ns.
pub(crate) const RETRY_NS: i64 = NS_PER_S;

/// The search for the lives that ended before the feed began.
#[derive(Debug)]
pub(crate) enum EndedSearch {
    /// It is to begin.
    Wanted {
        query: EndedQuery,
        /// Time since which it could not be done, ns since the epoch; `None` before the first
        /// attempt.
        since_ns: Option<i64>,
        next_ns: i64,
    },
    /// It is under way.
    UnderWay {
        query: EndedQuery,
        since_ns: i64,
        /// Time of the question, ns since the epoch.
        asked_ns: i64,
        reading: Box<dyn PastReading<EndedList>>,
    },
    /// It is over.
    Over,
}

/// End of a search.
#[derive(Debug)]
pub(crate) enum SearchEnd {
    Found {
        list: EndedList,
        /// Time of the question, ns since the epoch.
        asked_ns: i64,
    },
    /// It could not be done for too long.
    Failed,
}

impl EndedSearch {
    /// A search that is to begin, if there is anything to ask.
    pub(crate) fn new(query: Option<EndedQuery>) -> Self {
        let wanted = |query| Self::Wanted {
            query,
            since_ns: None,
            next_ns: i64::MIN,
        };
        query.map_or(Self::Over, wanted)
    }

    /// Whether its answer is still to come.
    pub(crate) fn is_open(&self) -> bool {
        !matches!(self, Self::Over)
    }

    /// Has a search that is to begin wait as if from now on.
    pub(crate) fn wait_anew(&mut self) {
        if let Self::Wanted { since_ns, .. } = self {
            *since_ns = None;
        }
    }

    /// Goes on with the search, and returns how it has ended if it ends now. `present` gives the
    /// lives that have not ended.
    pub(crate) fn step(
        &mut self,
        now_ns: i64,
        source: &dyn PastSource,
        present: impl FnOnce() -> HashMap<SeriesId, i64>,
    ) -> Option<SearchEnd> {
        let is_hopeless = |since_ns: i64| now_ns.saturating_sub(since_ns) >= PATIENCE_NS;
        match std::mem::replace(self, Self::Over) {
            Self::Over => None,
            Self::Wanted {
                mut query,
                since_ns,
                next_ns,
            } => {
                let since_ns = since_ns.unwrap_or(now_ns);
                if is_hopeless(since_ns) {
                    return Some(SearchEnd::Failed);
                }
                let mut reading = None;
                if now_ns >= next_ns {
                    query.present = present();
                    reading = source.list(query.clone());
                }
                *self = match reading {
                    None => Self::Wanted {
                        query,
                        since_ns: Some(since_ns),
                        next_ns,
                    },
                    Some(reading) => Self::UnderWay {
                        query,
                        since_ns,
                        asked_ns: now_ns,
                        reading,
                    },
                };
                None
            }
            Self::UnderWay {
                query,
                since_ns,
                asked_ns,
                mut reading,
            } => match reading.take() {
                Some(list) if list.is_failed => {
                    *self = Self::Wanted {
                        query,
                        since_ns: Some(since_ns),
                        next_ns: now_ns.saturating_add(RETRY_NS),
                    };
                    None
                }
                Some(list) => Some(SearchEnd::Found { list, asked_ns }),
                None if is_hopeless(since_ns) => Some(SearchEnd::Failed),
                None => {
                    *self = Self::UnderWay {
                        query,
                        since_ns,
                        asked_ns,
                        reading,
                    };
                    None
                }
            },
        }
    }
}
