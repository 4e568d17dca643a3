//! A publisher and a subscriber over a network that loses, doubles, delays and reorders messages,
//! on virtual time: every sample that the owner still has arrives once and in order.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use barograph_fabric::frame::{Announcement, FeedReach, FrameHeader};
use barograph_fabric::{
    EndedList, EndedQuery, EndedSeries, LifePoint, MirrorSink, PastGap, PastReading, PastRun,
    PastSamples, PastSource, Publisher, Subscriber, SubscriberConfig,
};
use barograph_model::{
    Descriptor, Kind, Labels, NS_PER_S, Name, Sample, SeriesId, StreamKey, Unit, Value, ValueType,
};
use barograph_stream::{Incarnation, Segment, SegmentConfig, StreamWriter};

pub(super) const START_NS: i64 = 1_700_000_000 * NS_PER_S;
const STEP_NS: i64 = 5_000_000;
pub(super) const DEPTH: u32 = 64;
const STREAMS: usize = 6;

/// SplitMix64: a small generator whose seed is the name of a run.
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, most: u64) -> u64 {
        self.next() % most
    }

    fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }
}

/// The faults of a network, each in percent of the messages.
#[derive(Clone, Copy)]
struct Faults {
    lost: u64,
    doubled: u64,
    delay_steps_max: u64,
}

const NONE: Faults = Faults {
    lost: 0,
    doubled: 0,
    delay_steps_max: 1,
};

/// Messages on their way in one direction, by time of arrival and number.
#[derive(Default)]
struct Wire {
    messages: BTreeMap<(i64, u64), Vec<u8>>,
    sent: u64,
}

impl Wire {
    fn send(&mut self, now_ns: i64, message: Vec<u8>, faults: Faults, random: &mut Random) {
        if random.percent(faults.lost) {
            return;
        }
        let copies = 1 + u64::from(random.percent(faults.doubled));
        for _ in 0..copies {
            let delay = 1 + random.below(faults.delay_steps_max) as i64;
            self.sent += 1;
            let key = (now_ns + delay * STEP_NS, self.sent);
            self.messages.insert(key, message.clone());
        }
    }

    fn arrived(&mut self, now_ns: i64) -> Option<Vec<u8>> {
        let entry = self.messages.first_entry()?;
        (entry.key().0 <= now_ns).then(|| entry.remove())
    }
}

/// Samples that a subscriber has taken in: the samples of each stream, with their numbers.
#[derive(Default)]
pub(crate) struct Taken {
    pub(crate) streams: Vec<TakenStream>,
}

pub(crate) struct TakenStream {
    pub(super) descriptor: Descriptor,
    pub(super) life_ns: i64,
    pub(super) is_live: bool,
    pub(crate) samples: Vec<(u64, Sample)>,
    missed: u64,
    looked_ns: i64,
}

impl MirrorSink for Taken {
    fn declare(&mut self, announced: &Announcement) -> Option<StreamKey> {
        self.streams.push(TakenStream {
            descriptor: announced.descriptor.clone(),
            life_ns: announced.life_ns,
            is_live: true,
            samples: Vec::new(),
            missed: 0,
            looked_ns: 0,
        });
        Some(StreamKey(self.streams.len() as u32 - 1))
    }

    fn retire(&mut self, key: StreamKey) {
        let stream = &mut self.streams[key.0 as usize];
        assert!(std::mem::replace(&mut stream.is_live, false));
    }

    fn append(&mut self, key: StreamKey, number: u64, sample: &Sample) {
        let stream = &mut self.streams[key.0 as usize];
        assert!(stream.is_live);
        stream.samples.push((number, sample.clone()));
    }

    fn expect_interval(&mut self, _: StreamKey, _: i64) {}

    fn recall(&mut self, key: StreamKey, number: u64, sample: &Sample) {
        let of = &self.streams[key.0 as usize];
        let mut lives = self.streams.iter();
        let was_taken = lives.any(|other| {
            let is_same = other.life_ns == of.life_ns && other.descriptor == of.descriptor;
            is_same && other.samples.contains(&(number, sample.clone()))
        });
        assert!(was_taken, "number {number} was not taken in before");
    }

