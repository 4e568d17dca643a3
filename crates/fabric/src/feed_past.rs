//! The streams of a feed whose next samples do not come from their rings: those whose rings have
//! lost samples, and those that have ended.
//!
//! It stands alone because it decides how long a subscriber waits for its history: a stream goes on
//! when its samples were read, when the source has none, or when they could not be read for
//! [`PATIENCE_NS`]. So what cannot be read for a moment is read later, and a disk that hangs holds
//! no stream for ever.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use barograph_model::{Descriptor, NS_PER_S, SeriesId};

use crate::catch_up::{CatchUpTicket, CatchUps, EndedPlace};
use crate::feed_search::{EndedSearch, PATIENCE_NS, RETRY_NS, SearchEnd};
use crate::past::{
    EndedQuery, EndedSeries, LifePoint, PastGap, PastReading, PastRun, PastSamples, PastSource,
};

/// Time after which samples that a subscriber does not take are given up, in ns: others wait for
/// their room, and they can be read again.
const HELD_NS: i64 = 10 * NS_PER_S;
/// Time from the end of a stream until its last samples are read, and for which samples that a ring
/// has lost are looked for, in ns: they come to the archive a moment later than to the ring.
const SETTLE_NS: i64 = 3 * NS_PER_S;
/// Time between two readings of streams that have ended in the feed, in ns.
const ENDED_PAUSE_NS: i64 = 2 * NS_PER_S;
/// Time without a step after which waiting begins anew, in ns: the subscriber has taken nothing.
const STALL_NS: i64 = 5 * NS_PER_S;
/// Most ended series that are read together.
const ENDED_AT_ONCE: usize = 256;
/// Most series with ended lives that a subscriber may lack.
pub(crate) const ENDED_MAX: usize = 4_096;

/// A stream of a feed, as the subject of a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PastTarget {
    /// The stream with this reference, whose ring has lost samples.
    Ring(u32),
    /// The ended lives of a series.
    Ended(SeriesId),
}

/// A gap that is to be read.
#[derive(Clone, Copy, Debug)]
struct WaitingGap {
    gap: PastGap,
    /// Time at which it began, ns since the epoch.
    begun_ns: i64,
    /// Time since which nothing could be read, ns since the epoch.
    since_ns: i64,
    /// Time from which it may be read, ns since the epoch.
    next_ns: i64,
}

impl WaitingGap {
    /// A gap that may be read from this time on.
    fn from(gap: PastGap, next_ns: i64) -> Self {
        Self {
            gap,
            begun_ns: next_ns,
            since_ns: next_ns,
            next_ns,
        }
    }

    /// Whether its samples may still be on their way to the archive.
    fn is_settling(&self, now_ns: i64) -> bool {
        now_ns.saturating_sub(self.begun_ns) < SETTLE_NS
    }

    fn is_hopeless(&self, now_ns: i64) -> bool {
        now_ns.saturating_sub(self.since_ns) >= PATIENCE_NS
    }
}

/// A stream whose ring has lost samples.
#[derive(Clone, Copy, Debug)]
enum RingGap {
    Waiting(WaitingGap),
    /// The source does not have them: they are lost.
    Lost,
}

/// A series with lives that have ended.
#[derive(Debug)]
pub(crate) struct EndedLives {
    waiting: WaitingGap,
    /// Descriptor of the stream.
    pub(crate) descriptor: Arc<Descriptor>,
    /// Reference and life that the subscriber knows at present.
    pub(crate) announced: Option<(u32, i64)>,
    /// Whether the subscriber knows nothing of it, or lacked it when the feed began.
    is_of_catch_up: bool,
    _place: EndedPlace,
}

impl EndedLives {
    /// Place of the newest sample that was sent.
    pub(crate) fn sent(&self) -> LifePoint {
        self.waiting.gap.after
    }

    /// Notes that the samples up to this place, of this time (ns since the epoch), were sent.
    pub(crate) fn note_sent(&mut self, place: LifePoint, ts_ns: i64) {
        (self.waiting.gap.after, self.waiting.gap.after_ns) = (place, Some(ts_ns));
    }
}

