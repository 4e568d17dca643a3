//! Rings of ended streams whose memory is given back to the system once no reader can be copying
//! it.
//!
//! This is a module of its own because it is bookkeeping of places, without memory. A reader sees
//! by the generation of a ring that its stream has ended, but a copy that has begun goes on for a
//! moment. If the file system is full, a page that was taken away under the reader could not be
//! allocated again, and a signal would end the reader.

use std::collections::BTreeMap;
use std::ops::Range;

/// The places of ended rings in the ring area.
#[derive(Debug, Default)]
pub(crate) struct EndedRings {
    /// Places since the last call of [`Self::take`]: start and end of each.
    young: BTreeMap<usize, usize>,
    /// Places since the call before that one.
    old: BTreeMap<usize, usize>,
}

impl EndedRings {
    /// Adds the ring of a stream that has ended.
    pub(crate) fn add(&mut self, at: usize, bytes: usize) {
        self.young.insert(at, at + bytes);
    }

    /// Removes a place that is in use again.
    pub(crate) fn keep(&mut self, used: Range<usize>) {
        cut(&mut self.young, &used);
        cut(&mut self.old, &used);
    }

    /// Returns the whole pages of rings that ended before the last call. Rings may share a page: it
    /// goes with the last of them, so `free_around` a place must cover the whole page.
    pub(crate) fn take(
        &mut self,
        page: usize,
        free_around: impl Fn(&Range<usize>) -> Range<usize>,
    ) -> Vec<Range<usize>> {
        let young = std::mem::take(&mut self.young);
        let old = std::mem::replace(&mut self.old, young);
        let waits = |pages: Range<usize>| {
            let before = self.old.range(..pages.end).next_back();
            before.is_some_and(|(_, to)| *to > pages.start)
        };
        let whole = |(from, to): (usize, usize)| {
            let free = free_around(&(from..to));
            let mut start = (from / page * page).max(free.start.next_multiple_of(page));
            let mut end = to.next_multiple_of(page).min(free.end / page * page);
            if start < end && waits(start..start + page) {
                start += page;
            }
            if start < end && waits(end - page..end) {
                end -= page;
            }
            start..end
        };
        let pages = old.into_iter().map(whole);
        pages.filter(|pages| !pages.is_empty()).collect()
    }
}

/// Removes a place from others, which do not overlap each other.
fn cut(places: &mut BTreeMap<usize, usize>, used: &Range<usize>) {
    while let Some((&from, &to)) = places.range(..used.end).next_back() {
        if to <= used.start {
            return;
        }
        places.remove(&from);
        if to > used.end {
            places.insert(used.end, to);
        }
        if from < used.start {
            places.insert(from, used.start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 10;

    /// Takes from an area of which all but `used` is free.
    fn taken(ended: &mut EndedRings, used: Range<usize>) -> Vec<(usize, usize)> {
        let taken = ended.take(PAGE, |place| match place.start < used.start {
            true => 0..used.start,
            false => used.end..1_000,
        });
        taken
            .into_iter()
            .map(|place| (place.start, place.end))
            .collect()
    }

    #[test]
    fn a_place_is_taken_with_the_second_call() {
        let mut ended = EndedRings::default();
        ended.add(0, 10);
        assert!(taken(&mut ended, 0..0).is_empty());
        ended.add(20, 10);
        assert_eq!(taken(&mut ended, 0..0), [(0, 10)]);
        assert_eq!(taken(&mut ended, 0..0), [(20, 30)]);
        assert!(taken(&mut ended, 0..0).is_empty());
    }

    #[test]
    fn a_page_goes_with_the_last_ring_that_has_some_of_it() {
        let mut ended = EndedRings::default();
        ended.add(3, 5);
        assert!(taken(&mut ended, 8..12).is_empty());
        ended.add(8, 4);
        assert!(taken(&mut ended, 12..12).is_empty(), "the rest still waits");
        assert_eq!(taken(&mut ended, 12..12), [(0, 10)]);
        ended.add(15, 30);
        assert!(taken(&mut ended, 50..50).is_empty());
        ended.add(45, 2);
        assert_eq!(taken(&mut ended, 50..50), [(10, 40)]);
        assert_eq!(taken(&mut ended, 50..50), [(40, 50)]);
    }

    #[test]
    fn what_is_used_again_is_kept() {
        let mut ended = EndedRings::default();
        for at in [0, 100, 300] {
            ended.add(at, 100);
        }
        assert!(taken(&mut ended, 0..0).is_empty());
        ended.add(400, 100);
        ended.keep(50..120);
        ended.keep(150..170);
        ended.keep(350..450);
        // Only the places themselves are free.
        let mut taken = || {
            let places = ended.take(PAGE, Range::clone);
            places
                .iter()
                .map(|place| (place.start, place.end))
                .collect::<Vec<_>>()
        };
        assert_eq!(taken(), [(0, 50), (120, 150), (170, 200), (300, 350)]);
        assert_eq!(taken(), [(450, 500)]);
    }
}
