//! A list of patterns of the configuration.

use barograph_model::Pattern;

/// A list of patterns, of which one must match.
#[derive(Clone, Debug)]
pub(crate) struct Globs(Vec<Pattern>);

impl Globs {
    pub(crate) fn new<S: AsRef<str>>(patterns: &[S]) -> Self {
        Self(patterns.iter().map(|p| Pattern::new(p.as_ref())).collect())
    }

    pub(crate) fn matches(&self, text: &str) -> bool {
        self.0.iter().any(|p| p.matches(text))
    }
}
