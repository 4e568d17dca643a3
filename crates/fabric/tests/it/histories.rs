//! Histories that a node keeps of others, on virtual time: nothing is acknowledged before it is
//! durable, and after a crash a feed goes on where the history ends.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use barograph_fabric::frame::{Announcement, Position};
use barograph_fabric::transport::MemoryNetwork;
use barograph_fabric::{DurableHistories, DurableHistory, HistoryOpening, StreamDemand};
use barograph_model::{Descriptor, NS_PER_S, Name, Sample, SeriesId, StreamKey, Value};
use barograph_stream::{RunDir, SegmentReader};

use super::cluster::{BadTransport, Dice, Member, START_NS, descriptor, hello};

const STEP_NS: i64 = NS_PER_S / 20;

/// A record of a history: the series, the life of its stream, the number, and the sample; `None` if
/// it is not to be had any more.
type Record = (SeriesId, i64, u64, Option<Sample>);

/// A disk that keeps what was synced.
#[derive(Debug, Default)]
struct Disk {
    durable: Vec<Record>,
    waiting: Vec<Record>,
    /// Number of records that were handed over so far.
    submitted: u64,
    synced: u64,
}

impl Disk {
    fn sync(&mut self) {
        self.durable.append(&mut self.waiting);
        self.synced = self.submitted;
    }

    /// A crash loses what was not synced.
    fn crash(&mut self) {
        self.waiting.clear();
    }
}

/// The disk of the node that keeps the histories; clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedDisk(Arc<Mutex<Disk>>);

impl SharedDisk {
    fn lock(&self) -> MutexGuard<'_, Disk> {
        self.0.lock().unwrap()
    }

    /// A history on the disk.
    pub(crate) fn history(&self) -> Box<dyn DurableHistory> {
        Box::new(DiskHistory {
            disk: self.clone(),
            streams: Vec::new(),
            entries: Vec::new(),
        })
    }

    pub(crate) fn sync(&self) {
        self.lock().sync();
    }

    /// Number of samples that are durable.
    pub(crate) fn count(&self) -> usize {
        self.lock().durable.len()
    }
}

impl DurableHistories for SharedDisk {
    fn open(&mut self, node: &str, scope: &str) -> HistoryOpening {
        match (node, scope) {
            ("b", "") => HistoryOpening::Open(self.history()),
            _ => HistoryOpening::NotKept,
        }
    }

    fn await_only(&mut self, _: &dyn Fn(&str, &str) -> bool) {}
}

#[derive(Debug)]
struct DiskHistory {
    disk: SharedDisk,
    streams: Vec<Option<(SeriesId, i64)>>,
    entries: Vec<Record>,
}

impl DiskHistory {
    fn push(&mut self, key: StreamKey, number: u64, sample: Option<Sample>) {
        let (series, life_ns) = self.streams[key.0 as usize].unwrap();
        self.entries.push((series, life_ns, number, sample));
    }
}

impl DurableHistory for DiskHistory {
    fn positions(&self) -> Vec<Position> {
        let mut newest: BTreeMap<(SeriesId, i64), u64> = BTreeMap::new();
        for (series, life_ns, number, _) in &self.disk.lock().durable {
            newest.insert((*series, *life_ns), *number);
        }
        let positions = newest.into_iter();
        let position = |((series, life_ns), number)| Position {
            series,
            life_ns,
            number,
        };
        positions.map(position).collect()
    }

    fn declare(&mut self, key: StreamKey, announcement: &Announcement) {
        let at = key.0 as usize;
        self.streams.resize(self.streams.len().max(at + 1), None);
        self.streams[at] = Some((announcement.descriptor.series_id(), announcement.life_ns));
    }

    fn retire(&mut self, key: StreamKey) {
        self.streams[key.0 as usize] = None;
    }

    fn append(&mut self, key: StreamKey, number: u64, sample: &Sample) {
        self.push(key, number, Some(sample.clone()));
    }

    fn confirm(&mut self, key: StreamKey, _: i64) {
        assert!(self.streams[key.0 as usize].is_some());
    }

    fn miss(&mut self, key: StreamKey, first: u64) {
        self.push(key, first, None);
    }

    fn submit(&mut self) -> u64 {
        let mut disk = self.disk.lock();
        disk.submitted += self.entries.len() as u64;
        disk.waiting.append(&mut self.entries);
        disk.submitted
    }

    fn is_durable(&self, place: u64) -> bool {
        self.disk.lock().synced >= place
    }

    fn beat(&mut self) -> Option<String> {
        None
    }
}

