//! What is let go, and when: by age, by size, and when the disk is full. Always whole files, the oldest
//! first, by a commit and then an unlink. What is to be copied and is not yet does not go by its age: only by size
//! or for a full disk, and then it is counted as shed.

use std::path::PathBuf;

use barograph_model::{NS_PER_S, Span};

use crate::compose::HOUR_NS;
use crate::log::LogPart;
use crate::manifest::{Manifest, Part, PartKey};
use crate::seal::{LogFile, Sealer};
use crate::{ArchiveConfig, ArchiveError, KeepConfig, Losses, Tier, release};

/// Longest wait for bytes that were let go to become free, before more goes.
const FREED_NS_MAX: i64 = 120 * NS_PER_S;

impl KeepConfig {
    /// For how long a tier is kept, in ns.
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
    /// Lets go what is too old, too much, or in the way of `extra_bytes` more on the file system. How many
    /// files went.
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
            // Not even a manifest fits. A manifest whose files are gone is mended at a start, so here, and
            // only here, the files go first; what is left counts from now on, and is written when it can be.
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

    /// Of bytes that are missing on the file system, what this archive is to let go; with what guests have too much.
    fn short(&self, missing: u64) -> u64 {
        let now_ns = self.clock.monotonic_ns();
        let is_to_give = missing > 0 && self.place.is_to_give(now_ns);
        let given = if is_to_give { missing } else { 0 };
        let bytes_max = self.context.config.guests_bytes_max;
        given.max(self.place.beyond(bytes_max, now_ns))
    }

    /// What of this archive could go: not what is still written to.
    fn tell_neighbours(&self, logs: &[LogFile]) {
        let logs = logs.iter().filter(|log| log.sequence <= self.due);
        let logs = logs.fold(0u64, |sum, log| sum.saturating_add(log.bytes));
        let bytes = self.manifest.bytes().saturating_add(logs);
        self.place.tell(bytes, self.freed.bytes);
    }

    fn let_go(&mut self, paths: Vec<PathBuf>, bytes: u64) {
        self.unlink(paths);
        release::release();
        self.freed.add(bytes, self.clock.monotonic_ns());
        // What became free at once is waited for no longer. Without this look it is at the next.
        let _ = self.free_bytes(0);
        self.place.tell(self.manifest.bytes(), self.freed.bytes);
    }

    /// Bytes that are free, or will be when everybody has closed what was let go.
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
        // Log segments that were sealed may be held as well.
        release::release();
        look()
    }

    /// What is too old, too much, or in the way of `short` bytes. Nothing goes by its age where the time is
    /// not known, or that is to be copied first.
    fn victims(&self, logs: &[LogFile], short: u64, now: Option<i64>) -> Victims {
        let config = &self.context.config;
        let used = self.manifest.bytes() + logs.iter().map(|log| log.bytes).sum::<u64>();
        let mut excess = used.saturating_sub(config.bytes_max).max(short);
        let mut parts: Vec<(PartKey, Part)> =
            self.manifest.parts.iter().map(|(k, p)| (*k, *p)).collect();
        // A file is as old as its newest sample; of one hour, raw goes before what is made of it.
        parts.sort_by_key(|(key, part)| (part.span.to.div_euclid(HOUR_NS), key.tier, key.first));
        let aged = |(key, part): &(PartKey, Part)| {
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
        // The last resort; what is still written to is not touched.
        for log in logs.iter().filter(|log| log.sequence <= self.due) {
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

    /// The time up to which history goes so that what is known of series keeps to its bound; `None` when it does.
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

    /// The manifest without them, and what is taken over from log segments so far.
    fn without(&self, victims: &Victims) -> (Manifest, Losses) {
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
        // Series of which nothing is left are forgotten.
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
            // The hour, then the date; what is not empty stays, and an empty one harms nobody.
            for dir in path.ancestors().skip(1).take(2) {
                let _ = self.context.storage.remove_dir(dir);
            }
        }
    }
}

fn is_old(config: &ArchiveConfig, key: PartKey, span: Span, now: i64) -> bool {
    let keep_ns = config.keep.of(key.tier);
    // The longest is for ever, whatever time samples say they are of.
    keep_ns < i64::MAX && span.to < now.saturating_sub(keep_ns)
}

/// What goes.
struct Victims {
    parts: Vec<(PartKey, Part)>,
    logs: Vec<LogFile>,
    /// Samples that go before their time.
    shed: u64,
}

impl Victims {
    fn bytes(&self) -> u64 {
        let parts = self.parts.iter().map(|(_, part)| part.bytes);
        let logs = self.logs.iter().map(|log| log.bytes);
        parts.chain(logs).fold(0, u64::saturating_add)
    }
}

/// Bytes that were let go and are not free yet: somebody has the files open, or the file system takes its
/// time. Whoever lets go more instead of waiting lets go everything.
#[derive(Debug, Default)]
pub(crate) struct Freed {
    bytes: u64,
    /// What was free when it was last looked.
    free: u64,
    /// When it is given up, by the monotonic clock: then more must go.
    until_ns: i64,
}

impl Freed {
    fn add(&mut self, bytes: u64, now_ns: i64) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.until_ns = now_ns.saturating_add(FREED_NS_MAX);
    }

    /// What is still to become free, where `free` bytes are.
    fn waiting(&mut self, free: u64, now_ns: i64) -> u64 {
        let risen = free.saturating_sub(self.free);
        self.free = free;
        self.bytes = if now_ns < self.until_ns {
            self.bytes.saturating_sub(risen)
        } else {
            0
        };
        self.bytes
    }
}