/// A reading under way.
#[derive(Debug)]
struct OpenReading {
    reading: Box<dyn PastReading<PastSamples>>,
    /// The streams that are read, by place among the gaps, and whether samples were found.
    targets: Vec<(PastTarget, bool)>,
    found: Option<FoundSamples>,
}

/// The samples of a reading that are to be sent.
#[derive(Debug)]
struct FoundSamples {
    runs: VecDeque<PastRun>,
    looked: usize,
    failed: Vec<usize>,
    /// Time at which they were found, or a run of them was last sent, ns since the epoch.
    moved_ns: i64,
}

/// Whether a subscriber catches up from the archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CatchUpState {
    /// It waits for its turn.
    Waiting,
    /// It is catching up.
    UnderWay,
    /// It has all of the past that was to be had, or wants nothing of it.
    Over,
}

/// Samples of the past that a feed has given up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GivenUp {
    /// Series with ended lives for which there was no room.
    pub(crate) unsent: u64,
    /// Series whose ended lives could not be read for too long.
    pub(crate) unread: u64,
    /// Searches for ended lives that failed for too long.
    pub(crate) searches: u64,
}

/// The streams of a feed whose next samples do not come from their rings.
#[derive(Debug)]
pub(crate) struct FeedPast {
    source: Arc<dyn PastSource>,
    /// Bounds of what all feeds take together.
    catch_ups: CatchUps,
    /// The place in line, until the subscriber has caught up; `None` if nothing is searched for.
    ticket: Option<CatchUpTicket>,
    rings: BTreeMap<u32, RingGap>,
    ended: BTreeMap<SeriesId, EndedLives>,
    search: EndedSearch,
    /// One at a time.
    reading: Option<OpenReading>,
    /// References of ended streams of which nothing more is to be sent.
    pub(crate) retired: Vec<u32>,
    /// Time from which ended streams may be read again, ns since the epoch.
    next_ended_ns: i64,
    /// Time of the last step, ns since the epoch.
    attended_ns: i64,
    pub(crate) given_up: GivenUp,
    /// Whether the feed is to end, so that its subscriber asks again.
    pub(crate) is_over: bool,
}

impl FeedPast {
    /// Begins with the search for ended lives, if there is anything to ask.
    pub(crate) fn new(
        source: Arc<dyn PastSource>,
        query: Option<EndedQuery>,
        catch_ups: &CatchUps,
    ) -> Self {
        Self {
            source,
            catch_ups: catch_ups.clone(),
            ticket: query.is_some().then(|| catch_ups.draw()),
            rings: BTreeMap::new(),
            ended: BTreeMap::new(),
            search: EndedSearch::new(query),
            reading: None,
            retired: Vec::new(),
            next_ended_ns: i64::MIN,
            attended_ns: i64::MAX,
            given_up: GivenUp::default(),
            is_over: false,
        }
    }

    /// Whether the subscriber waits for its turn, catches up, or has done so.
    pub(crate) fn catch_up(&self) -> CatchUpState {
        match &self.ticket {
            Some(ticket) if !ticket.is_turn() => CatchUpState::Waiting,
            _ if self.is_catching_up() => CatchUpState::UnderWay,
            _ => CatchUpState::Over,
        }
    }

    /// Ends the feed if its turn has taken long and others wait.
    pub(crate) fn end_turn(&mut self, now_ns: i64) {
        let ticket = self.ticket.as_mut();
        self.is_over |= ticket.is_some_and(|ticket| ticket.is_over(now_ns));
    }

    /// Whether the subscriber lacks lives that had ended when the feed began, or before they were
    /// announced. The lives after them are not announced before.
    pub(crate) fn is_catching_up(&self) -> bool {
        self.search.is_open() || self.ended.values().any(|ended| ended.is_of_catch_up)
    }

    /// Whether an earlier life of the series is still being sent.
    pub(crate) fn is_ending(&self, series: SeriesId) -> bool {
        self.ended.contains_key(&series)
    }

    /// Number of ended streams that the subscriber knows at present.
    pub(crate) fn announced(&self) -> usize {
        let ended = self.ended.values();
        ended.filter(|ended| ended.announced.is_some()).count()
    }