/// The records of the first stream, by life and number.
fn records_of(disk: &SharedDisk) -> BTreeMap<i64, Vec<(u64, Option<Sample>)>> {
    let mut lives: BTreeMap<i64, Vec<(u64, Option<Sample>)>> = BTreeMap::new();
    let disk = disk.lock();
    let series = descriptor(0).series_id();
    let records = disk.durable.iter().filter(|record| record.0 == series);
    for (_, life_ns, number, sample) in records {
        let life = lives.entry(*life_ns).or_default();
        life.push((*number, sample.clone()));
    }
    lives
}

/// A node that keeps the history of another one. It crashes, the other one restarts, the network is
/// bad and the disk stalls; afterwards everything was kept once and in order.
fn check_history(seed: u64) {
    let network = MemoryNetwork::default();
    let mut dice = Dice(seed | 1);
    let disk = SharedDisk::default();
    let member = |name: &str, number: u8, now_ns: i64, dice: &mut Dice, disk: &SharedDisk| {
        let inner = network.join(hello("rack", name, number)).unwrap();
        let bad = BadTransport::new(inner, dice.roll(u64::MAX));
        let mut member = Member::over(bad, name, number, now_ns, 16, 64);
        if name == "a" {
            member.node.keep_histories(Box::new(disk.clone()));
        }
        member
    };
    let mut now_ns = START_NS;
    let mut a = Some(member("a", 1, now_ns, &mut dice, &disk));
    let mut b = member("b", 2, now_ns, &mut dice, &disk);
    let mut truth: BTreeMap<i64, Vec<Sample>> = BTreeMap::new();
    let mut life_ns = now_ns;
    let (crash, restart) = (60 + dice.roll(60), 130 + dice.roll(20));
    let stall = 20 + dice.roll(100);
    for round in 0..360 {
        now_ns += STEP_NS;
        if round == crash {
            drop(a.take());
            disk.lock().crash();
        }
        if round == crash + 15 {
            a = Some(member("a", 8, now_ns, &mut dice, &disk));
        }
        if round == restart {
            // What the history has of the earlier life stays.
            drop(b);
            b = member("b", 9, now_ns, &mut dice, &disk);
            life_ns = now_ns;
        }
        if round == 200 {
            a.iter_mut()
                .for_each(|a| a.node.transport().is_healed = true);
            b.node.transport().is_healed = true;
        }
        let puts = if round < 330 { dice.roll(3) } else { 0 };
        for put in 0..puts as i64 {
            b.put(now_ns + put, now_ns / STEP_NS + put);
            let sample = Sample::measured(now_ns + put, now_ns / STEP_NS + put);
            truth.entry(life_ns).or_default().push(sample);
        }
        let is_stalled = (stall..stall + 30).contains(&round);
        if !is_stalled && (round > 340 || dice.roll(3) == 0) {
            disk.lock().sync();
        }
        for _ in 0..2 {
            b.node.step(now_ns);
            if let Some(a) = &mut a {
                a.node.step(now_ns);
            }
        }
    }
    disk.lock().sync();
    let records = records_of(&disk);
    let newest = &truth[&life_ns];
    for (life_ns, kept) in &records {
        let numbers: Vec<u64> = kept.iter().map(|(number, _)| *number).collect();
        let first = numbers[0];
        let expect: Vec<u64> = (first..first + numbers.len() as u64).collect();
        assert_eq!(numbers, expect, "seed {seed}: once and in order");
        for (number, sample) in kept {
            let put = &truth[life_ns][*number as usize - 1];
            assert_eq!(sample.as_ref(), Some(put), "seed {seed}: number {number}");
        }
    }
    // Whatever went wrong was over before the rings had overwritten anything of this life.
    assert_eq!(records[&life_ns].len(), newest.len(), "seed {seed}");
}

#[test]
fn a_history_has_each_sample_once_after_crashes_of_either_side() {
    crate::seeds(60).for_each(check_history);
}

/// The ring of the mirror has the owner's numbers, and no hole.
fn check_ring(here: &Member, owner: &Member) {
    let mirror = RunDir::new(here.dir.path()).mirror("b");
    let mirror = SegmentReader::of(&mirror).unwrap();
    let entries = mirror.directory().entries;
    let entry = entries.iter().find(|e| e.descriptor == descriptor(0));
    let reader = mirror.stream(entry.unwrap());
    assert_eq!(reader.count(), Some(owner.writers[0].count()));
    let mut samples = Vec::new();
    let scan = reader.scan(0, &mut samples).unwrap();
    assert_eq!(scan.lost + samples.len() as u64, scan.cursor);
    assert!(samples.iter().all(|sample| sample.ts > START_NS));
    assert_eq!(samples.last().unwrap().value, Value::Int(0));
}

