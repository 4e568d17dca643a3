//! Checks of what a simulated node holds of others: never more than its configuration says, and the
//! same samples as their owners.

use barograph_stream::STALE_INTERVALS;

use super::*;
use crate::ClusterConfig;

/// Most streams of a mirror: somewhat more than a simulated agent has, so that a mirror that does
/// not give the place of an ended stream back has no room for all.
const STREAMS_MAX: usize = 110;
/// Most bytes of the rings of a mirror, in the same way.
const RING_BYTES_MAX: usize = 512 << 10;
/// Bytes of a mirror's file beside its rings: its head and its directory.
const HEAD_BYTES: u64 = 512 << 10;

/// Sets bounds that leave little room.
pub(super) fn set(config: &mut ClusterConfig) {
    config.streams_max = STREAMS_MAX;
    config.ring_bytes_max = RING_BYTES_MAX;
}

/// The samples in a ring, by number.
fn ring_of(stream: &barograph_stream::StreamReader) -> BTreeMap<u64, String> {
    let mut samples = Vec::new();
    let Some(scan) = stream.scan_some(0, u64::MAX, &mut samples) else {
        return BTreeMap::new();
    };
    let texts = samples.iter().map(|sample| format!("{sample:?}"));
    (scan.lost + 1..).zip(texts).collect()
}

impl Rack<'_> {
    /// Checks that everything bounded is within its bounds, at any time.
    pub(super) fn check_bounds(&self) {
        for (here, agent) in self.agents.iter().enumerate() {
            let Some(agent) = agent else {
                continue;
            };
            let fabric = agent.fabric.as_ref().unwrap();
            let (status, peers) = (fabric.status(), fabric.peers());
            let told = || format!("{}: {status:?} {peers:?} {:?}", NODES[here], self.told);
            let others = NODES.len() - 1;
            assert!(peers.len() <= others, "{}", told());
            assert!(status.subscribers <= others, "{}", told());
            // The streams of the node, and what its programs publish for all.
            let sent_to = fabric.node.sent_to();
            assert!(sent_to.len() <= 2 * others, "{sent_to:?} {}", told());
            assert_eq!(
                (status.refusals.len(), status.refused),
                (0, 0),
                "{}",
                told()
            );
            assert!(
                status.catching_up + status.waiting <= sent_to.len(),
                "{}",
                told()
            );
            for peer in &peers {
                assert!(peer.streams <= STREAMS_MAX as u64, "{}", told());
            }
            for of in (0..NODES.len()).filter(|of| *of != here) {
                let mirror = self.mirror(here, of);
                for segment in [mirror.segment(), mirror.scope("all").segment()] {
                    let bytes = allocated_bytes(&segment);
                    let most = RING_BYTES_MAX as u64 + HEAD_BYTES;
                    assert!(bytes <= most, "{bytes} bytes of {segment:?}: {}", told());
                }
            }
        }
    }

    /// The samples that a mirror and its owner both have are the same, and there are some.
    pub(super) fn check_rings(&self, own: &SegmentReader, mirror: &SegmentReader) {
        let mirrored = mirror.directory().entries;
        for entry in own.directory().entries {
            let same = |other: &&barograph_stream::DirectoryEntry| {
                other.descriptor == entry.descriptor && other.created_ns == entry.created_ns
            };
            let Some(other) = mirrored.iter().find(same) else {
                continue;
            };
            let (own, other) = (ring_of(&own.stream(&entry)), ring_of(&mirror.stream(other)));
            let both = other.iter().filter_map(|(number, sample)| {
                let owned = own.get(number)?;
                assert_eq!(owned, sample, "{}: {:?}", entry.descriptor, self.told);
                Some(())
            });
            let is_empty = own.len() < 4 && other.is_empty();
            let name = &entry.descriptor;
            assert!(both.count() > 0 || is_empty, "{name}: {:?}", self.told);
        }
    }

    /// The first sample of each series that the keeper's archive of a node has, unless it has just
    /// come.
    pub(super) fn first_kept(&self, at: usize) -> BTreeMap<SeriesId, (i64, u64)> {
        let kept = self.nodes[0].config.state_dir.join("aggregated");
        let kept = samples_of(&kept.join(NODES[at]), NODES[at], &self.told);
        let before_ns = self.nodes[at].clock.now_ns() - ON_THE_WAY_NS;
        let first = kept.into_iter().filter_map(|(series, kept)| {
            let (place, sample) = kept.into_iter().next()?;
            (ts_of(&sample) < before_ns).then_some((series, place))
        });
        first.collect()
    }

    /// Checks that what was kept before all trouble is kept still: otherwise a history that begins
    /// anew would be whole.
    pub(super) fn check_first_kept(&self, at: usize) {
        let now = self.first_kept(at);
        for (series, before) in &self.first[at - 1] {
            let first = now.get(series);
            let is_there = first.is_some_and(|first| first <= before);
            assert!(
                is_there,
                "{series:?}: {first:?}, {before:?}: {:?}",
                self.told
            );
        }
    }

    /// Ages are by the clock of the reader: values of a node whose clock differs by more than some
    /// intervals are stale, although their mirror is alive.
    pub(super) fn check_ages(&self, mirror: &SegmentReader, here: usize, of: usize) {
        let clocks = [here, of].map(|at| &self.nodes[at].clock);
        let apart_ns = clocks[0].ahead_ns.abs_diff(clocks[1].ahead_ns) as i64;
        for entry in mirror.directory().entries {
            // Insights over all nodes have the times of other nodes.
            if entry.descriptor.name.as_str().starts_with("nodes.") {
                continue;
            }
            let interval_ns = mirror.interval_ns(&entry);
            let LatestSample::Sample { looked_ns, .. } = mirror.stream(&entry).latest() else {
                continue;
            };
            let is_overdue = mirror.is_overdue(clocks[0].now_ns(), looked_ns, interval_ns);
            let limit_ns = STALE_INTERVALS * interval_ns.max(NS_PER_S);
            // The last look was one interval ago at most, and its message a while on the way.
            if interval_ns > 0 && apart_ns > limit_ns + interval_ns + ON_THE_WAY_NS {
                assert!(is_overdue, "{}: {:?}", entry.descriptor, self.told);
            }
        }
    }
}

/// Bytes of memory that a file takes; none if there is no such file.
fn allocated_bytes(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata(path).map_or(0, |found| found.blocks() * 512)
}