    /// Whether this stream waits for samples that its ring has lost.
    pub(crate) fn is_waiting(&self, reference: u32) -> bool {
        matches!(self.rings.get(&reference), Some(RingGap::Waiting(_)))
    }

    /// Notes that the ring of a stream has lost samples. Returns whether the stream waits for them:
    /// if not, they are lost.
    pub(crate) fn wait(&mut self, reference: u32, gap: PastGap, now_ns: i64) -> bool {
        if self.rings.remove(&reference).is_some() {
            return false;
        }
        let waiting = RingGap::Waiting(WaitingGap::from(gap, now_ns));
        self.rings.insert(reference, waiting);
        true
    }

    /// Notes that a stream has ended. The subscriber may know it by a reference.
    pub(crate) fn ends(
        &mut self,
        descriptor: &Descriptor,
        reference: Option<u32>,
        after: LifePoint,
        now_ns: i64,
    ) {
        let known = reference.map(|reference| {
            self.rings.remove(&reference);
            (reference, after.life_ns)
        });
        let gap = PastGap {
            series: descriptor.series_id(),
            after,
            after_ns: None,
            before: LifePoint {
                life_ns: after.life_ns.saturating_add(1),
                number: 0,
            },
        };
        let settled_ns = now_ns.saturating_add(SETTLE_NS);
        let stream = (Arc::new(descriptor.clone()), known);
        if self.catch_ups.is_full() && !self.is_ending(gap.series) {
            // The next feed finds in the archive what has ended.
            self.is_over = true;
            return;
        }
        // Streams that began later are not announced before one of which the subscriber knows
        // nothing.
        self.add_ended(gap, stream, settled_ns, known.is_none());
    }

    fn add_ended(
        &mut self,
        gap: PastGap,
        (descriptor, announced): (Arc<Descriptor>, Option<(u32, i64)>),
        next_ns: i64,
        is_of_catch_up: bool,
    ) {
        if let Some(known) = self.ended.get_mut(&gap.series) {
            let waiting = &mut known.waiting;
            waiting.gap.before = waiting.gap.before.max(gap.before);
            if gap.after < waiting.gap.after {
                (waiting.gap.after, waiting.gap.after_ns) = (gap.after, gap.after_ns);
            }
            waiting.next_ns = waiting.next_ns.max(next_ns);
            waiting.since_ns = waiting.since_ns.max(next_ns);
            known.is_of_catch_up |= is_of_catch_up && known.announced.is_none();
            return;
        }
        if self.ended.len() >= ENDED_MAX {
            self.given_up.unsent += 1;
            self.retired
                .extend(announced.map(|(reference, _)| reference));
            return;
        }
        let ended = EndedLives {
            waiting: WaitingGap::from(gap, next_ns),
            descriptor,
            announced,
            is_of_catch_up,
            _place: self.catch_ups.place(),
        };
        self.ended.insert(gap.series, ended);
    }

    /// Takes what was read, and begins what is to be read next. `present` gives the lives that have
    /// not ended.
    pub(crate) fn attend(&mut self, now_ns: i64, present: impl FnOnce() -> HashMap<SeriesId, i64>) {
        if now_ns.saturating_sub(self.attended_ns) >= STALL_NS {
            self.wait_anew(&HashSet::new(), now_ns);
            self.search.wait_anew();
        }
        self.attended_ns = now_ns;
        self.search(now_ns, present);
        self.take(now_ns);
        self.lose_patience(now_ns);
        if self.reading.is_none() {
            self.begin(now_ns);
        }
        if !self.is_catching_up() {
            self.ticket = None;
        }
    }

    /// Gives the ended lives of a series up, for which the subscriber has no room: the samples that
    /// were read would only be read again.
    pub(crate) fn give_up_unsent(&mut self, series: SeriesId) {
        if self.ended.remove(&series).is_some() {
            self.given_up.unsent += 1;
        }
    }

    /// Gives a reading up if the subscriber takes nothing.
    pub(crate) fn give_up_if_held(&mut self, now_ns: i64) {
        let found = self.reading.as_mut().and_then(|open| open.found.as_mut());
        if let Some(found) = found
            && !found.runs.is_empty()
            && now_ns.abs_diff(found.moved_ns) >= HELD_NS as u64
        {
            found.runs.clear();
            found.looked = 0;
            self.end(now_ns);
        }
    }

