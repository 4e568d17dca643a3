//! Export: this node's samples go to receivers elsewhere, as OTLP metrics or as Prometheus remote
//! write. Off unless a receiver is configured.
//!
//! It stands alone because it is the one part that sends: one thread of low priority reads the
//! segment as any foreign process does, so a slow receiver costs nobody anything. What is not
//! delivered waits in the rings; what leaves them first is lost, and counted.

mod line;
mod otlp;
mod receiver;
mod remote_write;
mod sender;
mod status;
#[cfg(test)]
mod tests;
mod thread;

pub use receiver::{ExportConfig, ExportHeaders, Receiver, Selection};
pub use status::{ExportCounts, ExportStatus};
pub use thread::{Exporter, Exports};

/// Most samples in one request.
const BATCH_SAMPLES_MAX: usize = 2_000;
/// Most bytes in one request, before compression.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// What one request carries.
#[derive(Debug)]
struct Batch {
    body: Vec<u8>,
    samples: u64,
    /// A try of it, or of what it is a part of, came to no end: the receiver may have it, and refuse it for that.
    may_be_there: bool,
}

impl Batch {
    /// Samples that are lost where this is given up; what may have arrived is not said to be.
    fn known_lost(&self) -> u64 {
        if self.may_be_there { 0 } else { self.samples }
    }
}
