//! Many subscribers that keep history and catch up at the same time: so many have their turn, the
//! others wait and are sent what the rings have, and all have everything in the end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use barograph_fabric::{
    CATCH_UPS_MAX, EndedList, EndedQuery, PastGap, PastReading, PastSamples, PastSource, Subscriber,
};
use barograph_model::NS_PER_S;
use barograph_stream::StreamWriter;

use super::feed_past::subscriber_of_history;
use super::feeds::{Archive, DEPTH, Owner, Random, START_NS, Taken, descriptor, sample};

/// The owner's archive, which can be read only now and then.
#[derive(Debug)]
struct GatedArchive {
    archive: Arc<Archive>,
    is_searchable: AtomicBool,
    is_readable: AtomicBool,
}

impl PastSource for GatedArchive {
    fn read(&self, gaps: Vec<PastGap>) -> Option<Box<dyn PastReading<PastSamples>>> {
        let is_open = self.is_readable.load(Ordering::Relaxed);
        is_open.then(|| self.archive.read(gaps)).flatten()
    }

    fn list(&self, query: EndedQuery) -> Option<Box<dyn PastReading<EndedList>>> {
        let is_open = self.is_searchable.load(Ordering::Relaxed);
        is_open.then(|| self.archive.list(query)).flatten()
    }
}

/// An owner with a stream that lives all the time and one that begins anew, and its subscribers.
struct Rack {
    owner: Owner,
    archive: Arc<GatedArchive>,
    subscribers: BTreeMap<Arc<str>, (Subscriber, Taken)>,
    writers: [Option<StreamWriter>; 2],
    lives: [i64; 2],
    random: Random,
    now_ns: i64,
}

impl Rack {
    fn new(subscribers: usize) -> Self {
        let mut owner = Owner::new(0);
        let archive = Arc::new(GatedArchive {
            archive: Arc::clone(&owner.archive),
            is_searchable: true.into(),
            is_readable: true.into(),
        });
        let source = Arc::clone(&archive) as Arc<dyn PastSource>;
        owner.publisher.read_past_from(source);
        let named = |i| {
            (
                format!("n{i:02}").into(),
                (subscriber_of_history(), Taken::default()),
            )
        };
        let mut rack = Self {
            owner,
            archive,
            subscribers: (0..subscribers).map(named).collect(),
            writers: [None, None],
            lives: [0; 2],
            random: Random(3),
            now_ns: START_NS,
        };
        (0..2).for_each(|at| rack.begin(at));
        rack
    }

    /// Ends the present life of a stream, and begins its next one.
    fn begin(&mut self, at: usize) {
        if let Some(writer) = self.writers[at].take() {
            self.owner.segment.retire(writer);
        }
        self.now_ns += 1;
        self.lives[at] = self.now_ns;
        let writer = self
            .owner
            .segment
            .register(&descriptor(at), Some(DEPTH), self.now_ns);
        self.writers[at] = Some(writer.unwrap());
    }

    fn append(&mut self, at: usize, count: usize) {
        for _ in 0..count {
            let sample = sample(at, self.now_ns, &mut self.random);
            self.writers[at].as_mut().unwrap().append(&sample).unwrap();
            let archived = (descriptor(at).series_id(), self.lives[at]);
            let mut lives = self.archive.archive.lives.lock().unwrap();
            lives.entry(archived).or_default().push(sample);
        }
    }

    /// Lets half a second pass, in which messages are carried.
    fn step(&mut self) {
        self.now_ns += NS_PER_S / 2;
        for _ in 0..3 {
            while let Some((to, frame)) = self.owner.publisher.due(self.now_ns) {
                let (subscriber, taken) = self.subscribers.get_mut(&to).unwrap();
                subscriber.receive(&frame, self.now_ns, taken).unwrap();
            }
            for (node, (subscriber, _)) in &mut self.subscribers {
                while let Some(message) = subscriber.due(self.now_ns) {
                    let publisher = &mut self.owner.publisher;
                    publisher.receive(node, &message, self.now_ns).unwrap();
                }
            }
        }
    }

    fn steps(&mut self, seconds: i64) {
        (0..2 * seconds).for_each(|_| self.step());
    }

