//! One array: the facts of its files, or of the list where it has no files.

use crate::SourceBatch;
use crate::SourceError;
use crate::fact::{FactSet, facts};
use crate::util::faults::Faults;
use crate::util::file::{HeldFile, SysRoot};
use crate::util::parse::{cut, escape, lines, number, sole_number, sole_text, words};
use crate::util::roster::Roster;

use super::mdstat::{ArraySync, ListedArray, MemberRole, share};

/// Most members of one array; version 1 metadata has room for 384.
const MEMBERS_MAX: usize = 384;
/// Longest text of md, in bytes: its texts are words, so a longer one is something else.
const TEXT_BYTES_MAX: usize = 100;
/// The kernel cuts a list of bad blocks at the end of a page, mostly within a line.
const PAGE_BYTES: usize = 4096;

facts! {
    /// Facts of one array.
    pub(crate) enum Fact in "raid" {
        Level: State Text "level.name" "name" "RAID level, such as raid6.";
        State: State Text "state.name" "name" "State of the array as the kernel reports it: clean, active, inactive, readonly, broken and others.";
        Devices: State Int "devices.count" "count" "Members of the array when it is complete.";
        Active: Gauge Int "active.count" "count" "Members that are active and in sync.";
        Failed: Gauge Int "failed.count" "count" "Members that failed and have not been removed yet.";
        Spare: Gauge Int "spare.count" "count" "Spare members.";
        Degraded: Gauge Int "degraded.count" "count" "Members that are missing or not in sync, for levels with redundancy.";
        Replication: Gauge Int "replication.count" "count" "Smallest number of member failures that loses data: 1 without redundancy, 0 if data is lost already.";
        SyncAction: State Text "sync.action.name" "name" "Synchronisation in progress: idle, resync, recover, check, repair, reshape or frozen.";
        SyncRatio: Gauge Float "sync.ratio" "ratio" "Share of the present synchronisation that is complete.";
        SyncRate: Gauge Float "sync.bytes_per_second" "bytes/s" "Speed of the present synchronisation, averaged by the kernel.";
        Mismatch: Gauge Int "mismatch.count" "count" "Sectors that the last check or repair found inconsistent.";
    }
}

facts! {
    /// Facts of one member of an array.
    pub(crate) enum MemberFact in "raid.member" {
        State: State Text "state.name" "name" "States of the member as the kernel reports them, separated by commas: in_sync, spare, faulty, write_error and others.";
        Errors: Counter Int "errors.count" "count" "Approximate number of read errors that the array corrected on this member.";
        BadBlocks: Gauge Int "bad.blocks" "blocks" "Sectors of 512 bytes on the member's list of bad blocks.";
    }
}

/// An array that is followed.
pub(super) struct Array {
    pub(super) label: String,
    facts: FactSet<Fact>,
    files: Files,
    members: Roster<Follow>,
    /// The description for the report.
    pub(super) summary: Summary,
}

/// The report's data about an array.
#[derive(Default)]
pub(super) struct Summary {
    pub(super) level: String,
    pub(super) active: Option<u64>,
    pub(super) devices: Option<u64>,
    pub(super) action: String,
    /// Whether the array's directory in `/sys` can be read.
    pub(super) sysfs_seen: bool,
    pub(super) members_refused: usize,
}

struct Files {
    state: HeldFile,
    disks: HeldFile,
    degraded: HeldFile,
    layout: HeldFile,
    action: HeldFile,
    completed: HeldFile,
    speed: HeldFile,
    mismatch: HeldFile,
    metadata: HeldFile,
}

/// A member that is followed.
pub(super) struct Follow {
    facts: FactSet<MemberFact>,
    state: HeldFile,
    errors: HeldFile,
    bad_blocks: HeldFile,
    /// Whether the list of bad blocks is longer than the kernel gives.
    pub(super) bad_blocks_cut: bool,
}

