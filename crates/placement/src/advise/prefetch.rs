//! The prefetch adviser (HDFE of apollo.md 4.4.2): whether a segment is fetched before it is asked
//! for, and into which cache.
//!
//! A fetch saves the probability of the read times the seconds that the read is faster from the
//! cache. A fetch that is not there in time is waited for, so it saves the time by which it began
//! earlier: the read takes `slow` seconds without it, and `fast + max(0, slow - until)` with
//! it. It costs what the cache has to drop: the heat of that as a probability, times
//! the seconds that its read is slower then. It is proposed if it saves more than it costs.
//! What was read and is not expected again counts as free room.

use crate::decision::{PlacementAction, PlacementAlternative, PlacementDecision, PredictedEffect};
use crate::hash::KeyHash;
use crate::reading::{ReadingForecast, known};
use crate::rendezvous::TargetId;
use crate::target::{BlockRequest, IoDirection, TargetState, TargetTier, service_times};

use super::place::{PlaceConfig, PlaceRequest, SplitRule, advise_place};
use super::sequence::PredictedSegment;

/// The name of the adviser in its records.
const ADVISER: &str = "prefetch";

/// A segment that is in a cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CachedSegment {
    /// The number of the segment.
    pub segment: u64,
    /// The cache that has it.
    pub target: TargetId,
    /// Its bytes.
    pub bytes: u64,
    /// The probability that it is read before the new one would be dropped: 0 if it was read and
    /// is not expected again.
    pub probability: f64,
}

/// A segment that may be asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrefetchRequest {
    /// The segment, and how likely it is asked for.
    pub predicted: PredictedSegment,
    /// Its bytes.
    pub bytes: u64,
    /// Seconds until it is asked for, as far as that is known: a fetch saves no more than that.
    pub until_s: Option<f64>,
    /// The time, in ns on the caller's clock.
    pub now_ns: i64,
}

/// How segments are fetched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrefetchConfig {
    /// How a cache is chosen among those with room.
    pub place: PlaceConfig,
    /// Least probability with which a segment is fetched.
    pub probability_min: f64,
}

impl Default for PrefetchConfig {
    fn default() -> Self {
        Self {
            place: PlaceConfig::default(),
            probability_min: 0.25,
        }
    }
}

/// Proposes to fetch a segment from its origin into a cache, or nothing. `cached` are the segments
/// that are in caches, as far as they may be dropped, in any order.
pub fn advise_prefetch(
    request: &PrefetchRequest,
    origin: &TargetState,
    caches: &[TargetState],
    cached: &[CachedSegment],
    config: &PrefetchConfig,
) -> PlacementDecision {
    let segment = request.predicted.segment;
    let nothing =
        |reason: &str| PlacementDecision::nothing(request.now_ns, ADVISER, segment, reason);
    if request.predicted.probability < config.probability_min {
        return nothing("it is not likely enough that the segment is asked for");
    }
    let tau_s = config.place.weights.tau_s;
    let block = BlockRequest {
        bytes: request.bytes,
        direction: IoDirection::Read,
    };
    let time = |target: &TargetState| {
        let times = service_times(std::slice::from_ref(target), &block, tau_s);
        times.first().copied().flatten()
    };
    let Some(slow) = time(origin) else {
        return nothing("the bandwidth of the segment's origin is unknown");
    };
    let faster = caches.iter().filter(|it| {
        let fast = time(it);
        it.tier != TargetTier::Pfs && fast.is_none_or(|fast| fast.value < slow.value)
    });
    let faster: Vec<TargetState> = faster.copied().collect();
    let (mut decision, found) = chosen_cache(request, block, &faster, cached, config);
    let Some(room) = found else {
        "no faster cache can have the segment".clone_into(&mut decision.reason);
        return decision;
    };
    let fast_s = faster.iter().find(|it| it.id == room.target).and_then(time);
    // Of a cache of unknown bandwidth, half of the time is expected.
    let until_s = request.until_s.map_or(slow.value, |it| it.min(slow.value));
    let gain_s = until_s - fast_s.map_or(slow.value / 2.0, |it| it.value);
    let saved_s = gain_s * (request.predicted.probability - room.probability);
    // What is not a number saves nothing either.
    if saved_s.is_nan() || saved_s <= 0.0 {
        let why_not = match gain_s > 0.0 {
            true => "what the cache would drop is as likely to be read",
            false => "the segment is asked for before a fetch could save anything",
        };
        why_not.clone_into(&mut decision.reason);
        decision.alternative(PlacementAlternative {
            of: room.target.0,
            score: saved_s,
            why_not,
        });
        return decision;
    }
    decision.reason = format!(
        "the segment is asked for with probability {:.2}, and read {gain_s:.3} s faster from cache {}",
        request.predicted.probability, room.target.0
    );
    decision.effect = PredictedEffect::SecondsSaved(saved_s);
    decision.action = PlacementAction::Prefetch {
        segment,
        target: room.target,
        evict: room.evict,
    };
    decision
}

