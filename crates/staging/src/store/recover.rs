//! What a former life of the server has left in the tiers below memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::state::{Entry, State};
use crate::block::UserId;
use crate::error::StagingError;
use crate::key::BlockKey;
use crate::tier::{FileCopy, LowerTier};

/// The copies of each block.
type Found = BTreeMap<(UserId, BlockKey), Vec<Arc<FileCopy>>>;

/// Looks at all tiers and takes in what is there. Of several versions of a block the newest
/// holds.
pub(crate) fn recover(
    tiers: &[Arc<LowerTier>],
    state: &mut State,
    now_ns: i64,
) -> Result<(), StagingError> {
    let mut all = Found::new();
    let mut is_clean = true;
    for (index, tier) in tiers.iter().enumerate() {
        let scanned = tier.scan(index).map_err(|source| StagingError::Path {
            what: "read the tier",
            path: tier.name.clone().into(),
            source,
        });
        let (found, counts) = scanned?;
        state.counts.found += counts.found;
        state.counts.torn += counts.torn;
        // A tier that is empty has nothing that could be old.
        state.joined_epoch = state.joined_epoch.max(counts.clean_epoch.unwrap_or(0));
        is_clean &= counts.clean_epoch.is_some() || (counts.found == 0 && counts.torn == 0);
        for copy in found {
            let key = (copy.head.user, copy.head.key.clone());
            all.entry(key).or_default().push(Arc::new(copy));
        }
    }
    let is_empty = all.is_empty() && state.counts.torn == 0;
    state.may_have_lost = !is_clean && !is_empty;
    for ((user, key), files) in all {
        take_in(tiers, state, (user, key), files, now_ns);
    }
    Ok(())
}

fn take_in(
    tiers: &[Arc<LowerTier>],
    state: &mut State,
    (user, key): (UserId, BlockKey),
    files: Vec<Arc<FileCopy>>,
    now_ns: i64,
) {
    let newest = files.iter().max_by_key(|copy| copy.head.version);
    let Some(head) = newest.map(|copy| copy.head.clone()) else {
        return;
    };
    let is_same = |copy: &Arc<FileCopy>| {
        let other = &copy.head;
        (other.version, other.bytes, other.checksum) == (head.version, head.bytes, head.checksum)
    };
    // A store may have taken an object that it did not acknowledge, which was written again then.
    let mut last_tier = None;
    let (files, older): (Vec<_>, Vec<_>) = files
        .into_iter()
        .partition(|copy| is_same(copy) && last_tier.replace(copy.tier) != Some(copy.tier));
    for copy in older {
        state.counts.superseded += 1;
        let removed = tiers[copy.tier].remove_later(&copy, now_ns);
        state.counts.left_behind += u64::from(removed.is_err());
    }
    let makes_clean = |copy: &Arc<FileCopy>| tiers[copy.tier].is_durable();
    let is_dirty = tiers.iter().any(|tier| tier.is_durable()) && !files.iter().any(makes_clean);
    let mut entry = Entry {
        serial: state.serial(),
        version: head.version,
        bytes: head.bytes,
        checksum: head.checksum,
        epoch: head.epoch,
        refetch_us: head.refetch_us,
        is_recovered: state.may_have_lost,
        dirty: None,
        is_moving: false,
        memory: None,
        files: Vec::new(),
        previous: None,
        used_ns: now_ns,
        uses: 0,
    };
    for copy in files {
        entry.add_file(copy);
    }
    let key = Arc::new(key);
    let blocks = state.users.entry(user).or_default();
    blocks.blocks.insert(Arc::clone(&key), entry);
    if is_dirty {
        state.dirty.add(user, head.bytes);
        state.queue_dirty(user, &key);
    }
}
