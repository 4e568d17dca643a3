//! The attributes of a disk that hardly ever change: `/sys/block/DISK/{size,queue/*,device/*}`.

use std::ffi::OsStr;
use std::path::PathBuf;

use crate::util::diskstats::SECTOR_BYTES;
use crate::util::file::{HeldFile, SysRoot, names_in};
use crate::util::parse::{sole_number, sole_text};

/// Most hardware queues that are counted.
const QUEUES_MAX: usize = 4096;

/// The files of the attributes, which are open only while they are read.
#[derive(Debug)]
pub(super) struct AttributeFiles {
    size: HeldFile,
    rotational: HeldFile,
    scheduler: HeldFile,
    nr_requests: HeldFile,
    queue_depth: HeldFile,
    logical_block: HeldFile,
    physical_block: HeldFile,
    read_ahead_kb: HeldFile,
    write_cache: HeldFile,
    model: HeldFile,
    /// Number of hardware queues, counted once: an NVMe device has `nr_requests` for each.
    queues: u64,
}

/// The numbers in the files; `None` if a file has none.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    pub(super) size_bytes: Option<u64>,
    pub(super) rotational: Option<bool>,
    pub(super) concurrency_max: Option<u64>,
    pub(super) logical_block_bytes: Option<u64>,
    pub(super) physical_block_bytes: Option<u64>,
    pub(super) read_ahead_bytes: Option<u64>,
}

/// The attributes that are text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Text {
    Scheduler,
    WriteCache,
    Model,
}

impl AttributeFiles {
    pub(super) fn new(root: &SysRoot, sysfs_name: &OsStr) -> Self {
        let dir: PathBuf = root.path("sys/block").join(sysfs_name);
        let file = |name: &str| HeldFile::short_records(dir.join(name));
        let queues = match sysfs_name.as_encoded_bytes().starts_with(b"nvme") {
            true => names_in(&dir.join("mq"), QUEUES_MAX).map_or(1, |(_, all)| all.max(1) as u64),
            false => 1,
        };
        Self {
            size: file("size"),
            rotational: file("queue/rotational"),
            scheduler: file("queue/scheduler"),
            nr_requests: file("queue/nr_requests"),
            queue_depth: file("device/queue_depth"),
            logical_block: file("queue/logical_block_size"),
            physical_block: file("queue/physical_block_size"),
            read_ahead_kb: file("queue/read_ahead_kb"),
            write_cache: file("queue/write_cache"),
            model: file("device/model"),
            queues,
        }
    }

    pub(super) fn numbers(&mut self, bytes: &mut Vec<u8>) -> Numbers {
        let mut read = |file: &mut HeldFile| {
            file.read_and_close(bytes)
                .ok()
                .and_then(|()| sole_number(bytes))
        };
        let times = |value: Option<u64>, factor: u64| {
            value
                .and_then(|v| v.checked_mul(factor))
                .filter(|v| *v <= i64::MAX as u64)
        };
        let requests = times(read(&mut self.nr_requests), self.queues);
        let depth = read(&mut self.queue_depth);
        Numbers {
            size_bytes: times(read(&mut self.size), SECTOR_BYTES),
            rotational: read(&mut self.rotational).map(|r| r != 0),
            // The block layer queues `nr_requests`; a SCSI device accepts `queue_depth` of them.
            concurrency_max: match (requests, depth) {
                (Some(requests), Some(depth)) => Some(requests.min(depth)),
                (one, other) => one.or(other),
            },
            logical_block_bytes: read(&mut self.logical_block),
            physical_block_bytes: read(&mut self.physical_block),
            read_ahead_bytes: times(read(&mut self.read_ahead_kb), 1024),
        }
    }

    pub(super) fn text<'b>(&mut self, which: Text, bytes: &'b mut Vec<u8>) -> Option<&'b str> {
        let file = match which {
            Text::Scheduler => &mut self.scheduler,
            Text::WriteCache => &mut self.write_cache,
            Text::Model => &mut self.model,
        };
        file.read_and_close(bytes).ok()?;
        let text = sole_text(bytes)?;
        Some(if which == Text::Scheduler {
            chosen(text)
        } else {
            text
        })
    }
}

/// The selected scheduler of a list like `none [mq-deadline] kyber`.
fn chosen(schedulers: &str) -> &str {
    let inner = schedulers
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    inner.map_or(schedulers, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedulers() {
        let check = |text: &str, expect: &str| assert_eq!(chosen(text), expect);
        check("none [mq-deadline] kyber", "mq-deadline");
        check("[none] mq-deadline", "none");
        check("none", "none");
        check("[broken", "[broken");
    }
}