/// The cache that a segment goes to if it is fetched, with the record of that choice.
fn chosen_cache(
    request: &PrefetchRequest,
    block: BlockRequest,
    faster: &[TargetState],
    cached: &[CachedSegment],
    config: &PrefetchConfig,
) -> (PlacementDecision, Option<Room>) {
    let tau_s = config.place.weights.tau_s;
    let segment = request.predicted.segment;
    let place = PlaceRequest {
        key: KeyHash::from(segment).salted(0),
        block,
        split: SplitRule::Whole,
        now_ns: request.now_ns,
    };
    let later_s = request.until_s.unwrap_or(0.0);
    let roomy = faster
        .iter()
        .map(|it| later(with_dead(it, cached), later_s));
    let roomy: Vec<TargetState> = roomy.collect();
    let mut decision = advise_place(&place, &roomy, &config.place);
    decision.adviser = ADVISER;
    decision.key = segment;
    let found = match decision.target() {
        Some(target) => {
            let cache = faster.iter().filter(|it| it.id == target);
            let cache: Vec<TargetState> = cache.copied().collect();
            let made = with_room_made(request.bytes, &cache, cached, tau_s);
            Some(made.unwrap_or(Room::free(target)))
        }
        None => with_room_made(request.bytes, faster, cached, tau_s),
    };
    decision.action = PlacementAction::Nothing;
    decision.effect = PredictedEffect::Unknown;
    (decision, found)
}

/// Room in a cache, and what makes it.
struct Room {
    target: TargetId,
    evict: Vec<u64>,
    /// The probability that something that is dropped would have been read, of 1 at most for each.
    probability: f64,
}

impl Room {
    fn free(target: TargetId) -> Self {
        Self {
            target,
            evict: Vec::new(),
            probability: 0.0,
        }
    }
}

/// A cache in which what is not expected to be read again counts as free.
fn with_dead(cache: &TargetState, cached: &[CachedSegment]) -> TargetState {
    let mut cache = *cache;
    let is_dead = |it: &&CachedSegment| it.target == cache.id && it.probability <= 0.0;
    let dead = cached.iter().filter(is_dead);
    let bytes: f64 = dead.map(|it| it.bytes as f64).sum();
    if let Some(free) = &mut cache.free_bytes {
        free.value += bytes;
        free.forecast = free.forecast.map(|it| ReadingForecast {
            value: it.value + bytes,
            ..it
        });
    }
    cache
}

/// What is known of a cache, for a read so many seconds from now: its bandwidth is older then.
fn later(mut cache: TargetState, later_s: f64) -> TargetState {
    if let Some(bandwidth) = &mut cache.read_bytes_per_s {
        bandwidth.age_s += later_s.max(0.0);
    }
    cache
}

/// The room that costs least: of each cache, the segments that are least likely to be read.
fn with_room_made(
    bytes: u64,
    caches: &[TargetState],
    cached: &[CachedSegment],
    tau_s: f64,
) -> Option<Room> {
    let rooms = caches.iter().filter_map(|cache| {
        let free = known(cache.free_bytes, tau_s)?.low();
        let mut there: Vec<_> = cached.iter().filter(|it| it.target == cache.id).collect();
        there.sort_by(|a, b| a.probability.total_cmp(&b.probability));
        let mut room = Room::free(cache.id);
        let mut missing = bytes as f64 - free;
        for segment in there {
            if missing <= 0.0 {
                break;
            }
            missing -= segment.bytes as f64;
            room.evict.push(segment.segment);
            room.probability += segment.probability.max(0.0);
        }
        (missing <= 0.0).then_some(room)
    });
    rooms.min_by(|a, b| a.probability.total_cmp(&b.probability))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::Reading;

    fn target(id: u64, tier: TargetTier, free: f64, bandwidth: f64) -> TargetState {
        TargetState {
            free_bytes: Some(Reading::measured(free, 0.0)),
            queue_bytes: Some(Reading::measured(0.0, 0.0)),
            read_bytes_per_s: Some(Reading::measured(bandwidth, 0.0)),
            ..TargetState::unknown(TargetId(id), tier, 1.0)
        }
    }

    fn request(probability: f64, until_s: Option<f64>) -> PrefetchRequest {
        PrefetchRequest {
            predicted: PredictedSegment {
                segment: 77,
                probability,
                ahead: 1,
            },
            bytes: 100,
            until_s,
            now_ns: 0,
        }
    }

    #[test]
    fn what_is_likely_and_in_time_is_fetched() {
        let pfs = target(9, TargetTier::Pfs, 1e9, 10.0);
        let cache = target(1, TargetTier::Nvme, 1e3, 1e3);
        let slow = target(2, TargetTier::BurstBuffer, 1e3, 1.0);
        // Probability, seconds until the read, cache, and whether it is fetched.
        let table = [
            (0.9, None, cache, true),
            (0.9, Some(20.0), cache, true),
            (0.9, Some(1.0), cache, true),
            (0.9, Some(0.05), cache, false),
            (0.1, None, cache, false),
            (0.9, None, slow, false),
        ];
        for (probability, until_s, cache, expect) in table {
            let request = request(probability, until_s);
            let config = PrefetchConfig::default();
            let decision = advise_prefetch(&request, &pfs, &[cache], &[], &config);
            let is_fetched = decision.action != PlacementAction::Nothing;
            assert_eq!(is_fetched, expect, "{}", decision.reason);
        }
    }

    #[test]
    fn a_full_cache_drops_what_is_less_likely() {
        let pfs = target(9, TargetTier::Pfs, 1e9, 10.0);
        let full = target(1, TargetTier::Nvme, 0.0, 1e3);
        let cached = |segment, probability| CachedSegment {
            segment,
            target: TargetId(1),
            bytes: 100,
            probability,
        };
        for (others, expect) in [
            ([0.9, 0.2], Some(vec![6])),
            ([0.9, 0.8], None),
            ([0.0, 0.8], Some(vec![5])),
        ] {
            let there = [cached(5, others[0]), cached(6, others[1])];
            let config = PrefetchConfig::default();
            let decision = advise_prefetch(&request(0.6, None), &pfs, &[full], &there, &config);
            let evicted = match decision.action {
                PlacementAction::Prefetch { evict, .. } => Some(evict),
                _ => None,
            };
            assert_eq!(evicted, expect, "{}", decision.reason);
        }
    }
}
