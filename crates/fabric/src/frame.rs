//! Frames: the messages in which a node sends samples to another one.
//!
//! A frame can be read without the frames before it, apart from the announcements that give each
//! stream its reference. So a lost frame loses samples and never the meaning of later ones.
//! `docs/reference/fabric-format.md` defines the bytes. Readers take every byte for foreign: a
//! frame that breaks a rule is refused as a whole, with the reason.

mod announcement;
mod batch;
mod fault;
mod header;
mod layout;
mod reader;
mod subscription;
mod times;
mod values;
mod writer;

pub use announcement::Announcement;
pub use batch::Batch;
pub use fault::FrameFault;
pub(crate) use header::feed_of;
pub use header::{FrameHeader, FrameKind, empty_frame, is_of_samples};
pub use layout::{FRAME_BYTES_MAX, HEADER_BYTES, VERSION};
pub use reader::{FrameReader, Section};
pub use subscription::{FeedReach, POSITIONS_MAX, Position, SELECTORS_MAX, Subscription};
pub use writer::FrameWriter;