    /// The next samples to send.
    pub(crate) fn next_run(&mut self, now_ns: i64) -> Option<(PastTarget, PastRun)> {
        let open = self.reading.as_mut()?;
        let found = open.found.as_mut()?;
        let run = found.runs.pop_front()?;
        found.moved_ns = now_ns;
        Some((open.targets.get(run.gap)?.0, run))
    }

    /// The ended lives of this series.
    pub(crate) fn ended_mut(&mut self, series: SeriesId) -> Option<&mut EndedLives> {
        self.ended.get_mut(&series)
    }

    /// Ends the reading if all that it has brought was sent.
    pub(crate) fn end_if_sent(&mut self, now_ns: i64) {
        let found = self.reading.as_ref().and_then(|open| open.found.as_ref());
        if found.is_some_and(|found| found.runs.is_empty()) {
            self.end(now_ns);
        }
    }

    fn search(&mut self, now_ns: i64, present: impl FnOnce() -> HashMap<SeriesId, i64>) {
        if self.ticket.as_ref().is_some_and(|ticket| !ticket.is_turn()) {
            return;
        }
        match self.search.step(now_ns, &*self.source, present) {
            None => {}
            Some(SearchEnd::Failed) => self.given_up.searches += 1,
            Some(SearchEnd::Found { list, asked_ns }) => {
                self.given_up.unsent += list.unlisted;
                // A stream that has come since the question is one of the feed's own.
                let begun_later = LifePoint {
                    life_ns: asked_ns.saturating_add(1),
                    number: 0,
                };
                for EndedSeries {
                    descriptor,
                    mut gap,
                } in list.series
                {
                    gap.before = gap.before.min(begun_later);
                    if gap.after < gap.before {
                        self.add_ended(gap, (descriptor, None), now_ns, true);
                    }
                }
            }
        }
    }

    fn take(&mut self, now_ns: i64) {
        let Some(open) = &mut self.reading else {
            return;
        };
        if open.found.is_none()
            && let Some(found) = open.reading.take()
        {
            for run in &found.runs {
                if let Some((_, is_found)) = open.targets.get_mut(run.gap) {
                    *is_found = true;
                }
            }
            open.found = Some(FoundSamples {
                runs: found.runs.into(),
                looked: found.looked,
                failed: found.failed,
                moved_ns: now_ns,
            });
            self.end_if_sent(now_ns);
        }
    }

    /// Has streams go on without what could not be read for too long.
    fn lose_patience(&mut self, now_ns: i64) {
        if self
            .reading
            .as_ref()
            .is_some_and(|open| open.found.is_some())
        {
            return;
        }
        for lane in self.rings.values_mut() {
            if matches!(lane, RingGap::Waiting(waiting) if waiting.is_hopeless(now_ns)) {
                *lane = RingGap::Lost;
            }
        }
        if self.search.is_open() {
            // They wait for the search, and not for the archive.
            for ended in self.ended.values_mut().filter(|one| one.is_of_catch_up) {
                ended.waiting.since_ns = ended.waiting.since_ns.max(now_ns);
            }
        }
        let is_hopeless = |ended: &EndedLives| ended.waiting.is_hopeless(now_ns);
        for (_, ended) in self.ended.extract_if(.., |_, ended| is_hopeless(ended)) {
            self.given_up.unread += 1;
            self.retired
                .extend(ended.announced.map(|(reference, _)| reference));
        }
        let waits = |target: &PastTarget| match target {
            PastTarget::Ring(reference) => self.is_waiting(*reference),
            PastTarget::Ended(series) => self.is_ending(*series),
        };
        if let Some(open) = &self.reading
            && !open.targets.iter().any(|(target, _)| waits(target))
        {
            self.reading = None;
        }
    }

