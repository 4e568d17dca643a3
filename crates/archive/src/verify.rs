//! Verification of an archive: every file that must exist, every checksum, every count, every
//! number.

mod logs;
mod numbers;
mod suspects;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use barograph_model::{Columns, Span};

use self::logs::UnreadableLogs;
use self::numbers::LifeNumbers;
use self::suspects::{ExistingFiles, Suspects};
use crate::log::LogPart;
use crate::manifest::Manifest;
use crate::open::part_file;
use crate::parquet::{FileIdentity, ParquetPart};
use crate::part::{FilePart, PartKey};
use crate::snapshot::{LOOKS_MAX, NodeFollower, NodeSnapshot, make_room};
use crate::{ArchiveError, ArchiveLayout, Tier};

/// A file with a defect.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Path of the file.
    pub path: PathBuf,
    /// The defect, and its consequence.
    pub what: String,
}

/// The result of a verification.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verified {
    /// Number of files read.
    pub files: u64,
    /// Number of samples read.
    pub samples: u64,
    /// Number of bytes read.
    pub bytes: u64,
    /// Number of samples that were found twice.
    pub twice: u64,
    /// Number of samples that are missing, by holes in the numbers of a life.
    pub missing: u64,
    /// The defects.
    pub findings: Vec<Finding>,
}

impl Verified {
    /// Adds the result for another archive.
    pub fn add(&mut self, other: Self) {
        self.files += other.files;
        self.samples += other.samples;
        self.bytes += other.bytes;
        self.twice += other.twice;
        self.missing += other.missing;
        self.findings.extend(other.findings);
    }
}

