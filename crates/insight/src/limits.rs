//! The bounds of a graph, each with its name and default.

/// The bounds of a graph, and its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most insights, including built-in ones; further ones are refused.
    pub insights_max: usize,
    /// Most groups (output streams) of one insight; further ones are left out, and the insight
    /// reports their number.
    pub groups_max: usize,
    /// Most rows that one SELECT may join; an insight with more fails until there are fewer.
    pub rows_max: usize,
    /// Most arguments of aggregates that one SELECT keeps, that is, its rows times its aggregates;
    /// an insight with more fails until there are fewer rows.
    pub arguments_max: usize,
    /// Longest statement, in bytes.
    pub sql_bytes_max: usize,
    /// Longest chain of insights on insights.
    pub depth_max: usize,
    /// The value of the column `node`.
    pub node: String,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            insights_max: 512,
            groups_max: 4_096,
            rows_max: 65_536,
            arguments_max: 1 << 18,
            sql_bytes_max: 16_384,
            depth_max: 64,
            node: String::new(),
        }
    }
}

/// Most triggers; further ones are refused.
pub const TRIGGERS_MAX: usize = 256;
/// Most subjects (streams that its first function matches) of one trigger; others are counted.
pub const TRIGGER_SUBJECTS_MAX: usize = 1_024;
/// Most subjects of all triggers together.
pub const TRIGGER_SUBJECTS_ALL_MAX: usize = 65_536;
/// Most streams that one function of a subject chooses from; further ones are counted.
pub const TRIGGER_CANDIDATES_MAX: usize = 64;
/// Most pairs of a subject and a stream that it reads, of all triggers together.
pub const TRIGGER_BINDINGS_ALL_MAX: usize = 1 << 20;
/// Most points of one window; if there are more, neighbours are joined, so that a window's edge is
/// known to a hundredth of its length.
pub const TRIGGER_POINTS_MAX: usize = 512;
/// Most points of all windows together; beyond it, every window is thinned as it grows.
pub const TRIGGER_POINTS_ALL_MAX: usize = 1 << 19;
/// Most windows (a window has one length and one stream); further functions are NULL.
pub const TRIGGER_WINDOWS_MAX: usize = 1 << 16;
/// Highest key of a stream that triggers follow.
pub const TRIGGER_STREAMS_MAX: usize = 1 << 18;

/// What the triggers of a node may hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TriggerLimits {
    /// Most triggers.
    pub triggers_max: usize,
    /// Most subjects of one trigger.
    pub subjects_max: usize,
    /// Most subjects of all triggers together.
    pub subjects_all_max: usize,
    /// Most streams that one function of a subject chooses from.
    pub candidates_max: usize,
    /// Most pairs of a subject and a stream, of all triggers together.
    pub bindings_all_max: usize,
    /// Most points of one window.
    pub points_max: usize,
    /// Most points of all windows together.
    pub points_all_max: usize,
    /// Most windows.
    pub windows_max: usize,
    /// Highest key of a stream.
    pub streams_max: usize,
    /// Longest statement, in bytes.
    pub sql_bytes_max: usize,
}

impl Default for TriggerLimits {
    fn default() -> Self {
        Self {
            triggers_max: TRIGGERS_MAX,
            subjects_max: TRIGGER_SUBJECTS_MAX,
            subjects_all_max: TRIGGER_SUBJECTS_ALL_MAX,
            candidates_max: TRIGGER_CANDIDATES_MAX,
            bindings_all_max: TRIGGER_BINDINGS_ALL_MAX,
            points_max: TRIGGER_POINTS_MAX,
            points_all_max: TRIGGER_POINTS_ALL_MAX,
            windows_max: TRIGGER_WINDOWS_MAX,
            streams_max: TRIGGER_STREAMS_MAX,
            sql_bytes_max: Limits::default().sql_bytes_max,
        }
    }
}