    fn confirm(&mut self, key: StreamKey, looked_ns: i64) {
        let stream = &mut self.streams[key.0 as usize];
        assert!(looked_ns >= stream.looked_ns, "looks go on");
        stream.looked_ns = looked_ns;
    }

    fn miss(&mut self, key: StreamKey, first: u64, count: u64) {
        let stream = &mut self.streams[key.0 as usize];
        let newest = stream.samples.last().map_or(0, |(number, _)| *number);
        assert_eq!(first, newest + 1);
        stream.missed += count;
    }
}

/// The archive of the owner: it has every sample, gives a few of them at a time, is often busy, and
/// cannot be read now and then.
#[derive(Debug, Default)]
pub(super) struct Archive {
    pub(super) lives: Mutex<BTreeMap<(SeriesId, i64), Vec<Sample>>>,
    readings: AtomicU64,
    /// Whether nothing can be read for good: readings do not end.
    pub(super) hangs: AtomicBool,
}

/// Most samples that a reading brings.
const READ_MAX: usize = 150;
/// Most samples of a gap that are given although the subscriber has them.
const KNOWN: usize = 3;

impl Archive {
    /// The samples of a gap by life, with the index of the first of them.
    fn lives_of(&self, gap: &PastGap) -> Vec<(i64, usize, Vec<Sample>)> {
        let lives = self.lives.lock().unwrap();
        let first = (gap.series, gap.after.life_ns);
        let of_series = lives.range(first..=(gap.series, gap.before.life_ns));
        let of_life = of_series.map(|(&(_, life_ns), all)| {
            let is_first = life_ns == gap.after.life_ns;
            let after = if is_first { gap.after.number } else { 0 };
            let is_last = life_ns == gap.before.life_ns;
            let to = if is_last {
                gap.before.number.saturating_sub(1)
            } else {
                u64::MAX
            };
            let from = (after as usize).min(all.len());
            let to = (to as usize).min(all.len()).max(from);
            (life_ns, from, all[from..to].to_vec())
        });
        of_life
            .filter(|(_, _, samples)| !samples.is_empty())
            .collect()
    }
}

impl PastSource for Archive {
    fn read(&self, gaps: Vec<PastGap>) -> Option<Box<dyn PastReading<PastSamples>>> {
        let number = self.readings.fetch_add(1, Ordering::Relaxed);
        if self.hangs.load(Ordering::Relaxed) {
            return Some(Box::new(ArchiveReading {
                waits: u64::MAX,
                found: None,
            }));
        }
        if number.is_multiple_of(3) {
            return None;
        }
        let mut found = PastSamples::default();
        let mut room = READ_MAX;
        for (place, gap) in gaps.iter().enumerate() {
            // A gap that was looked for gets at least one new sample.
            if room <= KNOWN {
                break;
            }
            found.looked = place + 1;
            if (number + place as u64).is_multiple_of(7) {
                found.failed.push(place);
                continue;
            }
            for (life_ns, from, mut samples) in self.lives_of(gap) {
                if room <= KNOWN {
                    break;
                }
                // It gives what is known already too, as an archive with another order of files
                // may.
                let known = if life_ns == gap.after.life_ns {
                    from.min(KNOWN)
                } else {
                    0
                };
                let all = &self.lives.lock().unwrap()[&(gap.series, life_ns)];
                samples.splice(0..0, all[from - known..from].iter().cloned());
                samples.truncate(room);
                room -= samples.len();
                let halves = samples.split_at(samples.len() / 2);
                let mut first = (from - known) as u64 + 1;
                for half in [halves.0, halves.1]
                    .into_iter()
                    .filter(|half| !half.is_empty())
                {
                    found.runs.push(PastRun {
                        gap: place,
                        life_ns,
                        first,
                        samples: half.to_vec(),
                    });
                    first += half.len() as u64;
                }
            }
        }
        Some(Box::new(ArchiveReading {
            waits: number % 5,
            found: Some(found),
        }))
    }

