//! `[archive]` of the configuration: which history is written, how soon, and how much of it is
//! kept.
//!
//! It is a module of its own because it translates: keys for people become the archive writer's
//! configuration.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use barograph_archive::{ArchiveRank, CopyTarget, EventReader, KeepConfig, Neighbours};
use barograph_model::{ConfigError, NS_PER_S, Selector};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::copies::{ScopeCopies, ScopeTarget, open_target};
use crate::range::{refused, seconds};

/// Smallest log segment and buffer in bytes: one tick of a large node must fit.
const BYTES_MIN: u64 = 64 << 10;
/// Largest log segment and buffer in bytes.
const BYTES_MAX: u64 = 4 << 30;
/// Smallest value of `bytes_max`.
const TOTAL_BYTES_MIN: u64 = 1 << 20;
/// Longest retention in days: a century.
const DAYS_MAX: f64 = 36_500.0;

/// History: what is written to disk, and how much of it is kept.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ArchiveConfig {
    /// Whether samples are written to disk at all.
    pub enabled: bool,
    /// Directory of the archive; empty: `archive` in the state directory.
    pub dir: PathBuf,
    /// Streams whose samples are synced to disk within `commit_seconds`, as patterns (`app.*`,
    /// `disk.*{device=vda}`); samples of other streams reach the disk when the page cache is
    /// written back.
    pub durable: Vec<String>,
    /// Streams that are not written to the archive, as patterns.
    pub leave_out: Vec<String>,
    /// Longest time until a durable sample is synced to disk, in seconds, 0.001 to 10.
    pub commit_seconds: f64,
    /// Longest time until any other sample is written to the page cache, in seconds, 0.01 to 60.
    pub flush_seconds: f64,
    /// Size at which a log segment is sealed into Parquet, in bytes, 65536 to 4294967296.
    pub segment_bytes_max: u64,
    /// Age at which a log segment is sealed into Parquet, in seconds, 1 to 86400.
    pub segment_seconds_max: f64,
    /// Most bytes that wait for the disk, 65536 to 4294967296; samples beyond it are lost and
    /// counted.
    pub buffer_bytes_max: u64,
    /// Most bytes of all files of this node, at least 1048576; the oldest are deleted first. While
    /// files are written faster than the agent can seal and delete them, there may be a quarter
    /// more, or four log segments if these are more, and the segment that is written; then samples
    /// wait for the disk. What applications publish may take as much again, in all scopes together:
    /// the largest scope loses its oldest files first.
    pub bytes_max: u64,
    /// Bytes of the file system that are left free: when there are fewer, the oldest history is
    /// deleted, that of applications before the node's own.
    pub free_bytes_min: u64,
    /// Days for which every sample is kept, at most 36500.
    pub keep_raw_days: f64,
    /// Days for which buckets of a second are kept, at most 36500.
    #[serde(rename = "keep_1s_days")]
    pub keep_second_days: f64,
    /// Days for which buckets of a minute are kept, at most 36500.
    #[serde(rename = "keep_1min_days")]
    pub keep_minute_days: f64,
    /// Days for which buckets of an hour are kept, at most 36500.
    #[serde(rename = "keep_1h_days")]
    pub keep_hour_days: f64,
    /// The place to which each sealed file is copied: `file:///path` or `s3://bucket/prefix`
    /// (credentials from `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, or the machine's role);
    /// empty: nowhere.
    pub target: String,
    /// Whether history of applications is copied to the target too, below `applications/<scope>`.
    /// In a directory, the copies have the readers of the scope; in a bucket, everyone who may read
    /// that prefix can read them.
    pub target_applications: bool,
    /// Options of an S3 target: `endpoint` (a URL), `region`, `allow_http`, `ca_file`.
    pub target_options: BTreeMap<String, String>,
    /// Whether this is the node's own archive or one of applications; not part of the configuration
    /// file.
    #[serde(skip)]
    #[schemars(skip)]
    pub rank: ArchiveRank,
    /// The place to which a scope's files are copied, instead of `target`; `None` for the node's
    /// archive.
    #[serde(skip)]
    #[schemars(skip)]
    pub copies: Option<ScopeTarget>,
    /// All archives of this agent, which share its limits.
    #[serde(skip)]
    #[schemars(skip)]
    pub neighbours: Neighbours,
    /// The reader of file events, with which sealed files of applications and of other nodes have
    /// columns for them; not part of the configuration file.
    #[serde(skip)]
    #[schemars(skip)]
    pub events: Option<Arc<dyn EventReader>>,
}

impl Default for ArchiveConfig {
    fn default() -> Self {
        let writer = barograph_archive::ArchiveConfig::new("", "");
        let seconds = |ns: i64| ns as f64 / NS_PER_S as f64;
        let days = |ns: i64| (ns / (86_400 * NS_PER_S)) as f64;
        Self {
            enabled: true,
            dir: PathBuf::new(),
            durable: Vec::new(),
            // Projections are arrays of hundreds of bytes per look, and can be computed again from
            // their streams.
            leave_out: vec!["forecast.*".into()],
            commit_seconds: seconds(writer.commit_ns),
            flush_seconds: seconds(writer.flush_ns),
            segment_bytes_max: writer.segment_bytes_max,
            segment_seconds_max: seconds(writer.segment_ns_max),
            buffer_bytes_max: writer.buffer_bytes_max as u64,
            bytes_max: writer.bytes_max,
            free_bytes_min: writer.free_bytes_min,
            keep_raw_days: days(writer.keep.raw_ns),
            keep_second_days: days(writer.keep.second_ns),
            keep_minute_days: days(writer.keep.minute_ns),
            keep_hour_days: days(writer.keep.hour_ns),
            target: String::new(),
            target_applications: true,
            target_options: BTreeMap::new(),
            rank: ArchiveRank::Own,
            copies: None,
            neighbours: Neighbours::default(),
            events: None,
        }
    }
}