    fn begin(&mut self, now_ns: i64) {
        let (mut gaps, mut targets) = (Vec::new(), Vec::new());
        for (reference, lane) in &self.rings {
            if let RingGap::Waiting(waiting) = lane
                && waiting.next_ns <= now_ns
            {
                gaps.push(waiting.gap);
                targets.push((PastTarget::Ring(*reference), false));
            }
        }
        let is_pause = now_ns < self.next_ended_ns;
        // The search may find earlier lives of a series of which the subscriber knows nothing.
        let is_searching = self.search.is_open();
        let is_due = |ended: &EndedLives| {
            let is_later = if ended.is_of_catch_up {
                is_searching
            } else {
                is_pause
            };
            ended.waiting.next_ns <= now_ns && !is_later
        };
        let due = self.ended.iter().filter(|(_, ended)| is_due(ended));
        let mut next_ended_ns = self.next_ended_ns;
        for (series, ended) in due.take(ENDED_AT_ONCE) {
            if !ended.is_of_catch_up {
                next_ended_ns = now_ns.saturating_add(ENDED_PAUSE_NS);
            }
            gaps.push(ended.waiting.gap);
            targets.push((PastTarget::Ended(*series), false));
        }
        if gaps.is_empty() {
            return;
        }
        if let Some(reading) = self.source.read(gaps) {
            self.next_ended_ns = next_ended_ns;
            self.reading = Some(OpenReading {
                reading,
                targets,
                found: None,
            });
        }
    }

    /// Ends the reading. Streams of which it has brought samples go on from their rings, which may
    /// have lost more meanwhile.
    fn end(&mut self, now_ns: i64) {
        let Some(open) = self.reading.take() else {
            return;
        };
        let Some(found) = open.found else {
            return;
        };
        if found.looked > found.failed.len() {
            let failed = found.failed.iter().filter_map(|at| open.targets.get(*at));
            let failed = failed.map(|(target, _)| *target).collect();
            self.wait_anew(&failed, now_ns);
        }
        for (place, (target, is_found)) in open.targets.into_iter().enumerate() {
            let is_failed = found.failed.contains(&place);
            let is_over = place < found.looked && !is_failed && !is_found;
            self.settle(target, (is_found, is_failed, is_over), now_ns);
        }
    }

    /// Has the gaps wait as if from now on, but for those that could not be read: the source works,
    /// and who has waited in line has not waited in vain.
    fn wait_anew(&mut self, failed: &HashSet<PastTarget>, now_ns: i64) {
        for (reference, lane) in &mut self.rings {
            if let RingGap::Waiting(waiting) = lane
                && !failed.contains(&PastTarget::Ring(*reference))
            {
                waiting.since_ns = waiting.since_ns.max(now_ns);
            }
        }
        for (series, ended) in &mut self.ended {
            if !failed.contains(&PastTarget::Ended(*series)) {
                ended.waiting.since_ns = ended.waiting.since_ns.max(now_ns);
            }
        }
    }

    fn settle(
        &mut self,
        target: PastTarget,
        (is_found, is_failed, is_over): (bool, bool, bool),
        now_ns: i64,
    ) {
        let waiting = match target {
            PastTarget::Ring(reference) if is_found => {
                self.rings.remove(&reference);
                return;
            }
            PastTarget::Ring(reference) => match self.rings.get_mut(&reference) {
                Some(RingGap::Waiting(waiting)) if is_over && waiting.is_settling(now_ns) => {
                    waiting.next_ns = now_ns.saturating_add(RETRY_NS);
                    return;
                }
                Some(lane) if is_over => {
                    *lane = RingGap::Lost;
                    return;
                }
                Some(RingGap::Waiting(waiting)) => waiting,
                Some(RingGap::Lost) | None => return,
            },
            PastTarget::Ended(series) => match self.ended.get_mut(&series) {
                // A further life may have ended meanwhile, which is read later.
                Some(ended) if is_over && ended.waiting.next_ns <= now_ns => {
                    let announced = ended.announced;
                    self.ended.remove(&series);
                    self.retired
                        .extend(announced.map(|(reference, _)| reference));
                    return;
                }
                Some(ended) => &mut ended.waiting,
                None => return,
            },
        };
        if is_found {
            waiting.since_ns = now_ns;
        }
        if is_failed {
            waiting.next_ns = now_ns.saturating_add(RETRY_NS);
        }
    }
}