    /// The subscribers are away, while the second stream has lives of so many samples.
    fn miss(&mut self, lives: usize, samples: usize) {
        for _ in 0..lives {
            self.begin(1);
            self.append(1, samples);
        }
        self.append(0, 200);
        self.now_ns += 20 * NS_PER_S;
        assert_eq!(
            self.owner.publisher.due(self.now_ns),
            None,
            "all are forgotten"
        );
        self.begin(1);
        self.append(1, 1);
        self.subscribers
            .values_mut()
            .for_each(|(subscriber, _)| subscriber.ask_again());
    }

    fn states(&self) -> BTreeMap<String, usize> {
        let mut states = BTreeMap::new();
        for row in self.owner.publisher.sent_to() {
            *states.entry(row.state).or_default() += 1;
        }
        states
    }

    /// Every subscriber has every sample of every life once and in order, and nothing was given up.
    fn check_whole(&self) {
        let lives = self.archive.archive.lives.lock().unwrap();
        for (node, (_, taken)) in &self.subscribers {
            for (&(series, life_ns), truth) in &*lives {
                let of_life = taken.streams.iter().filter(|stream| {
                    stream.descriptor.series_id() == series && stream.life_ns == life_ns
                });
                let numbers = of_life.flat_map(|stream| stream.samples.iter().map(|one| one.0));
                let whole: Vec<u64> = (1..=truth.len() as u64).collect();
                assert_eq!(numbers.collect::<Vec<_>>(), whole, "{node}: life {life_ns}");
            }
        }
        let counts = self.owner.publisher.counts();
        let given_up = (
            counts.ended_unsent,
            counts.ended_unread,
            counts.searches_failed,
        );
        assert_eq!((counts.lost, given_up), (0, (0, 0, 0)));
    }
}

fn counted(states: &[(&str, usize)]) -> BTreeMap<String, usize> {
    let named = states
        .iter()
        .map(|(state, count)| ((*state).to_owned(), *count));
    named.collect()
}

#[test]
fn so_many_subscribers_catch_up_at_a_time_and_the_others_wait_without_loss() {
    let waiting = 3;
    let all = CATCH_UPS_MAX + waiting;
    let mut rack = Rack::new(all);
    rack.append(0, 5);
    rack.append(1, 5);
    rack.steps(5);
    assert_eq!(rack.states(), counted(&[("subscribed", all)]));
    rack.miss(3, 100);
    rack.archive.is_readable.store(false, Ordering::Relaxed);
    rack.archive.is_searchable.store(false, Ordering::Relaxed);
    rack.steps(5);
    let both = counted(&[("catching up", CATCH_UPS_MAX), ("waiting", waiting)]);
    assert_eq!(rack.states(), both);
    assert_eq!(rack.owner.publisher.catch_ups(), (CATCH_UPS_MAX, waiting));
    // Gaps in rings are closed while the others wait for their turn.
    rack.archive.is_readable.store(true, Ordering::Relaxed);
    rack.steps(20);
    assert_eq!(rack.states(), both);
    rack.append(0, 1);
    rack.steps(1);
    for (node, (_, taken)) in &rack.subscribers {
        let newest = taken
            .streams
            .iter()
            .filter(|stream| stream.descriptor == descriptor(0));
        let newest = newest
            .filter_map(|stream| stream.samples.last())
            .next_back();
        assert_eq!(
            newest.map(|one| one.0),
            Some(206),
            "{node} has what the rings have"
        );
    }
    rack.archive.is_searchable.store(true, Ordering::Relaxed);
    rack.steps(60);
    assert_eq!(rack.states(), counted(&[("subscribed", all)]));
    rack.check_whole();
}

#[test]
fn a_turn_that_takes_long_ends_when_others_wait_and_goes_on_later() {
    let all = CATCH_UPS_MAX + 1;
    let mut rack = Rack::new(all);
    rack.append(0, 5);
    rack.append(1, 5);
    rack.steps(5);
    rack.miss(1, 24_000);
    // The archive has a moment for each of them every ten seconds, and gives 150 samples at a time.
    let (mut waited, mut whole_s) = (0, None);
    for second in 0..1_800 {
        rack.archive
            .is_readable
            .store(second % 10 == 0, Ordering::Relaxed);
        rack.step();
        rack.step();
        let states = rack.states();
        if states.contains_key("waiting") {
            waited = second;
        }
        if states == counted(&[("subscribed", all)]) && second > 10 {
            whole_s.get_or_insert(second);
        }
    }
    assert!(
        (299..1_700).contains(&waited),
        "one waits until a turn is over: {waited} s"
    );
    assert!(
        whole_s.is_some_and(|second| second > waited),
        "{whole_s:?}, {waited}"
    );
    rack.check_whole();
}
