//! The bounds of the rules of a node, each with its name and default.

/// Most rules. One more is refused.
pub(crate) const RULES_MAX: usize = 256;
/// Most subjects (streams that its first function matches) of one rule; those beyond are counted.
pub(crate) const RULE_SUBJECTS_MAX: usize = 1_024;
/// Most subjects of all rules together.
pub(crate) const RULE_SUBJECTS_ALL_MAX: usize = 65_536;
/// Most streams that one function of a subject chooses from; those beyond are counted.
pub(crate) const RULE_CANDIDATES_MAX: usize = 64;
/// Most pairs of a subject and a stream that it reads, of all rules together.
pub(crate) const RULE_BINDINGS_ALL_MAX: usize = 1 << 20;
/// Most points of one window; with more, neighbours are made one: a window's edge is then known to
/// a hundredth of its length.
pub(crate) const RULE_POINTS_MAX: usize = 512;
/// Most points of all windows together: beyond it every window is thinned as it grows.
pub(crate) const RULE_POINTS_ALL_MAX: usize = 1 << 19;
/// Most windows (of one length over one stream); a function beyond is NULL.
pub(crate) const RULE_WINDOWS_MAX: usize = 1 << 16;
/// Highest key of a stream that rules follow.
pub(crate) const RULE_STREAMS_MAX: usize = 1 << 18;

/// The bounds of the rules of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleLimits {
    /// Most rules.
    pub rules_max: usize,
    /// Most subjects of one rule.
    pub subjects_max: usize,
    /// Most subjects of all rules together.
    pub subjects_all_max: usize,
    /// Most streams that one function of a subject chooses from.
    pub candidates_max: usize,
    /// Most pairs of a subject and a stream, of all rules together.
    pub bindings_all_max: usize,
    /// Most points of one window.
    pub points_max: usize,
    /// Most points of all windows together.
    pub points_all_max: usize,
    /// Most windows.
    pub windows_max: usize,
    /// Highest key of a stream.
    pub streams_max: usize,
}

impl Default for RuleLimits {
    fn default() -> Self {
        Self {
            rules_max: RULES_MAX,
            subjects_max: RULE_SUBJECTS_MAX,
            subjects_all_max: RULE_SUBJECTS_ALL_MAX,
            candidates_max: RULE_CANDIDATES_MAX,
            bindings_all_max: RULE_BINDINGS_ALL_MAX,
            points_max: RULE_POINTS_MAX,
            points_all_max: RULE_POINTS_ALL_MAX,
            windows_max: RULE_WINDOWS_MAX,
            streams_max: RULE_STREAMS_MAX,
        }
    }
}