    fn list(&self, query: EndedQuery) -> Option<Box<dyn PastReading<EndedList>>> {
        let number = self.readings.fetch_add(1, Ordering::Relaxed);
        if number.is_multiple_of(3) {
            return None;
        }
        let mut list = EndedList {
            is_failed: number.is_multiple_of(5),
            ..EndedList::default()
        };
        for at in (0..STREAMS).filter(|_| !list.is_failed) {
            let descriptor = Arc::new(descriptor(at));
            let series = descriptor.series_id();
            let unknown = |life_ns| LifePoint {
                life_ns,
                number: u64::MAX,
            };
            let after = query.has.get(&series).copied();
            let Some(after) = after.or(query.known_until_ns.map(unknown)) else {
                continue;
            };
            let life_ns = query.present.get(&series).copied().unwrap_or(i64::MAX);
            let before = LifePoint { life_ns, number: 0 };
            let gap = PastGap {
                series,
                after,
                after_ns: None,
                before,
            };
            if after < before {
                list.series.push(EndedSeries { descriptor, gap });
            }
        }
        Some(Box::new(ArchiveReading {
            waits: number % 7,
            found: Some(list),
        }))
    }
}

#[derive(Debug)]
struct ArchiveReading<T> {
    waits: u64,
    found: Option<T>,
}

impl<T: std::fmt::Debug + Send> PastReading<T> for ArchiveReading<T> {
    fn take(&mut self) -> Option<T> {
        if self.waits == 0 {
            return self.found.take();
        }
        self.waits -= 1;
        None
    }
}

/// The owner's side: a real segment with streams that come and go.
pub(super) struct Owner {
    dir: tempfile::TempDir,
    pub(super) segment: Segment,
    pub(super) publisher: Publisher,
    writers: Vec<Option<StreamWriter>>,
    pub(super) archive: Arc<Archive>,
    /// Every sample that was ever appended, by stream and life.
    truth: BTreeMap<(usize, i64), Vec<Sample>>,
    lives: Vec<i64>,
}

impl Owner {
    pub(super) fn new(incarnation: u8) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let segment = segment(&dir, incarnation);
        let archive = Arc::<Archive>::default();
        let publisher = publisher(&segment, &archive);
        Self {
            dir,
            archive,
            segment,
            publisher,
            writers: (0..STREAMS).map(|_| None).collect(),
            truth: BTreeMap::new(),
            lives: vec![0; STREAMS],
        }
    }

    /// The agent starts again: its streams live anew in another segment.
    fn restart(&mut self, incarnation: u8) {
        self.writers.iter_mut().for_each(|writer| *writer = None);
        self.segment = segment(&self.dir, incarnation);
        self.publisher = publisher(&self.segment, &self.archive);
    }

    fn change(&mut self, now_ns: i64, random: &mut Random) {
        let at = random.below(STREAMS as u64) as usize;
        match self.writers[at].take() {
            None => {
                let life_ns = now_ns;
                let writer = self.segment.register(&descriptor(at), Some(DEPTH), life_ns);
                self.writers[at] = Some(writer.unwrap());
                self.lives[at] = life_ns;
            }
            Some(writer) if random.percent(2) => self.segment.retire(writer),
            Some(mut writer) => {
                for _ in 0..1 + random.below(8) {
                    let sample = sample(at, now_ns, random);
                    writer.append(&sample).unwrap();
                    let life_ns = self.lives[at];
                    let archived = (descriptor(at).series_id(), life_ns);
                    let mut lives = self.archive.lives.lock().unwrap();
                    lives.entry(archived).or_default().push(sample.clone());
                    self.truth.entry((at, life_ns)).or_default().push(sample);
                }
                self.writers[at] = Some(writer);
            }
        }
    }
}

fn publisher(segment: &Segment, archive: &Arc<Archive>) -> Publisher {
    let mut publisher = Publisher::new(Arc::new(segment.reader().unwrap()));
    publisher.read_past_from(Arc::clone(archive) as Arc<dyn PastSource>);
    publisher
}