impl Array {
    pub(super) fn new(name: &[u8], root: &SysRoot) -> Result<Self, SourceError> {
        let label = escape(name);
        let dir = format!("sys/block/{}/md", label.replace('/', "!"));
        let file = |name: &str| root.short_records(&format!("{dir}/{name}"));
        Ok(Self {
            facts: FactSet::labelled([("device", label.clone())])?,
            files: Files {
                state: file("array_state"),
                disks: file("raid_disks"),
                degraded: file("degraded"),
                layout: file("layout"),
                action: file("sync_action"),
                completed: file("sync_completed"),
                speed: file("sync_speed"),
                mismatch: file("mismatch_cnt"),
                metadata: file("metadata_version"),
            },
            members: Roster::new(MEMBERS_MAX),
            summary: Summary::default(),
            label,
        })
    }

    /// Reads the files of the array, and puts the facts of these and of the list.
    pub(super) fn put(
        &mut self,
        now_ns: i64,
        batch: &mut SourceBatch,
        listed: &ListedArray<'_>,
        bytes: &mut Vec<u8>,
        faults: &mut Faults,
    ) {
        let (files, facts) = (&mut self.files, &mut self.facts);
        let state = word(&mut files.state, bytes, faults);
        self.summary.sysfs_seen = state.is_some();
        let by_list = if listed.active { "active" } else { "inactive" };
        let state = state.unwrap_or(by_list);
        let runs = listed.active && !matches!(state, "inactive" | "clear");
        let broken = state == "broken";
        facts.text(batch, now_ns, Fact::State, state);
        let level = listed.level.unwrap_or("");
        if !level.is_empty() {
            facts.text(batch, now_ns, Fact::Level, level);
        }
        // During a reshape the previous number follows in brackets: `6 (5)`.
        let wanted = word(&mut files.disks, bytes, faults)
            .and_then(|text| words(text.as_bytes()).number())
            .or(listed.disks.map(|(wanted, _)| wanted));
        let degraded = sole(&mut files.degraded, bytes, faults);
        let failed = listed.count(MemberRole::Failed);
        let active = degraded
            .and_then(|degraded| wanted?.checked_sub(degraded))
            .or(listed.disks.map(|(_, placed)| placed))
            .or_else(|| {
                (listed.whole && degraded.is_none()).then(|| listed.count(MemberRole::Placed))
            })
            .filter(|_| runs);
        let copies = match level {
            "raid10" => sole(&mut files.layout, bytes, faults).and_then(raid10_copies),
            _ => None,
        };
        let replication = match (runs, broken) {
            (false, _) => None,
            (true, true) => Some(0),
            (true, false) => replication(level, copies, wanted, active, failed),
        };
        let counts = [
            (Fact::Devices, wanted),
            (Fact::Active, active),
            (Fact::Failed, Some(failed)),
            (Fact::Spare, Some(listed.count(MemberRole::Spare))),
            (Fact::Degraded, degraded),
            (Fact::Replication, replication),
            (Fact::Mismatch, sole(&mut files.mismatch, bytes, faults)),
        ];
        for (fact, value) in counts {
            match value {
                Some(value) => facts.count(batch, now_ns, fact, value),
                None => facts.retire_one(batch, fact),
            }
        }
        self.summary.devices = wanted;
        self.summary.active = active;
        self.summary.level.clear();
        self.summary.level.push_str(level);
        self.put_sync(now_ns, batch, listed, bytes, faults);
    }

    fn put_sync(
        &mut self,
        now_ns: i64,
        batch: &mut SourceBatch,
        listed: &ListedArray<'_>,
        bytes: &mut Vec<u8>,
        faults: &mut Faults,
    ) {
        let (files, facts) = (&mut self.files, &mut self.facts);
        self.summary.action.clear();
        // A level without redundancy has no sync in the list, and nothing to sync.
        let by_list = match listed.sync {
            Some(ArraySync { action, .. }) => Some(action),
            None => (listed.whole && listed.disks.is_some()).then_some("idle"),
        };
        if let Some(action) = word(&mut files.action, bytes, faults).or(by_list) {
            facts.text(batch, now_ns, Fact::SyncAction, action);
            self.summary.action.push_str(action);
        }
        let ratio = match word(&mut files.completed, bytes, faults) {
            Some(text) => completed(text),
            None => listed.sync.and_then(|sync| sync.ratio),
        };
        let speed = match word(&mut files.speed, bytes, faults) {
            Some(text) => number(text.as_bytes()).map(|kibibytes| kibibytes as f64 * 1024.0),
            None => listed.sync.and_then(|sync| sync.bytes_per_second),
        };
        let speed = speed.filter(|_| ratio.is_some());
        for (fact, value) in [(Fact::SyncRatio, ratio), (Fact::SyncRate, speed)] {
            match value {
                Some(value) => facts.measured(batch, now_ns, fact, value),
                None => facts.retire_one(batch, fact),
            }
        }
    }

