//! `/sys/block/DEVICE/queue/`: the settings of a device's request queue
//! (Documentation/ABI/stable/sysfs-block). Files that the source `disk` reads (block sizes,
//! scheduler, read-ahead, write cache) are left out.

use std::path::Path;

use crate::SourceBatch;
use crate::fact::{FactSet, int};
use crate::util::file::HeldFile;
use crate::util::parse::{sole_number, sole_text};

use super::Fact;

/// The conversion of a file's text to a value.
enum As {
    /// A count, multiplied by this factor.
    Count(u64),
    /// The same, but 0 means unknown.
    Known(u64),
    Flag,
    Text,
    /// A number that stands for one of these words.
    Word([&'static str; 3]),
    /// A number, divided by this to give seconds.
    Seconds(f64),
}

const FILES: [(&str, Fact, As); 22] = [
    ("max_sectors_kb", Fact::RequestMax, As::Count(1024)),
    (
        "max_hw_sectors_kb",
        Fact::RequestHardwareMax,
        As::Count(1024),
    ),
    ("nr_requests", Fact::Requests, As::Count(1)),
    ("max_segments", Fact::Segments, As::Count(1)),
    ("minimum_io_size", Fact::IoMinimum, As::Known(1)),
    ("optimal_io_size", Fact::IoOptimal, As::Known(1)),
    (
        "discard_granularity",
        Fact::DiscardGranularity,
        As::Count(1),
    ),
    ("discard_max_bytes", Fact::DiscardMax, As::Count(1)),
    ("write_zeroes_max_bytes", Fact::WriteZeroesMax, As::Count(1)),
    ("chunk_sectors", Fact::Chunk, As::Known(512)),
    ("zoned", Fact::Zoned, As::Text),
    ("nr_zones", Fact::Zones, As::Known(1)),
    (
        "rq_affinity",
        Fact::Completion,
        As::Word(["any", "near", "same"]),
    ),
    (
        "nomerges",
        Fact::Merging,
        As::Word(["all", "simple", "none"]),
    ),
    ("iostats", Fact::Counted, As::Flag),
    ("add_random", Fact::Entropy, As::Flag),
    ("io_poll", Fact::Polled, As::Flag),
    ("fua", Fact::ForceUnit, As::Flag),
    ("dax", Fact::Dax, As::Flag),
    ("stable_writes", Fact::Stable, As::Flag),
    ("wbt_lat_usec", Fact::Throttle, As::Seconds(1e6)),
    ("io_timeout", Fact::Timeout, As::Seconds(1e3)),
];

/// Puts the values of the files of the device in `dir`. Returns whether the kernel counts its
/// requests; if unknown, it is taken to count them.
pub(super) fn put(
    facts: &mut FactSet<Fact>,
    dir: &Path,
    now_ns: i64,
    every_ns: i64,
    batch: &mut SourceBatch,
    bytes: &mut Vec<u8>,
) -> bool {
    let queue = dir.join("queue");
    let mut counted = true;
    for (name, fact, how) in &FILES {
        let fact = *fact;
        let read = HeldFile::short_records(queue.join(name)).read_and_close(bytes);
        if read.is_err() {
            facts.retire_one(batch, fact);
            continue;
        }
        let number = sole_number(bytes);
        let times = |factor: &u64| {
            number
                .and_then(|n| n.checked_mul(*factor))
                .filter(|n| *n <= i64::MAX as u64)
        };
        let count = match how {
            As::Count(factor) => times(factor),
            As::Known(factor) => times(factor).filter(|n| *n > 0),
            _ => None,
        };
        let text = match how {
            As::Text => sole_text(bytes),
            As::Word(words) => number
                .and_then(|n| words.get(usize::try_from(n).ok()?))
                .copied(),
            _ => None,
        };
        if let Some(count) = count {
            facts.attribute(batch, now_ns, fact, int(count), every_ns);
        } else if let Some(text) = text {
            facts.text_attribute(batch, now_ns, fact, text, every_ns);
        } else if let (As::Flag, Some(flag)) = (how, number) {
            facts.attribute(batch, now_ns, fact, flag != 0, every_ns);
            counted &= fact != Fact::Counted || flag != 0;
        } else if let (As::Seconds(parts), Some(n)) = (how, number) {
            facts.attribute(batch, now_ns, fact, n as f64 / parts, every_ns);
        } else {
            facts.retire_one(batch, fact);
        }
    }
    counted
}
