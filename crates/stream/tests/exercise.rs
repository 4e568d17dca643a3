//! Calls every function of a reader, on any file. It is also the body of the fuzz target.

use std::path::Path;
use std::time::Duration;

use barograph_stream::{LatestSample, SegmentReader};

/// Opens the file and reads everything in it. It must not panic, hang or fault, whatever the file
/// holds. Returns the number of samples found, or `None` if the file is refused.
pub(crate) fn read_everything(path: &Path) -> Option<usize> {
    let mut reader = SegmentReader::open(path).ok()?;
    let _ = (reader.node(), reader.pid(), reader.state());
    let _ = (
        reader.created_ns(),
        reader.heartbeat_ns(),
        reader.incarnation(),
    );
    let _ = (reader.refused(), reader.streams_max());
    let directory = reader.directory();
    let mut samples = Vec::new();
    for entry in &directory.entries {
        let _ = reader.interval_ns(entry);
        let handle = reader.stream(entry);
        if let LatestSample::Sample { sample, .. } = handle.latest() {
            samples.push(sample);
        }
        let _ = (handle.latest_f64(), handle.looked_ns());
        let count = handle.count().unwrap_or(0);
        for cursor in [0, 1, count / 2, count.saturating_sub(1), count, u64::MAX] {
            let before = samples.len();
            if let Some(scan) = handle.scan(cursor, &mut samples) {
                let seen = (samples.len() - before) as u64;
                assert_eq!(seen + scan.lost, count.saturating_sub(cursor));
            }
        }
        let _ = handle.tail(3, &mut samples);
        let _ = handle.wait(count, Duration::ZERO);
    }
    let _ = reader.reopen_if_replaced();
    Some(samples.len())
}