#[test]
fn a_disk_that_stalls_stops_the_owner_at_the_window_and_what_is_missing_is_marked() {
    let network = MemoryNetwork::default();
    let disk = SharedDisk::default();
    let mut now_ns = START_NS;
    let mut a = Member::new(&network, "a", 1, now_ns);
    a.node.keep_histories(Box::new(disk.clone()));
    let mut b = Member::new(&network, "b", 2, now_ns);
    let mut step = |a: &mut Member, b: &mut Member, puts: i64, sync: bool| {
        now_ns += STEP_NS;
        for put in 0..puts {
            b.put(now_ns + put, put);
        }
        for _ in 0..2 {
            b.node.step(now_ns);
            a.node.step(now_ns);
        }
        if sync {
            disk.lock().sync();
        }
    };
    for _ in 0..20 {
        step(&mut a, &mut b, 1, true);
    }
    let before = b.node.status();
    assert_eq!((before.subscribers, before.lost), (1, 0));
    // Nothing can be written for 100 s: the feed lives, and no more is sent than the window allows.
    for _ in 0..2_000 {
        step(&mut a, &mut b, 200, false);
    }
    let stalled = b.node.status();
    assert_eq!(stalled.subscribers, 1, "the feed has not ended");
    let sent = stalled.bytes - before.bytes;
    assert!((200_000..400_000).contains(&sent), "{sent} bytes");
    assert_eq!(a.node.peers()[0].holes, 0);
    for _ in 0..100 {
        step(&mut a, &mut b, 1, true);
    }
    // What the rings had overwritten meanwhile is missing, and the history says where.
    let records = records_of(&disk);
    let kept = records.values().next().unwrap();
    let numbers: Vec<u64> = kept.iter().map(|(number, _)| *number).collect();
    assert!(numbers.is_sorted_by(|a, b| a < b));
    assert_eq!(numbers.last(), Some(&b.writers[0].count()));
    let holes = numbers.windows(2).filter(|pair| pair[1] != pair[0] + 1);
    let marks = kept.iter().filter(|(_, sample)| sample.is_none()).count();
    assert_eq!((holes.count(), marks), (1, 1));
    let mark = kept
        .iter()
        .position(|(_, sample)| sample.is_none())
        .unwrap();
    assert_eq!(numbers[mark], numbers[mark - 1] + 1);
    assert!(a.node.peers()[0].missed > 100_000);
    check_ring(&a, &b);
    drop(a);

    // Samples that are lost while nobody keeps them leave a mark too, after the crash.
    for _ in 0..20 {
        now_ns += STEP_NS;
        (0..20).for_each(|put| b.put(now_ns + put, put));
        b.node.step(now_ns);
    }
    let mut a = Member::new(&network, "a", 3, now_ns);
    a.node.keep_histories(Box::new(disk.clone()));
    for _ in 0..20 {
        now_ns += STEP_NS;
        b.put(now_ns, 1);
        a.node.step(now_ns);
        b.node.step(now_ns);
        disk.lock().sync();
    }
    let records = records_of(&disk);
    let kept = records.values().next().unwrap();
    let marks = kept.iter().filter(|(_, sample)| sample.is_none()).count();
    assert_eq!(marks, 2);
    assert!(kept.is_sorted_by(|a, b| a.0 < b.0));
}

#[test]
fn what_is_mirrored_by_demand_is_not_kept() {
    let network = MemoryNetwork::default();
    let disk = SharedDisk::default();
    let mut now_ns = START_NS;
    let mut a = Member::new(&network, "a", 1, now_ns);
    a.node.keep_histories(Box::new(disk.clone()));
    a.node.demand(vec![StreamDemand::of_all("other.*")]);
    let mut b = Member::new(&network, "b", 2, now_ns);
    let other = Descriptor {
        name: Name::new("other.value").unwrap(),
        ..descriptor(0)
    };
    let stream = b.segment.register(&other, Some(256), now_ns).unwrap();
    b.writers.push(stream);
    for round in 0..40 {
        now_ns += STEP_NS;
        b.put(now_ns, round);
        b.node.step(now_ns);
        a.node.step(now_ns);
        disk.lock().sync();
    }
    assert_eq!((a.peer("b").streams, a.peer("b").missed), (4, 0));
    let kept: BTreeSet<SeriesId> = disk.lock().durable.iter().map(|record| record.0).collect();
    let expect: BTreeSet<SeriesId> = (0..3).map(|i| descriptor(i).series_id()).collect();
    assert_eq!(kept, expect);
    // All frames were acknowledged: the feed has never begun anew.
    assert_eq!(b.node.sent_to()[0].lost, 0);
}
