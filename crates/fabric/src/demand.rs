//! Demands for streams of other nodes, beside those that the configuration wants, and the selectors
//! that come of both for one node.
//!
//! They stand alone because a subscription has room for a bounded number of selectors, and this is
//! the place that decides which ones are left out.

use std::collections::HashSet;
use std::sync::Arc;

use crate::frame::SELECTORS_MAX;

/// A demand for streams of other nodes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamDemand {
    /// The selector of the streams, as their owners name them.
    pub selector: String,
    /// The node whose streams they are; `None`: all nodes that are mirrored.
    pub node: Option<Arc<str>>,
}

impl StreamDemand {
    /// A demand for these streams of all nodes.
    pub fn of_all(selector: impl Into<String>) -> Self {
        Self {
            selector: selector.into(),
            node: None,
        }
    }

    /// Whether it is for streams of the node.
    pub(crate) fn is_of(&self, node: &str) -> bool {
        self.node.as_deref().is_none_or(|name| name == node)
    }
}

/// The selectors of a subscription to a node, and how many others it had no room for: first those
/// that the configuration wants, then the demands in their order, each once.
pub(crate) fn selectors_of(
    node: &str,
    configured: &[String],
    demands: &[StreamDemand],
) -> (Vec<String>, usize) {
    let of_node = demands.iter().filter(|demand| demand.is_of(node));
    let all = configured
        .iter()
        .chain(of_node.map(|demand| &demand.selector));
    let mut seen = HashSet::new();
    let mut selectors: Vec<String> = all.filter(|text| seen.insert(*text)).cloned().collect();
    let left_out = selectors.len().saturating_sub(SELECTORS_MAX);
    selectors.truncate(SELECTORS_MAX);
    (selectors, left_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_asked_for_what_is_wanted_of_it() {
        let of_node = |selector: &str, node: &str| StreamDemand {
            selector: selector.into(),
            node: Some(node.into()),
        };
        let configured = ["node.*".to_owned()];
        let mut demands = vec![
            StreamDemand::of_all("disk.*"),
            of_node("node.*", "b"),
            of_node("cpu.*", "b"),
            of_node("gpu.*", "c"),
        ];
        let check = |node: &str, demands: &[StreamDemand], expect: &[&str]| {
            let (selectors, left_out) = selectors_of(node, &configured, demands);
            assert_eq!(selectors, expect, "{node}");
            assert_eq!(left_out, 0);
        };
        check("b", &demands, &["node.*", "disk.*", "cpu.*"]);
        check("c", &demands, &["node.*", "disk.*", "gpu.*"]);
        check("d", &demands, &["node.*", "disk.*"]);
        demands.extend((0..300).map(|at| of_node(&format!("a.n{at}"), "b")));
        let (selectors, left_out) = selectors_of("b", &configured, &demands);
        assert_eq!(
            (selectors.len(), left_out),
            (SELECTORS_MAX, 303 - SELECTORS_MAX)
        );
        check("c", &demands, &["node.*", "disk.*", "gpu.*"]);
    }
}
