//! Calls: the way by which triggers and knob settings reach running programs
//! (docs/design/0004-applications.md).
//!
//! The agent writes one file per user ([`CallsWriter`]); the user's programs map it read-only
//! ([`CallsReader`]) and read one word to find out whether there are new calls.
//! `docs/reference/calls-format.md` defines the byte layout. Answers go the other way, as records
//! of ingest files ([`crate::ingest::kind::ACK`]).

mod call;
mod layout;
mod reader;
mod target;
mod writer;

pub use call::{AckStatus, Call, CallKind, CallPayload};
pub use layout::{
    CALLS_VERSION_MAJOR, CALLS_VERSION_MINOR, NAME_BYTES_MAX, PAYLOAD_BYTES_MAX, SLOTS,
    TARGET_BYTES_MAX,
};
pub use reader::{CALLS_FILE, CallsReader, NextCall};
pub use target::{CallSubject, CallTarget};
pub use writer::CallsWriter;