/// Reads a whole archive, each node as it is at one moment; `progress` is called with the number of
/// files done and the number of all files. The archive may be written to meanwhile: files that are
/// made, merged or deleted are no defects.
pub fn verify(root: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<Verified, ArchiveError> {
    let mut verified = Verified::default();
    let layouts = ArchiveLayout::nodes(root);
    let mut nodes = Vec::new();
    for layout in layouts.map_err(ArchiveError::io("list the nodes of", root))? {
        // This comes before the manifest is read: files that are made later are not checked.
        let there = ExistingFiles::list(&layout)?;
        let mut follower = NodeFollower::new(layout);
        match follower.follow() {
            Ok(_) => {
                let logs = UnreadableLogs::new(&follower);
                nodes.push((there, logs, follower.node(&mut Vec::new())));
            }
            // The error is of a manifest, or of any file of a later version.
            Err(error) => match &error {
                ArchiveError::Corrupt { path, .. } => {
                    verified.find(path, format!("{error}; the next start makes it anew"));
                }
                ArchiveError::Newer { path, .. } => verified.find(path, error.to_string()),
                _ => return Err(error),
            },
        }
    }
    let files =
        |(_, _, node): &(_, _, NodeSnapshot)| node.sealed.manifest.parts.len() + node.logs.len();
    let all = nodes.iter().map(files).sum::<usize>() as u64;
    for (there, logs, node) in &nodes {
        verified.node(there, logs, node, &mut |done| progress(done, all))?;
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
        there: &ExistingFiles,
        logs: &UnreadableLogs,
        node: &NodeSnapshot,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), ArchiveError> {
        let layout = &node.sealed.layout;
        let mut numbers = LifeNumbers::default();
        let mut suspects = Suspects::new(there, &node.sealed.manifest);
        let parts = node.sealed.manifest.parts.keys();
        let hours: BTreeSet<i64> = parts.map(|key| key.hour).collect();
        for hour in hours {
            self.hour(node, hour, &mut numbers, &mut suspects)?;
            progress(self.files);
        }
        for log in &node.logs {
            self.log(log, &mut numbers);
            progress(self.files);
        }
        logs.check(node, there, &mut suspects)?;
        suspects.settle(layout)?;
        suspects.report(self, layout);
        for path in there.set_aside(layout)? {
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

    /// Checks all files of an hour, which are opened together: none is merged away while another is
    /// read.
    fn hour(
        &mut self,
        node: &NodeSnapshot,
        hour: i64,
        numbers: &mut LifeNumbers,
        suspects: &mut Suspects,
    ) -> Result<(), ArchiveError> {
        let layout = &node.sealed.layout;
        let mut parts = of_hour(node, &node.sealed.manifest, hour);
        for look in 1.. {
            let (mut open, mut gone, mut foreign) = (Vec::new(), Vec::new(), Vec::new());
            make_room(parts.len() as u64);
            for (key, part) in parts {
                let file = match node.sealed.held.get(&key) {
                    Some(file) => file.try_clone(),
                    None => part_file(layout, key),
                };
                match file {
                    Err(error) if error.kind() == ErrorKind::NotFound => gone.push(key),
                    Err(error) if error.kind() == ErrorKind::InvalidInput => {
                        foreign.push((key, error.to_string()));
                    }
                    file => {
                        let path = key.path(layout);
                        open.push((key, part, file.map_err(ArchiveError::io("open", path))?));
                    }
                }
            }
            if !gone.is_empty() && look < LOOKS_MAX {
                let now = Manifest::read(layout)?.unwrap_or_default();
                if gone.iter().any(|key| !now.parts.contains_key(key)) {
                    // The files were merged or deleted: what replaced them has their numbers.
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
        node: &NodeSnapshot,
        (key, part): (PartKey, FilePart),
        file: File,
        numbers: &mut LifeNumbers,
        suspects: &mut Suspects,
    ) -> Result<(), ArchiveError> {
        self.files += 1;
        let path = key.path(&node.sealed.layout);
        let read = ParquetPart::from_file(&path, file).and_then(|open| {
            let rows = open.check()?;
            check_about(node, &key, &part, &open)?;
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
            // A file that the disk cannot read is damaged, and the other files are still checked.
            Err(error @ ArchiveError::Io { .. }) if !is_damage(&error) => return Err(error),
            Err(error) => suspects.parts.push((key, error.to_string())),
        }
        Ok(())
    }

    fn log(&mut self, log: &LogPart, numbers: &mut LifeNumbers) {
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
    }
}

/// Checks that a file is the one in the manifest, to the last byte if its checksum is known.
fn check_about(
    node: &NodeSnapshot,
    key: &PartKey,
    part: &FilePart,
    open: &ParquetPart,
) -> Result<(), ArchiveError> {
    let index = open.index()?;
    let about = FileIdentity {
        node: node.name.to_string(),
        tier: key.tier,
        sequences: (key.first, key.last),
    };
    if index.about != about {
        return Err(open.corrupt("it is another file than its name says"));
    }
    if key.tier == Tier::Raw && index.span() != part.span {
        return Err(open.corrupt("its samples are of another time than the manifest says"));
    }
    match part.crc32 {
        Some(crc32) if open.crc32()? != crc32 => {
            Err(open.corrupt("it does not match the checksum in the manifest"))
        }
        _ => Ok(()),
    }
}

/// Whether the disk could not read its content.
fn is_damage(error: &ArchiveError) -> bool {
    let code = rustix::io::Errno::IO.raw_os_error();
    matches!(error, ArchiveError::Io { source, .. } if source.raw_os_error() == Some(code))
}

/// Returns the files of an hour in a manifest, without those that the node reads from its log.
fn of_hour(node: &NodeSnapshot, manifest: &Manifest, hour: i64) -> Vec<(PartKey, FilePart)> {
    let through = node.sealed.manifest.sealed_through;
    let parts = manifest.parts.iter();
    let parts = parts.filter(|(key, _)| key.hour == hour && key.first <= through);
    parts.map(|(key, part)| (*key, *part)).collect()
}

/// Notes the numbers of a raw file, without those that the node reads from its log; returns how
/// many.
fn samples(
    node: &NodeSnapshot,
    key: PartKey,
    part: &ParquetPart,
    numbers: &mut LifeNumbers,
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
