//! Maps as they are saved in the store of the nodes that may lead.

use std::collections::BTreeSet;

use barograph_control::{EpochChange, EpochRecord, ProcessId, ServerMap};
use serde::{Deserialize, Serialize};

use crate::controller_words::{MapKey, servers_of, servers_text};

/// What a record of a map begins with as a key.
const KEY: &str = "map/";

/// A record as it is saved.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedMap {
    term: u64,
    epoch: u64,
    servers: String,
    last_epoch: u64,
    change: Option<SavedChange>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedChange {
    epoch: u64,
    servers: String,
    is_committed: bool,
}

/// The key of a map in the store.
pub(super) fn key_text(key: &MapKey) -> String {
    format!("{KEY}{}/{}", key.0, key.1)
}

pub(super) fn key_of(text: &str) -> Option<MapKey> {
    let (user, name) = text.strip_prefix(KEY)?.split_once('/')?;
    Some((user.parse().ok()?, name.to_owned()))
}

pub(super) fn text_of(record: &EpochRecord) -> String {
    let text = |servers: &BTreeSet<ProcessId>| {
        let servers = servers.iter().filter_map(|it| u32::try_from(*it).ok());
        servers_text(&servers.collect())
    };
    let saved = SavedMap {
        term: record.term,
        epoch: record.map.epoch,
        servers: text(&record.map.servers),
        last_epoch: record.last_epoch,
        change: record.change.as_ref().map(|change| SavedChange {
            epoch: change.map.epoch,
            servers: text(&change.map.servers),
            is_committed: change.is_committed,
        }),
    };
    serde_json::to_string(&saved).unwrap_or_default()
}

pub(super) fn record_of(text: &str) -> Option<EpochRecord> {
    let saved: SavedMap = serde_json::from_str(text).ok()?;
    let map = |epoch, servers: &str| {
        let servers = servers_of(servers)?.iter().map(ProcessId::from).collect();
        Some(ServerMap { epoch, servers })
    };
    let change = match &saved.change {
        None => None,
        Some(change) => Some(EpochChange {
            map: map(change.epoch, &change.servers)?,
            is_committed: change.is_committed,
        }),
    };
    Some(EpochRecord {
        term: saved.term,
        map: map(saved.epoch, &saved.servers)?,
        last_epoch: saved.last_epoch,
        change,
    })
}
