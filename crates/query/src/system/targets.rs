//! The table `targets`: where data can be put on this node and on mirrored ones, with what is known
//! of each place now.

use std::sync::Arc;

use rusqlite::Result;

use crate::error::failed;
use crate::latest::predicted;
use crate::listing::{Arguments, Batches, one, table};
use crate::live::Live;
use crate::shape::age_ns;
use crate::stream::SnapshotStream;
use crate::targets::{StorageTarget, TargetFact, TargetValue, says_of_targets, storage_targets};

pub(super) fn targets(live: &Arc<Live>, _: &Arguments) -> Result<Batches> {
    let snapshot = live.attend().map_err(failed)?;
    let now_ns = live.now_ns();
    let said = snapshot.streams.iter();
    let said = said.filter(|stream| says_of_targets(stream.name()));
    let facts = said.filter_map(|stream| {
        let (sample, _) = stream.latest()?;
        let looked_ns = stream.looked_ns(sample.ts);
        let predicted = predicted(&snapshot, stream, now_ns);
        let value = TargetValue::of(&sample, looked_ns, predicted.as_ref())?;
        Some(fact(stream, value))
    });
    let targets = storage_targets(facts);
    Ok(one(targets.iter().map(|it| row(it, now_ns)).collect()))
}

fn fact(stream: &SnapshotStream, value: TargetValue) -> TargetFact<'_> {
    TargetFact {
        node: &stream.node,
        descriptor: &stream.entry.descriptor,
        value,
    }
}

fn value(of: Option<TargetValue>) -> Option<f64> {
    of.map(|it| it.value)
}

fn age(of: Option<TargetValue>, now_ns: i64) -> Option<i64> {
    of.map(|it| age_ns(now_ns, it.looked_ns))
}

table! {
    TARGETS_COLUMNS, fn row(target: &StorageTarget, now_ns: i64),
    "node" "TEXT" = target.node.as_str();
    "mount" "TEXT" = target.mount.as_str();
    "tier" "TEXT" = target.tier.as_str();
    "device" "TEXT" = target.device.as_str();
    "fstype" "TEXT" = target.fstype.as_str();
    "disks" "TEXT" = target.disks.join(",");
    "writable" "INTEGER" = i64::from(target.is_writable);
    "responding" "INTEGER" = i64::from(target.is_responding);
    "capacity_bytes" "REAL" = value(target.capacity_bytes);
    "free_bytes" "REAL" = value(target.free_bytes);
    "free_age_ns" "INTEGER" = age(target.free_bytes, now_ns);
    "free_predicted_bytes" "REAL" = target.free_bytes.and_then(|it| it.predicted).map(|it| it.0);
    "free_predicted_error" "REAL" = target.free_bytes.and_then(|it| it.predicted).map(|it| it.1);
    "queue_bytes" "REAL" = value(target.queue_bytes);
    "queue_age_ns" "INTEGER" = age(target.queue_bytes, now_ns);
    "read_bytes_s" "REAL" = value(target.read_bytes_s);
    "read_error" "REAL" = target.read_bytes_s.map(|it| it.error);
    "read_age_ns" "INTEGER" = age(target.read_bytes_s, now_ns);
    "write_bytes_s" "REAL" = value(target.write_bytes_s);
    "write_age_ns" "INTEGER" = age(target.write_bytes_s, now_ns);
    "bandwidth_basis" "TEXT" = target.bandwidth_basis;
    "health" "REAL" = value(target.health);
    "health_age_ns" "INTEGER" = age(target.health, now_ns);
}
