//! The start of an archive: which manifest is in force, and which files it does not list.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::context::SealerContext;
use crate::layout::{of_waiting_dir, several};
use crate::manifest::{Manifest, add_series};
use crate::parquet::ParquetPart;
use crate::part::{FilePart, PartKey};
use crate::{ArchiveError, ArchiveLayout, ArchivedUpTo, Storage, Tier, open, swap};

/// Reads the manifest. A damaged one is set aside and rebuilt from the files: only what the
/// manifest alone knew is lost (earlier losses, which copies are made).
pub(crate) fn start(
    layout: &ArchiveLayout,
    node: &str,
    storage: &dyn Storage,
) -> Result<Manifest, ArchiveError> {
    let dirs = [layout.node_dir(), layout.log_dir(), layout.tmp_dir()];
    for dir in &dirs {
        storage
            .make_dir(dir)
            .map_err(ArchiveError::io("make", dir))?;
    }
    let path = layout.manifest();
    match Manifest::read(layout) {
        Ok(Some(manifest)) => Ok(manifest),
        Ok(None) => {
            let manifest = rebuild(layout, node, storage)?;
            manifest.prepare(layout, storage)?;
            Manifest::publish(layout, storage)?;
            Ok(manifest)
        }
        Err(error @ ArchiveError::Corrupt { .. }) => {
            tracing::error!("{error}: it is made anew from the files");
            let mut manifest = rebuild(layout, node, storage)?;
            manifest.losses.corrupt_files += 1;
            storage
                .rename(&path, &bad(&path))
                .map_err(ArchiveError::io("set aside", &path))?;
            manifest.prepare(layout, storage)?;
            Manifest::publish(layout, storage)?;
            Ok(manifest)
        }
        Err(error) => Err(error),
    }
}

/// The file of a log segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogFile {
    pub(crate) sequence: u64,
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
}

/// Returns the log segments of a node, in order.
pub(crate) fn logs(
    layout: &ArchiveLayout,
    storage: &dyn Storage,
) -> Result<Vec<LogFile>, ArchiveError> {
    let dir = layout.log_dir();
    let paths = storage.list(&dir).map_err(ArchiveError::io("list", &dir))?;
    let log = |path: PathBuf| {
        let sequence = path.file_stem()?.to_str()?.parse().ok()?;
        // Names that are not exactly ours are ignored.
        (layout.log(sequence) == path).then_some(())?;
        let bytes = std::fs::metadata(&path).map_or(0, |meta| meta.len());
        Some(LogFile {
            sequence,
            path,
            bytes,
        })
    };
    Ok(paths.into_iter().filter_map(log).collect())
}

/// Returns the path at which a damaged file is kept.
pub(crate) fn bad(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".bad");
    name.into()
}

/// Finishes exchanges, and deletes what a crash or a failure left: unfinished files, log segments
/// that are sealed, Parquet files that do not count. Removes missing files from `manifest`; returns
/// whether there were any.
pub(crate) fn sweep(
    context: &SealerContext,
    manifest: &mut Manifest,
) -> Result<bool, ArchiveError> {
    let (layout, storage) = (&context.layout, &*context.storage);
    open::check_ours(layout)?;
    let unlink = |path: &Path| {
        let unlinked = storage.unlink(path);
        unlinked.map_err(ArchiveError::io("remove", path))
    };
    let tmp = layout.tmp_dir();
    for path in list(storage, &tmp)? {
        if of_waiting_dir(&path).is_some() {
            let finished = swap::finish(storage, layout, manifest, &path);
            finished.map_err(ArchiveError::io("exchange", &path))?;
        } else {
            unlink(&path)?;
        }
    }
    for log in logs(layout, storage)? {
        if log.sequence <= manifest.sealed_through {
            unlink(&log.path)?;
        }
    }
    let known: BTreeMap<PathBuf, PartKey> = manifest
        .parts
        .keys()
        .map(|key| (key.path(layout), *key))
        .collect();
    let mut there = BTreeSet::new();
    for (path, key) in parquet_files(layout, storage)? {
        if known.contains_key(&path) {
            there.insert(key);
            continue;
        }
        unlink(&path)?;
        for dir in path.ancestors().skip(1).take(2) {
            // A directory that is not empty stays.
            let _ = storage.remove_dir(dir);
        }
    }
    let mut changed = false;
    for (path, key) in known {
        if !there.contains(&key) {
            tracing::error!("{} is gone: it was removed by other hands", path.display());
            changed = true;
            let Some(part) = manifest.parts.remove(&key) else {
                continue;
            };
            if key.tier == Tier::Raw {
                manifest.losses.shed_samples += part.rows;
            }
            if !part.copied {
                manifest.keep_copies_of(&key);
            }
        }
    }
    Ok(changed)
}

