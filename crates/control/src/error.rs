//! The errors of controllers: one enum, each variant with the path or the value that it is about.

use std::path::PathBuf;

use thiserror::Error;

/// The reason why something was not done.
#[derive(Debug, Error)]
pub enum ControlError {
    /// Thresholds of a plot that do not make a rising line.
    #[error(
        "bandwidth thresholds {low} and {high} bytes/s: both must be numbers, with 0 < low < high"
    )]
    Thresholds {
        /// The bandwidth of degree 0, in bytes/s.
        low: f64,
        /// The bandwidth of degree 1, in bytes/s.
        high: f64,
    },
    /// A range of weights that has no default between its ends.
    #[error("weights from {min} to {max} with default {default}: give 1 <= min <= default <= max")]
    Range {
        /// The smallest weight.
        min: u32,
        /// The weight of a group for which nothing was set.
        default: u32,
        /// The largest weight.
        max: u32,
    },
    /// The name of a control group or of a device that could lead elsewhere.
    #[error("{name:?} is no {what}: {reason}")]
    Name {
        /// What is named.
        what: &'static str,
        /// The name, cut if it is long.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A control group, or one of its files, that is not there, or no longer there.
    #[error("{path} is gone: the control group was removed, or its controller was disabled")]
    Vanished {
        /// The path of the file.
        path: PathBuf,
    },
    /// A file that could not be opened, read or written.
    #[error("cannot {what} {path}: {source}")]
    Io {
        /// The verb.
        what: &'static str,
        /// The path of the file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A file of the kernel whose contents are not of the documented form.
    #[error("{path} has {found:?}, which is not {expected}")]
    Format {
        /// The path of the file.
        path: PathBuf,
        /// The contents, cut if they are long.
        found: String,
        /// The form that was expected.
        expected: &'static str,
    },
    /// A value that the back end does not take.
    #[error("{value} is not taken by {backend}: {range}")]
    Value {
        /// The value.
        value: String,
        /// The name of the back end's file.
        backend: &'static str,
        /// What it takes.
        range: &'static str,
    },
    /// A group whose weight a lease has already, or had when its process was killed.
    #[error(
        "{group} has an entry in the journal {path}: end the lease that made it, or recover what a killed one has left"
    )]
    Leased {
        /// The name of the group.
        group: String,
        /// The path of the entry.
        path: PathBuf,
    },
    /// A lease that has ended: its group is no longer its own.
    #[error("the lease of {group} has ended: {reason}")]
    Ended {
        /// The name of the group.
        group: String,
        /// The reason for its end.
        reason: String,
    },
}
