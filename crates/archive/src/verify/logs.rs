//! Checks which log segments must exist, and how much of each.
//!
//! Each segment names the previous one that was not sealed, and its length; a record beside the
//! segments holds the same of the newest one. So a missing or shortened segment is always detected.
//! Only after the recorded end of the newest segment there may be an incomplete frame: its writer
//! is at work, or was killed.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::suspects::{ExistingFiles, Suspects};
use crate::ArchiveError;
use crate::log::{HEADER_BYTES, LogPart, NewestSegment};
use crate::manifest::Manifest;
use crate::snapshot::{NodeFollower, NodeSnapshot};

/// The log segments of a node that cannot be read.
pub(super) struct UnreadableLogs {
    /// Sequences of the segments, and why they cannot be read.
    unreadable: BTreeMap<u64, String>,
}

impl UnreadableLogs {
    pub(super) fn new(follower: &NodeFollower) -> Self {
        Self {
            unreadable: follower.unreadable().clone(),
        }
    }

    /// Notes what is wrong with the segments of a node.
    pub(super) fn check(
        &self,
        node: &NodeSnapshot,
        there: &ExistingFiles,
        suspects: &mut Suspects,
    ) -> Result<(), ArchiveError> {
        let record = self.record(node, there, suspects);
        let last_readable = node.logs.last().map_or(0, |log| log.sequence());
        let newest = self.unreadable.keys().next_back().copied();
        let newest = newest.unwrap_or(0).max(last_readable);
        for (sequence, why) in &self.unreadable {
            let is_short = |log: &&crate::sweep::LogFile| {
                log.sequence == *sequence && log.bytes <= HEADER_BYTES as u64
            };
            // The segment is just being created: the record names it once its first bytes are on
            // disk.
            let is_begun = *sequence == newest
                && record.is_none_or(|record| record.sequence < *sequence)
                && there.logs.iter().any(|log| is_short(&log));
            // A segment that was not there at the first look is being created as well.
            let is_listed = there.logs.iter().any(|log| log.sequence == *sequence);
            if is_listed && !is_begun {
                suspects
                    .logs
                    .push((*sequence, format!("cannot be read: {why}")));
            }
        }
        for log in &node.logs {
            if let Some(what) = self.tail(log, log.sequence() == newest)? {
                suspects.logs.push((log.sequence(), what));
            }
            if log.node() != crate::log::cut_node(&node.name) {
                let what = format!("is of the node {:?}", log.node());
                suspects.logs.push((log.sequence(), what));
            }
        }
        let told = node.logs.iter().filter_map(|log| log.before());
        for told in told.chain(record) {
            self.is_whole(node, told, suspects);
        }
        Ok(())
    }

    /// Returns the content of the record; notes what is wrong with the record itself.
    fn record(
        &self,
        node: &NodeSnapshot,
        there: &ExistingFiles,
        suspects: &mut Suspects,
    ) -> Option<NewestSegment> {
        let record = match &there.newest {
            Ok(record) => *record,
            Err(what) => {
                suspects.record = Some(what.clone());
                return None;
            }
        };
        if record.is_none() && has_record(&node.sealed.manifest, &node.logs) {
            let what = "is gone: whether the newest log segment is there is not known";
            suspects.record = Some(what.into());
        }
        record.filter(|record| record.sequence > 0)
    }

    /// Returns what is wrong with the end of a segment.
    fn tail(&self, log: &LogPart, is_newest: bool) -> Result<Option<String>, ArchiveError> {
        let mut now = log.fork()?;
        loop {
            let Some(why) = now.damage()? else {
                return Ok(None);
            };
            let at = now.bytes();
            if !is_newest {
                let what = format!("{why}: what follows byte {at} is cut at the next start");
                return Ok(Some(what));
            }
            if now.is_closed() {
                return Ok(Some(format!("{why}: it had ended at byte {at}")));
            }
            if !now.goes_on_behind()? {
                return Ok(None);
            }
            // The writer may have continued meanwhile: a frame that was incomplete is then
            // complete.
            now.damage()?;
            if now.bytes() == at {
                let what =
                    format!("{why}: whole frames behind byte {at} are cut at the next start");
                return Ok(Some(what));
            }
        }
    }

    /// Notes a segment that is missing or shorter than what was on disk.
    fn is_whole(&self, node: &NodeSnapshot, told: NewestSegment, suspects: &mut Suspects) {
        let NewestSegment { sequence, bytes } = told;
        if sequence <= node.sealed.manifest.sealed_through
            || self.unreadable.contains_key(&sequence)
        {
            return;
        }
        let log = node.logs.iter().find(|log| log.sequence() == sequence);
        match log {
            None => {
                suspects.gone.insert(sequence);
            }
            Some(log) if log.bytes() < bytes => {
                let has = log.bytes();
                let what = format!("is damaged at byte {has}: {bytes} bytes of it were on disk");
                suspects.logs.push((sequence, what));
            }
            Some(_) => {}
        }
    }
}

/// Whether the writer of these files keeps a record: earlier versions had none.
fn has_record(manifest: &Manifest, logs: &[Arc<LogPart>]) -> bool {
    let mut parts = manifest.parts.values();
    logs.iter().any(|log| log.has_record()) || parts.any(|part| part.crc32.is_some())
}
