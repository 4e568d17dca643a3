//! Whether an archive is what it says: every checksum, every count, every number.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use barograph_model::{Columns, SeriesId, Span};

use crate::log::LogPart;
use crate::manifest::{Manifest, Part, PartKey};
use crate::open::regular_file;
use crate::parquet::ParquetPart;
use crate::seal::LogFile;
use crate::snapshot::{Follower, LOOKS_MAX, Node, make_room};
use crate::{ArchiveError, Disk, Layout, Storage as _, Tier, sweep};

/// Most runs of numbers that are compared: beyond it the archive has more holes than that.
const RUNS_MAX: usize = 4 << 20;
/// How often it is looked again whether a file that nobody knows is on its way…
const SETTLE_LOOKS: usize = 20;
/// …and how long it is waited in between: a commit syncs some directories and a manifest.
const SETTLE_PAUSE: Duration = Duration::from_millis(100);

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

/// Reads all of an archive, as it is at one moment of each node; `progress` is told files done and in all. It
/// may be written to meanwhile: what is made, merged or let go is no damage.
pub fn verify(root: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<Verified, ArchiveError> {
    let mut verified = Verified::default();
    let layouts = Layout::nodes(root);
    let mut nodes = Vec::new();
    for layout in layouts.map_err(ArchiveError::io("list the nodes of", root))? {
        let path = layout.manifest();
        // Before the manifest is read: what is made later is not looked at.
        let there = There::list(&layout)?;
        let mut follower = Follower::new(layout);
        match follower.follow() {
            Ok(_) => nodes.push((there, follower.node(&mut Vec::new()))),
            Err(error @ ArchiveError::Corrupt { .. }) => {
                verified.find(&path, format!("{error}; the next start makes it anew"));
            }
            Err(error) => return Err(error),
        }
    }
    let files = |(_, node): &(_, Node)| node.sealed.manifest.parts.len() + node.logs.len();
    let all = nodes.iter().map(files).sum::<usize>() as u64;
    for (there, node) in &nodes {
        verified.node(there, node, &mut |done| progress(done, all))?;
    }
    Ok(verified)
}

impl Verified {
    fn find(&mut self, path: &Path, what: String) {
        let path = path.to_owned();
        self.findings.push(Finding { path, what });
    }

    fn node(
        &mut self,
        there: &There,
        node: &Node,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), ArchiveError> {
        let layout = &node.sealed.layout;
        let mut numbers = Numbers::default();
        let mut suspects = Suspects::new(there, &node.sealed.manifest);
        let parts = node.sealed.manifest.parts.keys();
        let hours: BTreeSet<i64> = parts.map(|key| key.hour).collect();
        for hour in hours {
            self.hour(node, hour, &mut numbers, &mut suspects)?;
            progress(self.files);
        }
        for (at, log) in node.logs.iter().enumerate() {
            let newest = at + 1 == node.logs.len();
            self.log(log, newest, &mut numbers)?;
            progress(self.files);
        }
        suspects.settle(layout)?;
        suspects.report(self, layout);
        for path in there.set_aside()? {
            let what = "was damaged and set aside: remove it when you have looked at it";
            self.find(&path, what.into());
        }
        if numbers.full {
            let what = "has more holes than can be compared: samples that are there twice or missing are not all counted";
            self.find(&layout.node_dir(), what.into());
        }
        let (twice, missing) = numbers.count();
        self.twice += twice;
        self.missing += missing;
        Ok(())
    }

    /// All files of an hour, opened together: none is merged away while another is read.
    fn hour(
        &mut self,
        node: &Node,
        hour: i64,
        numbers: &mut Numbers,
        suspects: &mut Suspects,
    ) -> Result<(), ArchiveError> {
        let layout = &node.sealed.layout;
        let mut parts = of_hour(node, &node.sealed.manifest, hour);
        for look in 1.. {
            let (mut open, mut gone, mut foreign) = (Vec::new(), Vec::new(), Vec::new());
            make_room(parts.len() as u64);
            for (key, part) in parts {
                let path = key.path(layout);
                let file = match node.sealed.held.get(&key) {
                    Some(file) => file.try_clone(),
                    None => regular_file(&path),
                };
                match file {
                    Err(error) if error.kind() == ErrorKind::NotFound => gone.push(key),
                    Err(error) if error.kind() == ErrorKind::InvalidInput => {
                        foreign.push((key, error.to_string()));
                    }
                    file => open.push((key, part, file.map_err(ArchiveError::io("open", path))?)),
                }
            }
            if !gone.is_empty() && look < LOOKS_MAX {
                let now = Manifest::read(&layout.manifest())?.unwrap_or_default();
                if gone.iter().any(|key| !now.parts.contains_key(key)) {
                    // Merged or let go: what took their place has their numbers.
                    parts = of_hour(node, &now, hour);
                    continue;
                }
            }
            let lost = "is gone, and the manifest has it: its rows are lost";
            foreign.extend(gone.into_iter().map(|key| (key, lost.to_owned())));
            self.files += foreign.len() as u64;
            suspects.parts.extend(foreign);
            for (key, part, file) in open {
                self.part(node, (key, part), file, numbers, suspects)?;
            }
            break;
        }
        Ok(())
    }

    fn part(
        &mut self,
        node: &Node,
        (key, part): (PartKey, Part),
        file: File,
        numbers: &mut Numbers,
        suspects: &mut Suspects,
    ) -> Result<(), ArchiveError> {
        self.files += 1;
        let path = key.path(&node.sealed.layout);
        let read = ParquetPart::from_file(&path, file).and_then(|open| {
            let rows = open.check()?;
            if key.tier == Tier::Raw {
                self.samples += samples(node, key, &open, numbers)?;
            }
            Ok((rows, open.bytes()))
        });
        match read {
            Ok((rows, bytes)) => {
                self.bytes += bytes;
                if (rows, bytes) != (part.rows, part.bytes) {
                    let what = format!(
                        "it has {rows} rows in {bytes} bytes, and the manifest says {} in {}",
                        part.rows, part.bytes
                    );
                    suspects.parts.push((key, what));
                }
            }
            Err(error @ ArchiveError::Io { .. }) => return Err(error),
            Err(error) => suspects.parts.push((key, error.to_string())),
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
}

/// What a manifest has of an hour, as far as the node has not got it from its log.
fn of_hour(node: &Node, manifest: &Manifest, hour: i64) -> Vec<(PartKey, Part)> {
    let through = node.sealed.manifest.sealed_through;
    let parts = manifest.parts.iter();
    let parts = parts.filter(|(key, _)| key.hour == hour && key.first <= through);
    parts.map(|(key, part)| (*key, *part)).collect()
}

/// Notes the numbers of a raw file, without those that the node has from its log; how many.
fn samples(
    node: &Node,
    key: PartKey,
    part: &ParquetPart,
    numbers: &mut Numbers,
) -> Result<u64, ArchiveError> {
    let index = part.index()?;
    let beyond = key.last > node.sealed.manifest.sealed_through;
    let cancel = AtomicBool::new(false);
    let mut count = 0;
    let mut each = |at: usize, life, mut columns: Columns| {
        let id = index.series[at].id;
        if beyond {
            node.cut_beyond(id, life, &mut columns);
        }
        count += columns.len() as u64;
        numbers.add(id, life, &columns.numbers);
        Ok(())
    };
    part.read(&|_| true, Span::ALL, &cancel, &mut each)?;
    Ok(count)
}

/// The files of a node that are there, whoever knows of them; those that are being made, at their temporary
/// place, are none.
struct There {
    parts: Vec<(PathBuf, PartKey)>,
    logs: Vec<LogFile>,
    dirs: BTreeSet<PathBuf>,
}

impl There {
    fn list(layout: &Layout) -> Result<Self, ArchiveError> {
        let logs = sweep::logs(layout, &Disk)?;
        let parts = sweep::parquet_files(layout, &Disk)?;
        let dirs = parts.iter().filter_map(|(path, _)| path.parent());
        let dirs = dirs.map(Path::to_owned);
        let own = [layout.node_dir(), layout.log_dir()];
        Ok(Self {
            dirs: dirs.chain(own).collect(),
            parts,
            logs,
        })
    }

    /// Files that were set aside in the directories of the others, now.
    fn set_aside(&self) -> Result<Vec<PathBuf>, ArchiveError> {
        let mut found = Vec::new();
        for dir in &self.dirs {
            // A directory that is empty goes with what was in it.
            let paths = Disk.list(dir).map_err(ArchiveError::io("list", dir))?;
            let bad = |path: &PathBuf| path.extension().is_some_and(|e| e == "bad");
            found.extend(paths.into_iter().filter(bad));
        }
        Ok(found)
    }
}

/// What is wrong unless the writer was at work, which a manifest that is read later tells.
struct Suspects {
    /// Files that the manifest has, and what is wrong with them.
    parts: Vec<(PartKey, String)>,
    /// Files that it does not have: left by a crash, or on their way into it or out of the archive.
    unknown: Vec<(PathBuf, PartKey)>,
    /// Log segments that are sealed: left by a crash, or about to be removed.
    sealed: Vec<LogFile>,
}

impl Suspects {
    fn new(there: &There, manifest: &Manifest) -> Self {
        let unknown = there.parts.iter();
        let unknown = unknown.filter(|(_, key)| !manifest.parts.contains_key(key));
        let sealed = there.logs.iter();
        let sealed = sealed.filter(|log| log.sequence <= manifest.sealed_through);
        Self {
            parts: Vec::new(),
            unknown: unknown.cloned().collect(),
            sealed: sealed.cloned().collect(),
        }
    }

    /// Looks again, and once more for as long as a commit may take, at what the writer may be at work on.
    fn settle(&mut self, layout: &Layout) -> Result<(), ArchiveError> {
        for look in 0..SETTLE_LOOKS {
            if look > 0 {
                std::thread::sleep(SETTLE_PAUSE);
            }
            let now = Manifest::read(&layout.manifest())?.unwrap_or_default();
            // One that was merged or let go meanwhile counts no more; what was set aside is told as that.
            self.parts.retain(|(key, _)| now.parts.contains_key(key));
            self.unknown
                .retain(|(path, key)| !now.parts.contains_key(key) && path.exists());
            self.sealed.retain(|log| log.path.exists());
            if self.unknown.is_empty() && self.sealed.is_empty() {
                break;
            }
        }
        Ok(())
    }

    fn report(self, verified: &mut Verified, layout: &Layout) {
        for (key, what) in self.parts {
            verified.find(&key.path(layout), what);
        }
        let left = "was left by a crash; the next start removes it";
        for (path, _) in self.unknown {
            verified.find(&path, format!("is not in the manifest: it {left}"));
        }
        for log in self.sealed {
            verified.find(&log.path, format!("is sealed: it {left}"));
        }
    }
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
