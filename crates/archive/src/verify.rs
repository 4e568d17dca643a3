//! Whether an archive is what it says: every checksum, every count, every number.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use barograph_model::{SeriesId, Span};

use crate::log::LogPart;
use crate::manifest::{Manifest, Part, PartKey};
use crate::parquet::ParquetPart;
use crate::snapshot::{Follower, Node};
use crate::{ArchiveError, Disk, Layout, Tier, sweep};

/// Most runs of numbers that are compared: beyond it the archive has more holes than that.
const RUNS_MAX: usize = 4 << 20;

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The file.
    pub path: PathBuf,
    /// What is wrong, and what it means.
    pub what: String,
}

/// What a verification saw.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verified {
    /// Files read.
    pub files: u64,
    /// Samples read.
    pub samples: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Samples that are there twice.
    pub twice: u64,
    /// Samples whose numbers are missing between those that are there.
    pub missing: u64,
    /// What is wrong.
    pub findings: Vec<Finding>,
}

/// Reads all of an archive, which may be written to meanwhile; `progress` is told files done and in all.
pub fn verify(root: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<Verified, ArchiveError> {
    let mut verified = Verified::default();
    let layouts = Layout::nodes(root);
    let mut nodes = Vec::new();
    for layout in layouts.map_err(ArchiveError::io("list the nodes of", root))? {
        let path = layout.manifest();
        let mut follower = Follower::new(layout.clone());
        match follower.follow() {
            Ok(_) => nodes.push((layout, follower.node(&mut Vec::new()))),
            Err(error @ ArchiveError::Corrupt { .. }) => {
                verified.find(&path, format!("{error}; the next start makes it anew"));
            }
            Err(error) => return Err(error),
        }
    }
    let files = |(_, node): &(_, Node)| node.sealed.manifest.parts.len() + node.logs.len();
    let all = nodes.iter().map(files).sum::<usize>() as u64;
    for (layout, node) in &nodes {
        let mut numbers = Numbers::default();
        for (key, part) in &node.sealed.manifest.parts {
            verified.part(layout, node, *key, part, &mut numbers)?;
            progress(verified.files, all);
        }
        for (at, log) in node.logs.iter().enumerate() {
            let newest = at + 1 == node.logs.len();
            verified.log(log, newest, &mut numbers)?;
            progress(verified.files, all);
        }
        verified.orphans(layout, node)?;
        if numbers.full {
            let what = "has more holes than can be compared: samples that are there twice or missing are not all counted";
            verified.find(&layout.node_dir(), what.into());
        }
        let (twice, missing) = numbers.count();
        verified.twice += twice;
        verified.missing += missing;
    }
    Ok(verified)
}

impl Verified {
    fn find(&mut self, path: &Path, what: String) {
        let path = path.to_owned();
        self.findings.push(Finding { path, what });
    }

    fn part(
        &mut self,
        layout: &Layout,
        node: &Node,
        key: PartKey,
        part: &Part,
        numbers: &mut Numbers,
    ) -> Result<(), ArchiveError> {
        self.files += 1;
        let path = key.path(layout);
        let read = match node.sealed.held.get(&key) {
            Some(file) => file.try_clone().map_err(ArchiveError::io("open", &path)),
            None => crate::open::regular(&path),
        };
        let read = read
            .and_then(|file| ParquetPart::from_file(&path, file))
            .and_then(|open| check(&open, key.tier, numbers).map(|rows| (rows, open.bytes())));
        match read {
            Ok((rows, bytes)) => {
                self.bytes += bytes;
                self.samples += if key.tier == Tier::Raw { rows } else { 0 };
                if (rows, bytes) != (part.rows, part.bytes) {
                    self.find(
                        &path,
                        format!(
                            "it has {rows} rows in {bytes} bytes, and the manifest says {} in {}",
                            part.rows, part.bytes
                        ),
                    );
                }
            }
            Err(error) if error.is_gone() => {
                // Merged or let go since, unless the manifest of now still has it.
                let now = Manifest::read(&layout.manifest())?.unwrap_or_default();
                if now.parts.contains_key(&key) {
                    let what = "is gone, and the manifest has it: its rows are lost";
                    self.find(&path, what.into());
                }
            }
            Err(error @ ArchiveError::Io { .. }) => return Err(error),
            Err(error) => self.find(&path, error.to_string()),
        }
        Ok(())
    }

    fn log(
        &mut self,
        log: &LogPart,
        newest: bool,
        numbers: &mut Numbers,
    ) -> Result<(), ArchiveError> {
        self.files += 1;
        self.samples += log.rows();
        self.bytes += log.bytes();
        let cancel = AtomicBool::new(false);
        let read = log.read(&|_| true, Span::ALL, &cancel, &mut |at, columns| {
            let series = &log.series()[at];
            numbers.add(series.id, series.life, &columns.numbers);
            Ok(())
        });
        if let Err(error) = read {
            self.find(log.path(), error.to_string());
        }
        // Behind the end of the newest a frame may be on its way.
        if let Some(why) = log.fork()?.damage()?.filter(|_| !newest) {
            let at = log.bytes();
            let what = format!("{why}: what follows byte {at} is cut at the next start");
            self.find(log.path(), what);
        }
        Ok(())
    }

    /// Files that nobody reads.
    fn orphans(&mut self, layout: &Layout, node: &Node) -> Result<(), ArchiveError> {
        let files = sweep::parquet_files(layout, &Disk)?;
        let logs = sweep::logs(layout, &Disk)?;
        // Read after the files were listed: what was made meanwhile is in it.
        let now = Manifest::read(&layout.manifest())?.unwrap_or_default();
        let before = &node.sealed.manifest.parts;
        let counts = |key: &PartKey| now.parts.contains_key(key) || before.contains_key(key);
        let left = "was left by a crash; the next start removes it";
        for (path, _) in files.iter().filter(|(_, key)| !counts(key)) {
            // It may just be made, and be in force a moment later.
            self.find(
                path,
                format!("is not in the manifest: it {left}, unless it is just being made"),
            );
        }
        for log in logs.iter().filter(|log| log.sequence <= now.sealed_through) {
            self.find(&log.path, format!("is sealed: it {left}"));
        }
        let dirs: BTreeSet<&Path> = files.iter().filter_map(|(path, _)| path.parent()).collect();
        let own = [layout.node_dir(), layout.log_dir()];
        for dir in dirs.into_iter().chain(own.iter().map(PathBuf::as_path)) {
            let there = std::fs::read_dir(dir).map_err(ArchiveError::io("list", dir))?;
            for path in there.flatten().map(|entry| entry.path()) {
                if path.extension().is_some_and(|e| e == "bad") {
                    self.find(
                        &path,
                        "was damaged and set aside: remove it when you have looked at it".into(),
                    );
                }
            }
        }
        Ok(())
    }
}

/// Every checksum and every row; of raw files the numbers too.
fn check(part: &ParquetPart, tier: Tier, numbers: &mut Numbers) -> Result<u64, ArchiveError> {
    let rows = part.check()?;
    if tier == Tier::Raw {
        let index = part.index()?;
        let cancel = AtomicBool::new(false);
        part.read(&|_| true, Span::ALL, &cancel, &mut |at, life, columns| {
            numbers.add(index.series[at].id, life, &columns.numbers);
            Ok(())
        })?;
    }
    Ok(rows)
}

/// The numbers that were seen of each life, as runs without holes.
#[derive(Default)]
struct Numbers {
    runs: HashMap<(SeriesId, i64), Vec<(u64, u64)>>,
    count: usize,
    full: bool,
}

impl Numbers {
    fn add(&mut self, id: SeriesId, life: i64, numbers: &[u64]) {
        let runs = self.runs.entry((id, life)).or_default();
        for number in numbers {
            match runs.last_mut() {
                Some((_, last)) if *number == *last + 1 => *last = *number,
                _ if self.count >= RUNS_MAX => self.full = true,
                _ => {
                    runs.push((*number, *number));
                    self.count += 1;
                }
            }
        }
    }

    /// How many there are twice, and how many are missing.
    fn count(self) -> (u64, u64) {
        let (mut twice, mut missing) = (0, 0);
        for mut runs in self.runs.into_values() {
            runs.sort_unstable();
            let mut runs = runs.into_iter();
            let Some((_, mut last)) = runs.next() else {
                continue;
            };
            for (from, to) in runs {
                missing += from.saturating_sub(last + 1);
                twice += (last.min(to) + 1).saturating_sub(from);
                last = last.max(to);
            }
        }
        (twice, missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_and_doubles() {
        for (numbers, expect) in [
            (&[&[1, 2, 3][..], &[4, 5]][..], (0, 0)),
            (&[&[1, 2, 9], &[3, 4]], (0, 4)),
            (&[&[1, 2, 3], &[2, 3, 4]], (2, 0)),
            (&[&[1, 2, 3, 4, 5], &[2], &[9]], (1, 3)),
            (&[&[7]], (0, 0)),
        ] {
            let mut seen = Numbers::default();
            for numbers in numbers {
                seen.add(SeriesId([0; 16]), 1, numbers);
            }
            assert_eq!(seen.count(), expect, "{numbers:?}");
        }
    }
}