/// Rebuilds a manifest from the files alone.
pub(crate) fn rebuild(
    layout: &ArchiveLayout,
    node: &str,
    storage: &dyn Storage,
) -> Result<Manifest, ArchiveError> {
    let mut manifest = Manifest::new(node);
    let logs: BTreeSet<u64> = logs(layout, storage)?
        .iter()
        .map(|log| log.sequence)
        .collect();
    let mut files = parquet_files(layout, storage)?;
    // Log segments are deleted after the commit of the file that was made of them: a file whose
    // segments all still exist was not committed, or need not be.
    files.retain(|(_, key)| !(key.first..=key.last).all(|sequence| logs.contains(&sequence)));
    // A merged file covers the files that it was made of, so it comes first.
    files.sort_by_key(|(_, key)| (key.tier, key.hour, key.first, u64::MAX - key.last));
    let mut last: Option<PartKey> = None;
    for (path, key) in files {
        let same = |last: &PartKey| last.tier == key.tier && last.hour == key.hour;
        if last.is_some_and(|last| same(&last) && key.first <= last.last) {
            continue;
        }
        let added = ParquetPart::open(&path).and_then(|part| add(&mut manifest, key, &part));
        match added {
            Ok(()) => last = Some(key),
            Err(error @ ArchiveError::Corrupt { .. }) => {
                tracing::error!("{error}: set aside");
                manifest.losses.corrupt_files += 1;
                let set_aside = storage.rename(&path, &bad(&path));
                set_aside.map_err(ArchiveError::io("set aside", &path))?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(manifest)
}

/// Adds a file to a manifest by what its index contains.
fn add(manifest: &mut Manifest, key: PartKey, part: &ParquetPart) -> Result<(), ArchiveError> {
    let index = part.index()?;
    let about = &index.about;
    if about.sequences != (key.first, key.last) || about.tier != key.tier {
        let reason = "it is another file than its name says";
        return Err(ArchiveError::corrupt(part.path(), reason, 0));
    }
    // The raw file of a set comes first: its times are exact to the nanosecond, and a tier adds
    // nothing.
    let raw = manifest.parts.get(&key.of(Tier::Raw)).copied();
    let span = raw.map_or(index.span(), |raw| raw.span);
    if span.from > span.to {
        return Ok(());
    }
    let kept = FilePart {
        rows: index.rows(),
        bytes: part.bytes(),
        span,
        copied: false,
        crc32: None,
    };
    manifest.parts.insert(key, kept);
    manifest.sealed_through = manifest.sealed_through.max(key.last);
    for series in index.series.iter().filter(|_| raw.is_none()) {
        // Tiers have no lives: a series that only they hold is archived without a number.
        let lives = series.lives.iter().map(|life| ArchivedUpTo {
            life: life.life,
            number: life.last,
        });
        let archived = lives.max().unwrap_or_default();
        add_series(
            &mut manifest.series,
            series.id,
            &series.descriptor,
            Some(series.span),
            archived,
        );
    }
    Ok(())
}

/// Returns every Parquet file of the node that has one of our names.
pub(crate) fn parquet_files(
    layout: &ArchiveLayout,
    storage: &dyn Storage,
) -> Result<Vec<(PathBuf, PartKey)>, ArchiveError> {
    let mut files = Vec::new();
    for tier in Tier::ALL {
        for hour in hour_dirs(layout, tier, storage)? {
            let here = list(storage, &hour)?;
            let ours = here.into_iter().filter_map(|path| {
                let key = key_of(layout, tier, &path)?;
                Some((path, key))
            });
            files.extend(ours);
        }
    }
    Ok(files)
}

/// Returns the directories that contain a node's files of a tier.
pub(crate) fn hour_dirs(
    layout: &ArchiveLayout,
    tier: Tier,
    storage: &dyn Storage,
) -> Result<Vec<PathBuf>, ArchiveError> {
    let hour = layout.root().join(layout.partition(tier, 0));
    // The partition is of an hour; the node's directory is two levels up.
    let node = hour.ancestors().nth(2).unwrap_or(layout.root());
    let mut dirs = Vec::new();
    for date in list(storage, node)? {
        dirs.extend(list(storage, &date)?);
    }
    Ok(dirs)
}

/// Returns the key in the name of a file, if it is one of ours at its place.
fn key_of(layout: &ArchiveLayout, tier: Tier, path: &Path) -> Option<PartKey> {
    // The words are the first and the last sequence and, for a file of several hours, the first of
    // its hours.
    let mut words = path.file_stem()?.to_str()?.splitn(3, '-');
    let (first, last) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let key = PartKey {
        first,
        last,
        hour: match words.next() {
            Some(hour) => several(hour.parse().ok()?),
            None => hour_of(path)?,
        },
        tier,
    };
    (key.path(layout) == path && key.first <= key.last).then_some(key)
}

/// Returns the hour that a file's directories name, since the epoch.
fn hour_of(path: &Path) -> Option<i64> {
    let mut dirs = path.ancestors().skip(1).map(|dir| dir.file_name());
    let hour = dirs.next()??.to_str()?.strip_prefix("hour=")?;
    let date = dirs.next()??.to_str()?.strip_prefix("date=")?;
    let date: jiff::civil::Date = date.parse().ok()?;
    let midnight = date.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp();
    Some(midnight.as_second().div_euclid(3_600) + hour.parse::<i64>().ok()?)
}

/// Returns the paths in a directory; none if there is no such directory.
pub(crate) fn list(storage: &dyn Storage, dir: &Path) -> Result<Vec<PathBuf>, ArchiveError> {
    match storage.list(dir) {
        // A file that is not ours stands where a directory is expected.
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => Ok(Vec::new()),
        result => result.map_err(ArchiveError::io("list", dir)),
    }
}
