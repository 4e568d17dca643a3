//! Retention: what is deleted and when, by age, by size, and when the disk is full. Whole files are
//! deleted, the oldest first, by a commit and then an unlink. A file that is still to be copied is
//! not deleted by age: only by size or for a full disk, and then it is counted as shed.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use barograph_model::Span;

use crate::log::LogPart;
use crate::manifest::Manifest;
use crate::part::{FilePart, PartKey};
use crate::seal::Sealer;
use crate::sweep::LogFile;
use crate::tier::HOUR_NS;
use crate::{ArchiveConfig, ArchiveError, ArchiveLosses, KeepConfig, Tier, release};

impl KeepConfig {
    /// Returns how long a tier is kept, in ns.
    pub fn of(&self, tier: Tier) -> i64 {
        match tier {
            Tier::Raw => self.raw_ns,
            Tier::Second => self.second_ns,
            Tier::Minute => self.minute_ns,
            Tier::Hour => self.hour_ns,
        }
    }
}

impl Sealer {
    /// Deletes what is too old, too much, or in the way of `extra_bytes` more on the file system.
    /// Returns how many files were deleted.
    pub(crate) fn retain(&mut self, extra_bytes: u64) -> Result<usize, ArchiveError> {
        let logs = self.logs(u64::MAX)?;
        let spans = self.manifest.parts.values().map(|part| part.span);
        let now = self.belief.now(&*self.clock, spans);
        let needed = self.context.config.free_bytes_min;
        let needed = needed.saturating_add(extra_bytes);
        let free = self.free_bytes(needed)?;
        self.tell_neighbours(&logs);
        let short = self.short(needed.saturating_sub(free));
        let victims = self.victims(&logs, short, now);
        if victims.parts.is_empty() && victims.logs.is_empty() {
            return Ok(0);
        }
        let (next, taken) = self.without(&victims);
        let layout = &self.context.layout;
        let parts = victims.parts.iter().map(|(key, _)| key.path(layout));
        let logs = victims.logs.iter().map(|log| log.path.clone());
        let paths: Vec<_> = parts.chain(logs).collect();
        match self.commit(next.clone()) {
            // There is no room even for a manifest. A start repairs a manifest whose files are
            // gone, so here, and only here, the files go first; the new manifest counts from now
            // on, and is written when it can be.
            Err(error) if error.is_full() => {
                self.let_go(paths, victims.bytes());
                self.manifest = next;
                self.taken = taken;
                self.unsure = true;
                self.settle()?;
            }
            result => {
                result?;
                self.let_go(paths, victims.bytes());
                self.taken = taken;
            }
        }
        self.remove_empty_dirs(&victims);
        Ok(victims.parts.len() + victims.logs.len())
    }

    /// Deletes what is too much before more is sealed, if it is so much that it cannot wait: else a
    /// log that grows faster than it is sealed would have no bound.
    pub(crate) fn relieve(&mut self) -> Result<(), ArchiveError> {
        let logs = self.logs(u64::MAX)?;
        self.tell_neighbours(&logs);
        let config = &self.context.config;
        let beyond = self.used(&logs).saturating_sub(config.bytes_max);
        if beyond.max(self.short(0)) > config.late_bytes_max() / 2 {
            self.retain(0)?;
            self.tell();
        }
        Ok(())
    }

    /// Returns the bytes of all files.
    fn used(&self, logs: &[LogFile]) -> u64 {
        let logs = logs.iter().map(|log| log.bytes);
        logs.fold(self.manifest.bytes(), u64::saturating_add)
    }

    /// Returns the last log segment that is not written any more. The writer of the log may have
    /// closed it since the last order to seal.
    fn closed(&self) -> u64 {
        self.due.max(self.context.closed.load(Ordering::Acquire))
    }

    /// Returns how many of the bytes that are missing on the file system this archive is to delete,
    /// or its part of what guests have too much, whichever is more.
    fn short(&self, missing: u64) -> u64 {
        let now_ns = self.clock.monotonic_ns();
        let is_to_give = missing > 0 && self.place.is_to_give(now_ns);
        let given = if is_to_give { missing } else { 0 };
        let bytes_max = self.context.config.guests_bytes_max;
        given.max(self.place.beyond(bytes_max, now_ns))
    }

    /// Tells the neighbours how much this archive could delete: all but the segments that are still
    /// written.
    fn tell_neighbours(&self, logs: &[LogFile]) {
        let closed = self.closed();
        let logs = logs.iter().filter(|log| log.sequence <= closed);
        let logs = logs.fold(0u64, |sum, log| sum.saturating_add(log.bytes));
        let bytes = self.manifest.bytes().saturating_add(logs);
        self.place.tell(bytes, self.freed.bytes);
    }

    fn let_go(&mut self, paths: Vec<PathBuf>, bytes: u64) {
        self.unlink(paths);
        release::release();
        self.freed.add(bytes, self.clock.monotonic_ns());
        // Bytes that became free at once are not waited for any longer. If this check fails, the
        // next one finds it.
        let _ = self.free_bytes(0);
        self.place.tell(self.manifest.bytes(), self.freed.bytes);
    }

    /// Returns the bytes that are free, or will be when everybody has closed the deleted files.
    fn free_bytes(&mut self, needed: u64) -> Result<u64, ArchiveError> {
        let mut look = || {
            let root = self.context.layout.root();
            let free = self.context.storage.free_bytes(root);
            let free = free.map_err(ArchiveError::io("look at the free space of", root))?;
            let waiting = self.freed.waiting(free, self.clock.monotonic_ns());
            let others = self.place.waiting();
            Ok(free.saturating_add(waiting).saturating_add(others))
        };
        let free = look()?;
        if free >= needed {
            return Ok(free);
        }
        // Sealed log segments may be held open as well.
        release::release();
        look()
    }