    /// Reads the files of the members. If `all_listed`, members that are not listed are gone.
    pub(super) fn put_members(
        &mut self,
        now_ns: i64,
        batch: &mut SourceBatch,
        listed: &ListedArray<'_>,
        root: &SysRoot,
        bytes: &mut Vec<u8>,
        faults: &mut Faults,
    ) {
        // Metadata of version 0.90, and that of other formats, has no list of bad blocks.
        let has_list =
            word(&mut self.files.metadata, bytes, faults).is_some_and(|v| v.starts_with("1."));
        let label = &self.label;
        self.members.begin();
        for member in listed.members() {
            let make = || Follow::new(label, member.name, root).ok();
            if let Some(follow) = self.members.visit(member.name, make) {
                follow.put(now_ns, batch, has_list, bytes, faults);
            }
        }
        self.members.sweep(|member| member.facts.retire(batch));
        self.summary.members_refused = self.members.refused();
    }

    /// The members whose lists of bad blocks are longer than the kernel gives.
    pub(super) fn members_cut(&self) -> impl Iterator<Item = &[u8]> {
        let cut = self.members.iter().filter(|(_, m)| m.bad_blocks_cut);
        cut.map(|(name, _)| name)
    }

    pub(super) fn retire(&mut self, batch: &mut SourceBatch) {
        self.facts.retire(batch);
        for (_, member) in self.members.iter_mut() {
            member.facts.retire(batch);
        }
    }
}

impl Follow {
    fn new(array: &str, name: &[u8], root: &SysRoot) -> Result<Self, SourceError> {
        let label = escape(name);
        let (block, member) = (array.replace('/', "!"), label.replace('/', "!"));
        let file =
            |name: &str| root.short_records(&format!("sys/block/{block}/md/dev-{member}/{name}"));
        Ok(Self {
            facts: FactSet::labelled([("device", array.to_owned()), ("member", label)])?,
            state: file("state"),
            errors: file("errors"),
            bad_blocks: file("bad_blocks"),
            bad_blocks_cut: false,
        })
    }

    fn put(
        &mut self,
        now_ns: i64,
        batch: &mut SourceBatch,
        has_list: bool,
        bytes: &mut Vec<u8>,
        faults: &mut Faults,
    ) {
        if let Some(state) = word(&mut self.state, bytes, faults) {
            self.facts.text(batch, now_ns, MemberFact::State, state);
        }
        // The next two files are not held open, since many members would need many descriptors.
        if self.errors.read_and_close(bytes).is_ok()
            && let Some(errors) = sole_number(bytes)
        {
            self.facts.count(batch, now_ns, MemberFact::Errors, errors);
        }
        self.bad_blocks_cut = false;
        if has_list && self.bad_blocks.read_and_close(bytes).is_ok() {
            self.bad_blocks_cut = !cut(bytes).is_empty() && bytes.len() + 1 >= PAGE_BYTES;
            if let Some(blocks) = bad_blocks(bytes, self.bad_blocks_cut) {
                self.facts
                    .count(batch, now_ns, MemberFact::BadBlocks, blocks);
            }
        }
    }
}

/// The number of failures after which data is lost: the copies of each block that are left, or
/// could be rebuilt, in the worst case.
fn replication(
    level: &str,
    copies: Option<u64>,
    wanted: Option<u64>,
    active: Option<u64>,
    failed: u64,
) -> Option<u64> {
    let missing = || wanted?.checked_sub(active?);
    match level {
        "raid0" | "linear" => Some(u64::from(failed == 0)),
        "raid1" => active,
        "raid4" | "raid5" => Some(2_u64.saturating_sub(missing()?)),
        "raid6" => Some(3_u64.saturating_sub(missing()?)),
        // More members may be missing than a block had copies, if they held copies of different
        // blocks.
        "raid10" => Some(copies?.saturating_sub(missing()?).max(1)),
        _ => None,
    }
}

