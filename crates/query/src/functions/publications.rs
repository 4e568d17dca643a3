//! The publications among the metrics of a node, by the names of their streams.

use std::collections::BTreeSet;
use std::sync::Arc;

use barograph_stream::ingest::{APPLICATIONS_PREFIX, FRAME_VALUE};

use crate::shape::MetricShape;

/// Prefix of the streams of a publication.
pub(super) fn prefix_of(publication: &str) -> String {
    format!("{APPLICATIONS_PREFIX}.{publication}")
}

/// The publications that have frames, each once.
pub(crate) fn publications<'a>(shapes: impl Iterator<Item = &'a Arc<MetricShape>>) -> Vec<String> {
    let name = |shape: &'a Arc<MetricShape>| {
        Some(committer(suffix(&shape.name, APPLICATIONS_PREFIX)?)?.to_owned())
    };
    let names: BTreeSet<String> = shapes.filter_map(name).collect();
    names.into_iter().collect()
}

/// The prefix of a stream that counts frames; `None` for any other stream.
fn committer(name: &str) -> Option<&str> {
    name.strip_suffix(FRAME_VALUE)?.strip_suffix('.')
}

/// Of shapes with a prefix, those of the publication and not those of one with a longer name.
/// `None` if it has no frames.
pub(super) fn of_publication<'a>(
    prefix: &str,
    mut shapes: Vec<(&'a str, &'a Arc<MetricShape>)>,
) -> Option<Vec<(&'a str, &'a Arc<MetricShape>)>> {
    let all = shapes.iter();
    let all: Vec<String> = all
        .filter_map(|(_, shape)| committer(&shape.name).map(str::to_owned))
        .collect();
    let (own, others): (Vec<_>, Vec<_>) = all.iter().partition(|other| *other == prefix);
    if own.is_empty() {
        return None;
    }
    shapes.retain(|(_, shape)| {
        let mut others = others.iter();
        !others.any(|other| suffix(&shape.name, other).is_some())
    });
    Some(shapes)
}

/// The part of a name of the family after the prefix.
pub(super) fn suffix<'a>(name: &'a str, prefix: &str) -> Option<&'a str> {
    name.strip_prefix(prefix)?.strip_prefix('.')
}
