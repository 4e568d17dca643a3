//! When each source is next looked at: one time for each and no more, however often one is moved up.
//!
//! Some tens of numbers that lie side by side are found through sooner than a heap is kept in order, and nothing that was overtaken
//! stays behind.

/// One deadline for each source, as monotonic time in ns.
pub(crate) struct Deadlines(Vec<i64>);

impl Deadlines {
    /// So many sources, all due at `now_ns`.
    pub(crate) fn new(sources: usize, now_ns: i64) -> Self {
        Self(vec![now_ns; sources])
    }

    /// The earliest, and whose it is: of several, the first source's. None without sources.
    pub(crate) fn earliest(&self) -> Option<(i64, usize)> {
        let earliest_ns = self.0.iter().copied().min()?;
        let index = self.0.iter().position(|ns| *ns == earliest_ns)?;
        Some((earliest_ns, index))
    }

    /// It is looked at then, and not at what was said before.
    pub(crate) fn set(&mut self, index: usize, deadline_ns: i64) {
        self.0[index] = deadline_ns;
    }

    /// How many are kept.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_is_given_and_of_several_the_first() {
        let mut deadlines = Deadlines::new(3, 5);
        assert_eq!(deadlines.earliest(), Some((5, 0)));
        deadlines.set(0, 20);
        assert_eq!(deadlines.earliest(), Some((5, 1)));
        deadlines.set(1, 10);
        deadlines.set(2, 30);
        assert_eq!(deadlines.earliest(), Some((10, 1)));
        deadlines.set(2, 7);
        assert_eq!(deadlines.earliest(), Some((7, 2)));
        // What was overtaken does not come back.
        deadlines.set(2, i64::MAX);
        assert_eq!(deadlines.earliest(), Some((10, 1)));
        assert_eq!(Deadlines::new(0, 0).earliest(), None);
    }
}
