//! The list of copies that count: one beside the copies of each hour, for programs that read the
//! copies directly.
//!
//! An object store changes one object at a time, so a merged file and its sources all exist for a
//! while. The list names either the one or the others: it is an object too, and is replaced in one
//! step. The names of files contain the numbers of their log segments, which show whether one file
//! is within another.

use object_store::path::Path as Key;
use object_store::{Error, ObjectStore, ObjectStoreExt as _};
use serde::{Deserialize, Serialize};

/// Spark, Trino and others ignore files whose names begin with an underscore.
const NAME: &str = "_files.json";
/// Largest list that is read, in bytes: an hour has a file or two, and hundreds if it was filled in
/// late.
const BYTES_MAX: u64 = 4 << 20;

/// A copy that counts.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
struct Entry {
    /// Path of the copy, relative to the target.
    path: String,
    bytes: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum CopyChange {
    /// The copy is complete, and replaces the copies that are within it.
    Counts { bytes: u64 },
    /// The copy is about to be deleted.
    Goes,
}

/// Updates the list of an hour for a change of the copy `path`, relative to the target, at `key`.
/// Files that are not named like those of an archive are not listed.
pub(super) async fn update(
    store: &dyn ObjectStore,
    key: &Key,
    path: &str,
    change: CopyChange,
) -> object_store::Result<()> {
    let Some((folder, _)) = path.rsplit_once('/').filter(|_| segments(path).is_some()) else {
        return Ok(());
    };
    let mut parts: Vec<_> = key.parts().collect();
    parts.pop();
    let place = Key::from_iter(parts);
    let list = place.clone().join(NAME);
    let known = read(store, &list).await?;
    let mut entries = match &known {
        Some(entries) => entries.clone(),
        None => there(store, &place, folder).await?,
    };
    entries.retain(|entry| entry.path != path);
    if let CopyChange::Counts { bytes } = change {
        let path = path.to_owned();
        entries.push(Entry { path, bytes });
    }
    let all = entries.clone();
    entries.retain(|entry| !all.iter().any(|other| is_within(&entry.path, &other.path)));
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    if known.as_ref() == Some(&entries) {
        return Ok(());
    }
    let text = serde_json::to_vec_pretty(&entries).expect("texts and numbers are JSON");
    store.put(&list, text.into()).await.map(drop)
}

/// Reads the list; `None` if there is none, or if it cannot be understood.
async fn read(store: &dyn ObjectStore, list: &Key) -> object_store::Result<Option<Vec<Entry>>> {
    let found = match store.get(list).await {
        Err(Error::NotFound { .. }) => return Ok(None),
        found => found?,
    };
    if found.meta.size > BYTES_MAX {
        return Ok(None);
    }
    let bytes = found.bytes().await?;
    Ok(serde_json::from_slice(&bytes).ok())
}

/// Returns all copies that exist.
async fn there(
    store: &dyn ObjectStore,
    place: &Key,
    folder: &str,
) -> object_store::Result<Vec<Entry>> {
    let found = store.list_with_delimiter(Some(place)).await?;
    let entry = |object: object_store::ObjectMeta| {
        let path = format!("{folder}/{}", object.location.filename()?);
        segments(&path).is_some().then_some(Entry {
            path,
            bytes: object.size,
        })
    };
    Ok(found.objects.into_iter().filter_map(entry).collect())
}

/// Returns the first and last log segment in a file, and the first of its hours if it holds
/// several.
fn segments(path: &str) -> Option<(u64, u64, &str)> {
    let name = path.rsplit('/').next()?.strip_suffix(".parquet")?;
    let (first, rest) = name.split_once('-')?;
    let (last, hours) = rest.split_once('-').unwrap_or((rest, ""));
    Some((first.parse().ok()?, last.parse().ok()?, hours))
}

/// Whether all rows of one file are in another.
fn is_within(path: &str, other: &str) -> bool {
    let (Some(of), Some(in_other)) = (segments(path), segments(other)) else {
        return false;
    };
    path != other && of.2 == in_other.2 && in_other.0 <= of.0 && of.1 <= in_other.1
}
