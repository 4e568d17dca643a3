//! The file events that the server sends: the client's feed, over what everyone may read.
//!
//! It stands alone because the server knows neither events nor the client library.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use barograph_client::{
    EventFeed, EventFilter, EventKind, EventPosition, EventStart, FeedItem, Observer, RunDir,
    event_json, gap_json,
};
use barograph_model::{Clock, ControlFault, ControlFaultKind, Pattern, SqlFault, SqlFaultKind};
use barograph_server::{EventFeeds, EventMessage, EventMessages, EventQuery};

/// The events of this node.
pub(crate) struct PublicEvents {
    run_dir: RunDir,
    clock: Arc<dyn Clock>,
    /// The observer that all feeds share, once there was one.
    observer: Mutex<Option<Observer>>,
}

impl std::fmt::Debug for PublicEvents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PublicEvents").finish_non_exhaustive()
    }
}

/// The events that everyone on the node may read.
pub(crate) fn event_feeds(run_dir: &RunDir, clock: &Arc<dyn Clock>) -> Arc<dyn EventFeeds> {
    Arc::new(PublicEvents {
        run_dir: run_dir.clone(),
        clock: Arc::clone(clock),
        observer: Mutex::new(None),
    })
}

impl PublicEvents {
    fn observer(&self) -> Result<Observer, ControlFault> {
        // An observer is there or not, so a poisoned lock holds a valid one.
        let mut held = self.observer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(observer) = &*held {
            return Ok(observer.clone());
        }
        let opened = Observer::open_public(self.run_dir.clone(), Arc::clone(&self.clock));
        let observer = opened.map_err(|error| busy(error.to_string()))?;
        Ok(held.insert(observer).clone())
    }
}

impl EventFeeds for PublicEvents {
    fn open(&self, query: &EventQuery) -> Result<Box<dyn EventMessages>, ControlFault> {
        let (filter, start) = parsed(query)?;
        let feed = self.observer()?.events(filter, start);
        Ok(Box::new(Messages(feed.map_err(|fault| fault_of(&fault))?)))
    }
}

/// The filter and the start that a client asks for.
fn parsed(query: &EventQuery) -> Result<(EventFilter, EventStart), ControlFault> {
    let kind = |word: &String| {
        EventKind::parse(word).ok_or_else(|| {
            let all: Vec<&str> = EventKind::ALL.iter().map(|kind| kind.as_str()).collect();
            wrong(format!("kind={word}: the kinds are {}", all.join(", ")))
        })
    };
    let filter = EventFilter {
        kinds: query.kinds.iter().map(kind).collect::<Result<_, _>>()?,
        path: query.path.as_ref().map(Into::into),
        glob: query.glob.as_ref().map(Pattern::new),
        source: query.source.clone(),
    };
    let start = match (&query.after, query.since_ns) {
        (Some(after), since_ns) => {
            let position: Result<EventPosition, _> = after.parse();
            let position = position.map_err(|fault| wrong(fault.to_string()))?;
            EventStart::After(position, since_ns)
        }
        (None, Some(since_ns)) => EventStart::Since(since_ns),
        (None, None) => EventStart::Now,
    };
    Ok((filter, start))
}

fn wrong(message: String) -> ControlFault {
    ControlFault {
        kind: ControlFaultKind::Statement,
        message,
    }
}

fn busy(message: String) -> ControlFault {
    ControlFault {
        kind: ControlFaultKind::Busy,
        message,
    }
}

fn fault_of(fault: &SqlFault) -> ControlFault {
    let kind = match fault.kind {
        SqlFaultKind::Internal => ControlFaultKind::Internal,
        _ => ControlFaultKind::Busy,
    };
    ControlFault {
        kind,
        message: fault.message.clone(),
    }
}

/// The messages of one client.
struct Messages(EventFeed);

impl EventMessages for Messages {
    fn next(&mut self, timeout: Duration) -> Option<EventMessage> {
        let item = self.0.next(timeout)?;
        let id = self.0.position().to_string();
        Some(match item {
            FeedItem::Event(event, source) => EventMessage {
                id,
                json: event_json(&event, &source).to_string(),
                is_gap: false,
            },
            FeedItem::Gap(gap) => EventMessage {
                id,
                json: gap_json(&gap).to_string(),
                is_gap: true,
            },
        })
    }

    fn id(&self) -> String {
        self.0.position().to_string()
    }

    fn held_bytes(&self) -> usize {
        self.0.held_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries() {
        let check = |query: EventQuery, expect: Result<&str, &str>| match (parsed(&query), expect) {
            (Ok((filter, start)), Ok(expect)) => {
                let found = format!("{:?} {:?} {start:?}", filter.kinds, filter.path);
                assert_eq!(found, expect);
            }
            (Err(fault), Err(part)) => assert!(fault.message.contains(part), "{}", fault.message),
            (found, expect) => panic!("{query:?}: {:?}, not {expect:?}", found.is_ok()),
        };
        let query = EventQuery::default;
        check(query(), Ok("[] None Now"));
        let kinds = EventQuery {
            kinds: vec!["create".into(), "rmdir".into()],
            path: Some("/a".into()),
            since_ns: Some(5),
            ..query()
        };
        check(kinds, Ok("[Create, Rmdir] Some(\"/a\") Since(5)"));
        let made = EventQuery {
            kinds: vec!["made".into()],
            ..query()
        };
        check(made, Err("kind=made: the kinds are create, mkdir"));
        let after = |text: &str| EventQuery {
            after: Some(text.into()),
            ..query()
        };
        check(after(";"), Ok("[] None After(EventPosition({}), None)"));
        check(after("data"), Err("no position of events"));
    }
}
