//! The choice of events that a reader wants, and their JSON form.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use barograph_event::{EventFlags, EventKind, FileEvent};
use barograph_model::Pattern;
use serde_json::json;

/// Which events a reader wants; by default all that it may read.
#[derive(Clone, Debug, Default)]
pub struct EventFilter {
    /// Kinds of events; all kinds if there are none.
    pub kinds: Vec<EventKind>,
    /// File or directory: events of it and of what is below it.
    pub path: Option<PathBuf>,
    /// Pattern that the path, or the path before a rename, must match: `*` is any run of
    /// characters, slashes included, and `?` is one byte. Bytes that are no UTF-8 match as U+FFFD.
    pub glob: Option<Pattern>,
    /// Name of the source.
    pub source: Option<String>,
}

impl EventFilter {
    /// Whether an event is wanted. Its source is not looked at.
    pub fn wants(&self, event: &FileEvent) -> bool {
        let is_below = |path: &[u8]| {
            let path = Path::new(OsStr::from_bytes(path));
            (self.path.as_ref()).is_none_or(|wanted| path.starts_with(wanted))
        };
        let is_matched = |path: &[u8]| {
            let glob = self.glob.as_ref();
            glob.is_none_or(|glob| glob.matches(&String::from_utf8_lossy(path)))
        };
        let is_meant = |path: &[u8]| is_below(path) && is_matched(path);
        let is_kind = self.kinds.is_empty() || self.kinds.contains(&event.kind);
        is_kind
            && (is_meant(&event.path) || !event.old_path.is_empty() && is_meant(&event.old_path))
    }
}

/// Events that cannot be given: they are not in the history any more, or were never there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventGap {
    /// The source whose events are missing.
    pub source: String,
    /// Number of the last event before them; 0 if there is none.
    pub after: u64,
    /// Number of the first event after them; `None` if there is none yet.
    pub before: Option<u64>,
    /// Number of the missing events, where it is known: sources may leave numbers out.
    pub missing: Option<u64>,
    /// The reason, for people.
    pub reason: String,
}

/// Returns an event as JSON, with the fields of the table `events`.
pub fn event_json(event: &FileEvent, source: &str) -> serde_json::Value {
    let has = |flag| event.flags.has(flag);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    json!({
        "ts": event.ts,
        "kind": event.kind.as_str(),
        "path": text(&event.path),
        "old_path": (!event.old_path.is_empty()).then(|| text(&event.old_path)),
        "size": event.size,
        "uid": event.uid,
        "gid": event.gid,
        "job": (!event.job.is_empty()).then_some(&*event.job),
        "directory": has(EventFlags::DIRECTORY),
        "complete": !has(EventFlags::PATH_INCOMPLETE),
        "idx": event.index,
        "quality": match has(EventFlags::RECONCILED) {
            true => "reconciled",
            false => "measured",
        },
        "source": source,
    })
}

/// Returns a gap as JSON.
pub fn gap_json(gap: &EventGap) -> serde_json::Value {
    json!({
        "source": gap.source,
        "after": gap.after,
        "before": gap.before,
        "missing": gap.missing,
        "reason": gap.reason,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted() {
        let event = |kind, path: &[u8], old_path: &[u8]| FileEvent {
            path: path.to_vec(),
            old_path: old_path.to_vec(),
            ..FileEvent::new(kind, 1, 2)
        };
        let create = event(EventKind::Create, b"/data/run/a.h5", b"");
        let rename = event(EventKind::Rename, b"/data/b", b"/tmp/\xff.h5");
        let check = |kinds: &[EventKind], path: &str, glob: &str, expect: (bool, bool)| {
            let filter = EventFilter {
                kinds: kinds.to_vec(),
                path: (!path.is_empty()).then(|| PathBuf::from(path)),
                glob: (!glob.is_empty()).then(|| Pattern::new(glob)),
                source: None,
            };
            let found = (filter.wants(&create), filter.wants(&rename));
            assert_eq!(found, expect, "{kinds:?} {path} {glob}");
        };
        check(&[], "", "", (true, true));
        check(&[EventKind::Create], "", "", (true, false));
        check(
            &[EventKind::Rename, EventKind::Unlink],
            "",
            "",
            (false, true),
        );
        check(&[], "/data", "", (true, true));
        check(&[], "/dat", "", (false, false));
        check(&[], "/data/run/", "", (true, false));
        check(&[], "/tmp", "", (false, true));
        check(&[], "", "*.h5", (true, true));
        check(&[], "", "/data/*.h5", (true, false));
        check(&[], "/data", "/tmp/*", (false, false));
        check(&[], "", "/tmp/?.h5", (false, false));
        check(&[], "", "/tmp/*.h5", (false, true));
    }
}