/// The number of copies of a RAID10 layout: its low byte is the near copies, the next byte the far
/// ones (md(4), RAID10).
fn raid10_copies(layout: u64) -> Option<u64> {
    let copies = (layout & 0xff) * (layout >> 8 & 0xff);
    (copies > 0).then_some(copies)
}

/// Parses `2929687552 / 23437500416`; `none` and `delayed` give nothing.
fn completed(text: &str) -> Option<f64> {
    let mut words = words(text.as_bytes());
    let done = words.number()?;
    (words.next()? == b"/").then_some(())?;
    share(done, words.number()?).filter(|_| words.at_end())
}

/// Sums the sectors of a list with a start and a length on each line. If `is_cut`, the last line
/// may be incomplete.
fn bad_blocks(bytes: &[u8], is_cut: bool) -> Option<u64> {
    let mut sum: u64 = 0;
    for line in lines(bytes) {
        let mut words = words(line);
        words.number()?;
        sum = sum.saturating_add(words.number()?);
        words.at_end().then_some(())?;
    }
    (is_cut || cut(bytes).is_empty()).then_some(sum)
}

/// The text of a file with a single word; an absent file is no fault.
fn word<'a>(file: &mut HeldFile, bytes: &'a mut Vec<u8>, faults: &mut Faults) -> Option<&'a str> {
    let read = file.read_if_there(bytes, faults);
    sole_text(bytes).filter(|text| read && text.len() <= TEXT_BYTES_MAX)
}

fn sole(file: &mut HeldFile, bytes: &mut Vec<u8>, faults: &mut Faults) -> Option<u64> {
    number(word(file, bytes, faults)?.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_that_lose_data() {
        let check = |level, copies, wanted, active, failed, expect: Option<u64>| {
            let got = replication(level, copies, Some(wanted), active, failed);
            assert_eq!(
                got, expect,
                "{level} {copies:?} {wanted} {active:?} {failed}"
            );
        };
        check("raid0", None, 4, Some(4), 0, Some(1));
        check("raid0", None, 4, Some(3), 1, Some(0));
        check("linear", None, 4, None, 0, Some(1));
        check("raid1", None, 3, Some(3), 0, Some(3));
        check("raid1", None, 3, Some(1), 1, Some(1));
        check("raid4", None, 4, Some(4), 0, Some(2));
        check("raid5", None, 4, Some(3), 1, Some(1));
        check("raid5", None, 4, Some(1), 3, Some(0));
        check("raid6", None, 6, Some(6), 0, Some(3));
        check("raid6", None, 6, Some(5), 0, Some(2));
        check("raid6", None, 6, Some(4), 0, Some(1));
        check("raid6", None, 6, Some(2), 0, Some(0));
        check("raid10", Some(2), 6, Some(6), 0, Some(2));
        check("raid10", Some(2), 6, Some(4), 2, Some(1));
        check("raid10", Some(3), 6, Some(5), 1, Some(2));
        check("raid10", None, 6, Some(6), 0, None);
        check("raid5", None, 4, None, 0, None);
        check("raid5", None, 4, Some(5), 0, None);
        check("container", None, 4, Some(4), 0, None);
        check("", None, 4, Some(4), 0, None);
    }

    #[test]
    fn layouts_of_raid10() {
        assert_eq!(raid10_copies(0x102), Some(2));
        assert_eq!(raid10_copies(0x201), Some(2));
        assert_eq!(raid10_copies(0x1_0301), Some(3));
        assert_eq!(raid10_copies(0x202), Some(4));
        assert_eq!(raid10_copies(0), None);
    }

    #[test]
    fn lists_of_bad_blocks() {
        let check = |text: &str, is_cut, expect: Option<u64>| {
            assert_eq!(bad_blocks(text.as_bytes(), is_cut), expect, "{text:?}");
        };
        check("", false, Some(0));
        check("8 16\n1953525168 8\n", false, Some(24));
        check("8 16\n19535", false, None);
        check("8 16\n19535", true, Some(16));
        check("8\n", false, None);
        check("8 16 1\n", false, None);
        check("8 -1\n", false, None);
        check(
            "8 9223372036854775807\n9 9223372036854775807\n",
            false,
            Some(u64::MAX - 1),
        );
    }
}
