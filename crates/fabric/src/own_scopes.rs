//! The scopes of this node's applications that other nodes may mirror: their segments, as they come
//! and go.

use std::collections::BTreeMap;
use std::sync::Arc;

use barograph_stream::{RunDir, SegmentReader};

use crate::config::NodeConfig;
use crate::publisher::PublishedScopes;

/// The scopes of a run directory that are published.
#[derive(Debug, Default)]
pub(crate) struct OwnScopes {
    segments: PublishedScopes,
}

impl OwnScopes {
    /// Looks which of them there are at `now_ns`, in ns since the epoch. Returns them if they are
    /// others than at the last look.
    pub(crate) fn look(&mut self, config: &NodeConfig, now_ns: i64) -> Option<PublishedScopes> {
        if config.scopes.is_empty() {
            return None;
        }
        let names = config.run_dir.scope_names().into_iter();
        let published = names.filter(|name| config.takes_scope(name));
        let found: PublishedScopes = published
            .filter_map(|name| {
                let known = self.segments.get(&*name);
                let segment = segment(&config.run_dir.scope(&name), known, now_ns)?;
                Some((name.into(), segment))
            })
            .collect();
        let is_same = found.len() == self.segments.len()
            && found.iter().all(|(scope, segment)| {
                let known = self.segments.get(scope);
                known.is_some_and(|known| Arc::ptr_eq(known, segment))
            });
        self.segments = found;
        (!is_same).then(|| BTreeMap::clone(&self.segments))
    }
}

/// The segment of a scope: the one that is known unless there is another in its place.
fn segment(
    dir: &RunDir,
    known: Option<&Arc<SegmentReader>>,
    now_ns: i64,
) -> Option<Arc<SegmentReader>> {
    let Some(known) = known else {
        return SegmentReader::of(dir).ok().map(Arc::new);
    };
    if known.is_alive(now_ns) {
        return Some(Arc::clone(known));
    }
    let mut segment = SegmentReader::clone(known);
    match segment.reopen_if_replaced() {
        Ok(true) => Some(Arc::new(segment)),
        Ok(false) => Some(Arc::clone(known)),
        Err(_) => None,
    }
}