fn segment(dir: &tempfile::TempDir, incarnation: u8) -> Segment {
    let mut config = SegmentConfig::new("owner");
    config.streams_max = 64;
    let path = dir.path().join(format!("segment-{incarnation}"));
    Segment::create(&path, config, START_NS).unwrap()
}

pub(super) fn descriptor(at: usize) -> Descriptor {
    Descriptor {
        name: Name::new("test.value").unwrap(),
        labels: Labels::new([("stream", at.to_string())]).unwrap(),
        value_type: [ValueType::Int, ValueType::Float, ValueType::Text][at % 3],
        unit: Unit::new("").unwrap(),
        kind: Kind::Gauge,
        help: String::new(),
    }
}

pub(super) fn sample(at: usize, now_ns: i64, random: &mut Random) -> Sample {
    let drawn = random.below(1 << 40);
    let value = match at % 3 {
        0 => Value::Int(drawn as i64 - (1 << 39)),
        1 => Value::Float(drawn as f64 / 7.0),
        _ => Value::text(&format!("text {drawn}")),
    };
    Sample::measured(now_ns, value)
}

/// One run: steps with faults, then enough without any. Returns how many samples came from the
/// archive, and how many are missing.
fn run(seed: u64, faults: Faults, restarts: bool, reach: FeedReach) -> (u64, u64) {
    let mut random = Random(seed);
    let mut owner = Owner::new(0);
    let mut subscriber = Subscriber::new(SubscriberConfig {
        incarnation: Incarnation([200; 16]),
        first_feed: seed,
        selectors: vec!["test.*".into()],
        reach,
        window_bytes: 1 << 16,
        streams_max: 64,
        scope: "".into(),
    });
    let (mut there, mut back) = (Wire::default(), Wire::default());
    let mut taken = Taken::default();
    let node: Arc<str> = "subscriber".into();
    let faulty = 4_000;
    // The archive gives a few samples at a time, and what failed only after a second.
    let healed = if reach == FeedReach::Archive {
        24_000
    } else {
        8_000
    };
    let mut newest_feed = 0;
    let mut whole_ns = 0;
    for step in 0..healed {
        let now_ns = START_NS + step * STEP_NS;
        let faults = if step < faulty { faults } else { NONE };
        if step < faulty {
            owner.change(now_ns, &mut random);
            if restarts && random.below(1_000) == 0 {
                owner.restart((step / 20) as u8);
                // The new publisher knows nothing of the feeds before.
                newest_feed = 0;
            }
        }
        while let Some(message) = there.arrived(now_ns) {
            owner.publisher.receive(&node, &message, now_ns).unwrap();
        }
        while let Some(message) = back.arrived(now_ns) {
            subscriber.receive(&message, now_ns, &mut taken).unwrap();
            if whole_ns == 0 {
                whole_ns = subscriber.mirror().newest_life_ns();
            }
        }
        while let Some((to, frame)) = owner.publisher.due(now_ns) {
            assert_eq!(to, node);
            let feed = FrameHeader::read(&frame).unwrap().0.feed;
            assert!(
                feed >= newest_feed,
                "seed {seed}: feed {feed} after {newest_feed}"
            );
            newest_feed = feed;
            back.send(now_ns, frame, faults, &mut random);
        }
        while let Some(message) = subscriber.due(now_ns) {
            there.send(now_ns, message, faults, &mut random);
        }
    }
    let missed = check(seed, &owner, &taken, &subscriber);
    if reach == FeedReach::Archive {
        check_lives(seed, &owner, &taken, whole_ns);
    }
    (owner.publisher.counts().past, missed)
}

/// Every life that began after the subscriber was first told all streams is whole, whether or not
/// it has ended meanwhile; an earlier one is whole from the first sample that was taken.
fn check_lives(seed: u64, owner: &Owner, taken: &Taken, whole_ns: i64) {
    for (&(at, life_ns), truth) in &owner.truth {
        let of_life = taken
            .streams
            .iter()
            .filter(|stream| stream.descriptor == descriptor(at) && stream.life_ns == life_ns);
        let numbers = of_life.flat_map(|stream| stream.samples.iter().map(|sample| sample.0));
        let numbers: Vec<u64> = numbers.collect();
        let first = match numbers.first() {
            Some(first) if life_ns <= whole_ns => *first,
            None if life_ns <= whole_ns => continue,
            _ => 1,
        };
        let expect: Vec<u64> = (first..=truth.len() as u64).collect();
        assert_eq!(numbers, expect, "seed {seed}: stream {at}, life {life_ns}");
    }
}