    /// Chooses what is too old, too much, or in the way of `short` bytes. Nothing is chosen by age
    /// if the time is unknown; neither are files that must be copied first.
    fn victims(&self, logs: &[LogFile], short: u64, now: Option<i64>) -> Victims {
        let config = &self.context.config;
        let mut excess = self.used(logs).saturating_sub(config.bytes_max).max(short);
        let mut parts: Vec<(PartKey, FilePart)> =
            self.manifest.parts.iter().map(|(k, p)| (*k, *p)).collect();
        // A file is as old as its newest sample; within one hour, raw goes before the tiers that
        // were made of it.
        parts.sort_by_key(|(key, part)| (part.span.to.div_euclid(HOUR_NS), key.tier, key.first));
        let aged = |(key, part): &(PartKey, FilePart)| {
            now.is_some_and(|now| is_old(config, *key, part.span, now)) && !self.waits_for_copy(key)
        };
        let (mut gone, kept): (Vec<_>, Vec<_>) = parts.into_iter().partition(aged);
        for (_, part) in &gone {
            excess = excess.saturating_sub(part.bytes);
        }
        let series_end = self.series_end();
        let mut shed = 0;
        for (key, part) in kept {
            let has_them = series_end.is_some_and(|end| part.span.from <= end);
            if excess == 0 && !has_them {
                continue;
            }
            excess = excess.saturating_sub(part.bytes);
            if key.tier == Tier::Raw {
                shed += part.rows;
            }
            gone.push((key, part));
        }
        let mut logs_gone = Vec::new();
        // Log segments are the last resort; those that are still written are not touched.
        let closed = self.closed();
        for log in logs.iter().filter(|log| log.sequence <= closed) {
            if excess == 0 {
                break;
            }
            excess = excess.saturating_sub(log.bytes);
            logs_gone.push(log.clone());
        }
        Victims {
            parts: gone,
            logs: logs_gone,
            shed,
        }
    }

    /// Returns the time up to which history is deleted so that the descriptions of series keep to
    /// their bound; `None` if they do.
    fn series_end(&self) -> Option<i64> {
        let series = self.manifest.series.values();
        let mut all: Vec<(i64, u64)> = series.map(|known| (known.span.to, known.bytes())).collect();
        let sum = all
            .iter()
            .fold(0u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
        let mut excess = sum.saturating_sub(self.context.config.series_bytes_max);
        if excess == 0 {
            return None;
        }
        all.sort_unstable();
        let is_enough = |(_, bytes): &&(i64, u64)| {
            excess = excess.saturating_sub(*bytes);
            excess == 0
        };
        let end = all.iter().find(is_enough).map(|(to, _)| *to);
        tracing::warn!(
            series = all.len(),
            "there are too many series for an archive: the oldest history goes with its series"
        );
        end
    }

    /// Returns the manifest without the victims, and the losses taken over from log segments so
    /// far.
    fn without(&self, victims: &Victims) -> (Manifest, ArchiveLosses) {
        let (mut next, mut taken) = (self.manifest.clone(), self.taken.clone());
        next.losses.shed_samples += victims.shed;
        for (key, _) in &victims.parts {
            next.parts.remove(key);
            if !self.is_copied(key) {
                next.keep_copies_of(key);
            }
        }
        for file in &victims.logs {
            next.sealed_through = next.sealed_through.max(file.sequence);
            let Ok(log) = LogPart::open(&file.path) else {
                next.losses.corrupt_files += 1;
                continue;
            };
            next.losses.add(log.losses());
            taken.add(log.losses());
            next.losses.shed_samples += log.rows();
            next.add_log(&log);
        }
        // Series that have nothing left are removed.
        let oldest = next.parts.values().map(|part| part.span.from).min();
        let oldest = oldest.unwrap_or(i64::MAX);
        next.series.retain(|_, known| known.span.to >= oldest);
        for known in next.series.values_mut() {
            known.span.from = known.span.from.max(oldest);
        }
        (next, taken)
    }

    fn remove_empty_dirs(&self, victims: &Victims) {
        let layout = &self.context.layout;
        for (key, _) in &victims.parts {
            let path = key.path(layout);
            // The hour is removed, then the date; a directory that is not empty stays, and an empty
            // one does no harm.
            for dir in path.ancestors().skip(1).take(2) {
                let _ = self.context.storage.remove_dir(dir);
            }
        }
    }
}

fn is_old(config: &ArchiveConfig, key: PartKey, span: Span, now: i64) -> bool {
    let keep_ns = config.keep.of(key.tier);
    // `i64::MAX` means for ever, whatever the times of the samples.
    keep_ns < i64::MAX && span.to < now.saturating_sub(keep_ns)
}

/// The files to delete.
struct Victims {
    parts: Vec<(PartKey, FilePart)>,
    logs: Vec<LogFile>,
    /// Number of samples that are deleted early.
    shed: u64,
}

impl Victims {
    fn bytes(&self) -> u64 {
        let parts = self.parts.iter().map(|(_, part)| part.bytes);
        let logs = self.logs.iter().map(|log| log.bytes);
        parts.chain(logs).fold(0, u64::saturating_add)
    }
}
