//! Helpers of all sources: files held open, parsers of bytes, rates, and lists of the things that a
//! source follows.

pub(crate) mod command;
pub(crate) mod diskstats;
pub(crate) mod faults;
pub(crate) mod file;
pub(crate) mod globs;
pub(crate) mod handed_over;
pub(crate) mod helper;
pub(crate) mod identity;
pub(crate) mod keyed;
pub(crate) mod link;
pub(crate) mod millis;
pub(crate) mod mounts;
pub(crate) mod parse;
pub(crate) mod rate;
pub(crate) mod roster;
pub(crate) mod top;