impl ArchiveConfig {
    /// Checks the ranges and translates them into the writer's configuration for `node`. `dir` must
    /// have been filled in.
    pub fn writer(&self, node: &str) -> Result<barograph_archive::ArchiveConfig, ConfigError> {
        self.check_bytes()?;
        Ok(barograph_archive::ArchiveConfig {
            root: self.dir.clone(),
            node: node.into(),
            durable: selectors("archive.durable", &self.durable)?,
            leave_out: selectors("archive.leave_out", &self.leave_out)?,
            commit_ns: seconds("archive.commit_seconds", self.commit_seconds, 0.001, 10.0)?,
            flush_ns: seconds("archive.flush_seconds", self.flush_seconds, 0.01, 60.0)?,
            segment_bytes_max: self.segment_bytes_max,
            segment_ns_max: seconds(
                "archive.segment_seconds_max",
                self.segment_seconds_max,
                1.0,
                86_400.0,
            )?,
            buffer_bytes_max: usize::try_from(self.buffer_bytes_max).unwrap_or(usize::MAX),
            bytes_max: self.bytes_max,
            free_bytes_min: self.free_bytes_min,
            rank: self.rank,
            neighbours: self.neighbours.clone(),
            // Sources of events are in the scopes of their readers.
            events: (self.events.clone()).filter(|_| self.rank == ArchiveRank::Guest),
            // Applications' history may take as much as the node's own.
            guests_bytes_max: self.bytes_max,
            keep: KeepConfig {
                raw_ns: days("archive.keep_raw_days", self.keep_raw_days)?,
                second_ns: days("archive.keep_1s_days", self.keep_second_days)?,
                minute_ns: days("archive.keep_1min_days", self.keep_minute_days)?,
                hour_ns: days("archive.keep_1h_days", self.keep_hour_days)?,
            },
            ..barograph_archive::ArchiveConfig::new("", "")
        })
    }

    /// Opens the target of copies, if there is one; no connection is made yet. Fails if the target
    /// or its options are invalid.
    pub fn target(&self) -> Result<Option<Box<dyn CopyTarget>>, ConfigError> {
        if let Some(copies) = &self.copies {
            return Ok(Some(Box::new(copies.clone())));
        }
        open_target(&self.target, &self.target_options)
    }

    /// The connection for copies of the files of scopes; `None` if none are copied.
    pub fn scope_copies(&self) -> Option<ScopeCopies> {
        let is_wanted = self.target_applications && !self.target.is_empty();
        is_wanted.then(|| ScopeCopies::new(&self.target, &self.target_options))
    }

    fn check_bytes(&self) -> Result<(), ConfigError> {
        for (key, bytes) in [
            ("archive.segment_bytes_max", self.segment_bytes_max),
            ("archive.buffer_bytes_max", self.buffer_bytes_max),
        ] {
            if !(BYTES_MIN..=BYTES_MAX).contains(&bytes) {
                return Err(refused(key, &bytes, "it must be 65536 to 4294967296"));
            }
        }
        if self.bytes_max < TOTAL_BYTES_MIN {
            let reason = "it must be at least 1048576; archive.enabled = false keeps nothing";
            return Err(refused("archive.bytes_max", &self.bytes_max, reason));
        }
        Ok(())
    }
}

fn selectors(key: &'static str, patterns: &[String]) -> Result<Vec<Selector>, ConfigError> {
    patterns
        .iter()
        .map(|text| Selector::parse(text).map_err(|e| refused(key, text, &e.to_string())))
        .collect()
}

fn days(key: &'static str, value: f64) -> Result<i64, ConfigError> {
    if !(value > 0.0 && value <= DAYS_MAX) {
        return Err(refused(
            key,
            &value,
            "it must be more than 0, at most 36500",
        ));
    }
    Ok((value * 86_400.0 * NS_PER_S as f64) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_the_writers() {
        let ours = ArchiveConfig::default().writer("n").unwrap();
        let mut theirs = barograph_archive::ArchiveConfig::new("", "n");
        // The agent adds this default: the writer does not know which streams can be computed
        // again.
        theirs.leave_out = vec![Selector::parse("forecast.*").unwrap()];
        assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
    }

    #[test]
    fn what_is_out_of_range_is_refused_by_its_key() {
        let check = |text: &str, expect: &str| {
            let config: ArchiveConfig = toml::from_str(text).unwrap();
            let error = config.writer("n").unwrap_err().to_string();
            assert!(error.contains(expect), "{text}: {error}");
        };
        check(
            "commit_seconds = 0",
            "archive.commit_seconds = 0 is refused: it must be 0.001 to 10",
        );
        check(
            "flush_seconds = 61",
            "archive.flush_seconds = 61 is refused",
        );
        check(
            "flush_seconds = nan",
            "archive.flush_seconds = NaN is refused",
        );
        check(
            "segment_bytes_max = 1",
            "archive.segment_bytes_max = 1 is refused",
        );
        check(
            "segment_seconds_max = 0.5",
            "archive.segment_seconds_max = 0.5 is refused",
        );
        check(
            "buffer_bytes_max = 0",
            "archive.buffer_bytes_max = 0 is refused",
        );
        check("bytes_max = 0", "archive.enabled = false keeps nothing");
        check("keep_raw_days = 0", "archive.keep_raw_days = 0 is refused");
        check(
            "keep_1h_days = 36501",
            "archive.keep_1h_days = 36501 is refused",
        );
        check("durable = ['a{b}']", "archive.durable = a{b} is refused");
        check("leave_out = ['']", "archive.leave_out =  is refused");
    }
}
