//! Export: the node's samples are sent to receivers elsewhere, as OTLP metrics or as Prometheus
//! remote write. Off unless a receiver is configured.
//!
//! The module stands alone because it is the only part that sends. One thread of low priority reads
//! the segment as any foreign process does, so a slow receiver delays nobody. Samples that are not
//! delivered wait in the rings; those that are overwritten there are lost and counted.

mod line;
mod otlp;
mod receiver;
mod remote_write;
mod sender;
mod status;
#[cfg(test)]
mod tests;
mod thread;

pub use receiver::{ExportConfig, ExportHeaders, ExportReceiver, ExportSelection};
pub use status::{ExportCounts, ExportStatus};
pub use thread::{Exporter, Exports};

/// Most samples in one request.
const BATCH_SAMPLES_MAX: usize = 2_000;
/// Most bytes in one request, before compression.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// The content of one request.
#[derive(Debug)]
struct Batch {
    body: Vec<u8>,
    samples: u64,
    /// An attempt to send this batch, or the batch that it is a part of, had no known end: the
    /// receiver may have taken it, and may refuse it now for that reason.
    may_be_there: bool,
}

impl Batch {
    /// Number of samples that are lost if the batch is given up; 0 if it may have arrived.
    fn known_lost(&self) -> u64 {
        if self.may_be_there { 0 } else { self.samples }
    }
}
