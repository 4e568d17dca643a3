//! The streams of all nodes of a cluster, as rules name them: `cluster.disk.busy.ratio{node=b}` is the
//! stream `disk.busy.ratio` of node b.
//!
//! It stands alone because whoever follows streams for rules finds out with it which of other nodes
//! they read, and under which names these streams are at their owners.

use barograph_model::{CLUSTER_NODE_LABEL, CLUSTER_PREFIX, Descriptor, Pattern, Selector};
use barograph_statement::StatementError;

use crate::leaf::{LeafFunction, StreamFunction};
use crate::statement::{RuleStatement, parse};

/// A selector of streams of all nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSelector {
    /// The same streams, as their owners name them.
    pub of_owner: Selector,
    nodes: Vec<Pattern>,
}

impl ClusterSelector {
    fn of(leaf: &StreamFunction) -> Option<Self> {
        let name = leaf.reads_cluster().then(|| leaf.selector.name.as_str())?;
        let labels = leaf.selector.labels.iter().cloned();
        let (nodes, labels): (Vec<_>, Vec<_>) =
            labels.partition(|(label, _)| label == CLUSTER_NODE_LABEL);
        let of_owner = Selector {
            name: Pattern::new(name.strip_prefix(CLUSTER_PREFIX)?),
            labels,
        };
        Some(Self {
            // Without its first part a name may be none, and then owners would refuse it.
            of_owner: Selector::parse(&of_owner.to_string()).ok()?,
            nodes: nodes.into_iter().map(|(_, node)| node).collect(),
        })
    }

    /// Whether it means a stream that has this descriptor at its owner, which is this node.
    pub fn matches(&self, descriptor: &Descriptor, node: &str) -> bool {
        let name = descriptor.name.as_str();
        self.nodes.iter().all(|pattern| pattern.matches(node))
            && self.of_owner.matches(name, &descriptor.labels)
    }

    /// The node whose streams it means; `None` if they may be of several.
    pub fn node(&self) -> Option<&str> {
        let literal = self.nodes.iter().find(|node| node.is_literal());
        literal.map(Pattern::as_str)
    }
}

impl StreamFunction {
    /// Whether it reads streams of all nodes.
    pub(crate) fn reads_cluster(&self) -> bool {
        self.of != LeafFunction::Label && self.selector.name.as_str().starts_with(CLUSTER_PREFIX)
    }
}

/// The selectors of these functions that mean streams of all nodes, each once.
pub(crate) fn cluster_selectors<'l>(
    leaves: impl Iterator<Item = &'l StreamFunction>,
) -> Vec<ClusterSelector> {
    let mut all: Vec<ClusterSelector> = Vec::new();
    for selector in leaves.filter_map(ClusterSelector::of) {
        if !all.contains(&selector) {
            all.push(selector);
        }
    }
    all
}

/// The selectors of a `CREATE RULE` that mean streams of all nodes, as they are written; none of
/// another statement.
pub fn selectors_of_cluster(sql: &str) -> Result<Vec<Selector>, StatementError> {
    let RuleStatement::Create { definition, .. } = parse(sql)? else {
        return Ok(Vec::new());
    };
    let leaves = definition.leaves.into_iter();
    let of_cluster = leaves.filter(StreamFunction::reads_cluster);
    Ok(of_cluster.map(|leaf| leaf.selector).collect())
}

#[cfg(test)]
mod tests {
    use barograph_model::{Labels, Name, Unit, ValueType};

    use super::*;

    fn selector(text: &str) -> Option<ClusterSelector> {
        ClusterSelector::of(&StreamFunction {
            of: LeafFunction::Latest,
            text: String::new(),
            selector: Selector::parse(text).unwrap(),
            ns: 0,
            is_own: false,
            crossings: None,
        })
    }

    #[test]
    fn selectors_of_all_nodes_mean_streams_of_their_owners() {
        let busy = Descriptor {
            labels: Labels::new([("device", "vda"), ("node", "other")]).unwrap(),
            ..Descriptor::gauge(
                Name::new("disk.busy.ratio").unwrap(),
                ValueType::Float,
                Unit::new("ratio").unwrap(),
            )
        };
        for (text, of_owner, node, matches) in [
            ("cluster.disk.busy.ratio", "disk.busy.ratio", None, true),
            ("cluster.disk.*{node=b}", "disk.*", Some("b"), true),
            ("cluster.*{node=a}", "*", Some("a"), false),
            ("cluster.disk.*{node=?}", "disk.*", None, true),
            (
                "cluster.disk.*{device=vd*,node=b}",
                "disk.*{device=vd*}",
                Some("b"),
                true,
            ),
            ("cluster.disk.*{device=x}", "disk.*{device=x}", None, false),
        ] {
            let selector = selector(text).unwrap();
            assert_eq!(selector.of_owner.to_string(), of_owner);
            assert_eq!(selector.node(), node, "{text}");
            assert_eq!(selector.matches(&busy, "b"), matches, "{text}");
        }
        for text in [
            "disk.busy.ratio{node=b}",
            "cluster.",
            "cluster. {a=b}",
            "clusters.x",
            "*",
        ] {
            assert_eq!(selector(text), None, "{text}");
        }
    }

    #[test]
    fn statements_tell_what_they_read() {
        let sql = "CREATE RULE r WHEN latest('a') > label('cluster.x') CALL 'x' \
                   PAYLOAD latest('cluster.b{node=n}')";
        let read = selectors_of_cluster(sql).unwrap();
        let read: Vec<String> = read.iter().map(ToString::to_string).collect();
        assert_eq!(read, ["cluster.b{node=n}"]);
        assert_eq!(selectors_of_cluster("DROP RULE r").unwrap(), []);
        assert!(selectors_of_cluster("CREATE RULE r").is_err());
    }
}