fn check(seed: u64, owner: &Owner, taken: &Taken, subscriber: &Subscriber) -> u64 {
    let mut missed = 0;
    for stream in &taken.streams {
        let at: usize = stream
            .descriptor
            .labels
            .get("stream")
            .unwrap()
            .parse()
            .unwrap();
        assert_eq!(stream.descriptor, descriptor(at), "seed {seed}");
        let Some(truth) = owner.truth.get(&(at, stream.life_ns)) else {
            assert!(stream.samples.is_empty(), "seed {seed}");
            continue;
        };
        let mut before = 0;
        for (number, sample) in &stream.samples {
            assert!(
                *number > before,
                "seed {seed}: number {number} after {before}"
            );
            before = *number;
            assert_eq!(truth[*number as usize - 1], *sample, "seed {seed}");
        }
        missed += stream.missed;
        let is_present = owner.writers[at].is_some() && owner.lives[at] == stream.life_ns;
        assert_eq!(stream.is_live, is_present, "seed {seed}: stream {at}");
        if is_present {
            assert_eq!(
                before as usize,
                truth.len(),
                "seed {seed}: stream {at} is whole"
            );
            // What is missing in the middle was overwritten in the ring, and is counted.
            let first = stream.samples.first().map_or(0, |(number, _)| *number - 1);
            let held = stream.samples.len() as u64;
            assert_eq!(first + held + stream.missed, before, "seed {seed}");
        }
    }
    let live = taken.streams.iter().filter(|s| s.is_live).count();
    let present = owner.writers.iter().flatten().count();
    assert_eq!(live, present, "seed {seed}: all streams are mirrored");
    assert_eq!(subscriber.mirror().counts().missed, missed, "seed {seed}");
    assert_eq!(owner.publisher.subscribers(), 1, "seed {seed}");
    missed
}

#[test]
fn all_arrives_over_a_good_network() {
    for seed in 0..4 {
        run(seed, NONE, false, FeedReach::Rings);
    }
}

#[test]
fn all_arrives_over_a_bad_network() {
    let faults = Faults {
        lost: 5,
        doubled: 10,
        delay_steps_max: 12,
    };
    for seed in crate::seeds(30) {
        run(seed, faults, false, FeedReach::Rings);
    }
}

#[test]
fn all_arrives_from_an_agent_that_restarts() {
    let faults = Faults {
        lost: 2,
        doubled: 5,
        delay_steps_max: 3,
    };
    for seed in crate::seeds(30) {
        run(seed, faults, true, FeedReach::Rings);
    }
}

#[test]
fn a_silent_network_heals() {
    let faults = Faults {
        lost: 100,
        doubled: 0,
        delay_steps_max: 1,
    };
    run(300, faults, true, FeedReach::Rings);
}

#[test]
fn what_the_rings_have_lost_comes_from_the_archive() {
    let faults = Faults {
        lost: 5,
        doubled: 10,
        delay_steps_max: 12,
    };
    let (mut read, mut missed) = (0, 0);
    for seed in crate::seeds(30) {
        let (past, nothing) = run(seed, faults, seed % 2 == 0, FeedReach::Archive);
        assert_eq!(nothing, 0, "seed {seed}");
        read += past;
        // The same without the archive, so that it is seen to be needed.
        missed += run(seed, faults, seed % 2 == 0, FeedReach::Rings).1;
    }
    // One run alone may have lost nothing.
    if std::env::var_os("BAROGRAPH_SEED").is_none() {
        let enough = read > 1_000 && missed > 1_000;
        assert!(enough, "{read} read, {missed} missed");
    }
}
