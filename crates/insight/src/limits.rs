//! The bounds of a graph, with their defaults.

/// The bounds of a graph, and its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphLimits {
    /// Most insights, including built-in ones. Further insights are refused.
    pub insights_max: usize,
    /// Most groups (output streams) of one insight. Further groups are left out, and the insight
    /// reports their number.
    pub groups_max: usize,
    /// Most rows that one SELECT may join; an insight with more fails until there are fewer.
    pub rows_max: usize,
    /// Most arguments of aggregates that one SELECT keeps, that is, its rows times its aggregates;
    /// an insight with more fails until there are fewer rows.
    pub arguments_max: usize,
    /// Longest chain of insights that read insights.
    pub depth_max: usize,
    /// The value of the column `node`.
    pub node: String,
    /// Whether tables over all nodes, `cluster_<metric>`, may be read before they have streams.
    pub is_clustered: bool,
}

impl Default for GraphLimits {
    fn default() -> Self {
        Self {
            insights_max: 512,
            groups_max: 4_096,
            rows_max: 65_536,
            arguments_max: 1 << 18,
            depth_max: 64,
            node: String::new(),
            is_clustered: false,
        }
    }
}
