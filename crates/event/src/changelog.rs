//! The ChangeLogs of Lustre: a collector of file events for each metadata target.
//!
//! ```text
//! device -> LogReader -> ChangelogMerge (all targets, by time) -> Resolver -> events
//! ```
//!
//! It needs no library of Lustre and no ioctl: the character device of a client gives binary
//! records and takes orders to clear, and an extended attribute gives the places of files. The
//! facts about formats are those of Lustre 2.17 and of published lines of older versions.

mod collector;
#[cfg(test)]
mod collector_tests;
mod convert;
mod device;
mod fid;
#[doc(hidden)]
pub mod history;
mod item;
mod lines;
mod merge;
#[cfg(test)]
mod merge_tests;
mod mount;
mod nid;
mod places;
mod positions;
mod reader;
#[cfg(test)]
mod reader_tests;
mod record;
#[cfg(test)]
mod record_tests;
mod record_type;
mod resolver;
#[doc(hidden)]
pub mod standin;
mod survey;
mod text;
#[cfg(test)]
mod text_tests;
mod window;

pub use collector::{ChangelogCollector, ChangelogOptions};
pub use device::{ChangelogDevice, ChangelogFile, ChangelogUser};
pub use fid::Fid;
pub use lines::ChangelogLines;
pub use merge::{ChangelogMerge, MergeOptions};
pub use mount::MountPaths;
pub use nid::Nid;
pub use places::FidLink;
pub use reader::{MissingIndex, ReaderOptions};
pub use record::{ChangelogFault, ChangelogRecord, record_time};
pub use record_type::RecordType;
pub use resolver::{FidPaths, FidPlace, ResolverOptions};
pub use text::{LineFault, begins_record, parse_line};
