//! Whole agents of a cluster on virtual time, over a network that fails, on disks that forget: a
//! node keeps the history of the others, and lacks nothing when everything has healed. The clocks
//! of all nodes differ by minutes.

mod absence;
mod bounds;
mod full_disk;

use barograph_archive::ArchiveReader;
use barograph_model::{SeriesId, Span};
use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;

use super::network::NetworkFaults;
use super::*;

/// The node that keeps the history of the others.
const KEEPER: &str = "keeper";
const NODES: [&str; 3] = [KEEPER, "b", "c"];
/// Most by which the clock of a machine is wrong, in seconds.
const AHEAD_S_MAX: i64 = 600;
/// Time for which things happen, in seconds.
const TROUBLE_S: i64 = 240;
/// Time after which everything has healed, in seconds.
const HEALED_S: i64 = 60;
/// Longest time between two events, in seconds.
const EVENT_S_MAX: u64 = 20;
/// Time after which a mirror of a node that is cut off is stale, in ns.
const STALE_NS: i64 = 12 * NS_PER_S;
/// Time before the end from which on samples may not have arrived yet, in ns.
const ON_THE_WAY_NS: i64 = 5 * NS_PER_S;

/// A sample of an archive: its life, its number, and what it says.
type Kept = BTreeMap<(i64, u64), String>;

/// The samples of a node in an archive by series. None is there twice.
fn samples_of(archive: &Path, node: &str, told: &[String]) -> BTreeMap<SeriesId, Kept> {
    let view = ArchiveReader::open(archive).view().unwrap();
    let series = view.series().iter().enumerate();
    let wanted: Vec<usize> = series
        .filter(|(_, one)| *one.node == *node)
        .map(|(at, _)| at)
        .collect();
    let mut samples: BTreeMap<SeriesId, Kept> = BTreeMap::new();
    for chunk in view.scan(&wanted, Span::ALL, &AtomicBool::new(false)) {
        let chunk = chunk.unwrap();
        let kept = samples.entry(view.series()[chunk.series].id).or_default();
        for (row, &number) in chunk.columns.numbers.iter().enumerate() {
            let sample = chunk.columns.sample(row).unwrap();
            let before = kept.insert((chunk.life, number), format!("{sample:?}"));
            let name = &view.series()[chunk.series].descriptor;
            assert_eq!(
                before, None,
                "{number} of {} of {name} of {node} is there twice: {told:?}",
                chunk.life
            );
        }
    }
    samples
}

/// Since when each machine has not been heard by each other one, ns since the epoch; the first
/// index is that of the machine that does not hear.
type Away = [[Option<i64>; NODES.len()]; NODES.len()];

/// The machines, of which agents run on some.
struct Rack<'n> {
    network: SimulatedNetwork,
    clock: Arc<ManualClock>,
    nodes: &'n [SimulatedNode],
    agents: Vec<Option<SimulatedAgent<'n>>>,
    /// The machine that is cut off, since this time.
    cut: Option<(usize, i64)>,
    /// The machines that have lost what was not on their disks.
    forgot: BTreeSet<usize>,
    /// The first sample that the keeper's archive of each other machine has of each series, after
    /// ten seconds.
    first: Vec<BTreeMap<SeriesId, (i64, u64)>>,
    /// Lines that tell what has happened, printed when a run fails.
    told: Vec<String>,
}

/// Three machines, of which one keeps the history of the others.
fn machines(dir: &Path, time: &Arc<ManualClock>, seed: u64) -> [SimulatedNode; NODES.len()] {
    let mut random = Random(seed << 8);
    NODES.map(|name| {
        let ahead_s = random.below(2 * AHEAD_S_MAX.unsigned_abs()) as i64 - AHEAD_S_MAX;
        let clock = MachineClock {
            time: Arc::clone(time),
            ahead_ns: ahead_s * NS_PER_S,
        };
        let mut node = SimulatedNode::with_clock(name, &dir.join(name), clock, seed);
        node.config.cluster.name = "rack".into();
        node.config.cluster.mirror = vec!["*".into()];
        // Rings turn over in seconds.
        node.config.streams.depth = 16;
        bounds::set(&mut node.config.cluster);
        if name == KEEPER {
            node.config.cluster.aggregator.streams = vec!["*".into()];
            node.config.cluster.aggregator.nodes = vec!["b".into(), "c".into()];
        }
        node
    })
}

impl<'n> Rack<'n> {
    /// Starts an agent on each machine.
    fn new(nodes: &'n [SimulatedNode; NODES.len()], time: &Arc<ManualClock>, seed: u64) -> Self {
        let mut rack = Self {
            network: SimulatedNetwork::new(time.clone(), !seed),
            clock: Arc::clone(time),
            nodes,
            agents: NODES.iter().map(|_| None).collect(),
            cut: None,
            forgot: BTreeSet::new(),
            first: Vec::new(),
            told: vec![format!("seed {seed}")],
        };
        for (node, name) in nodes.iter().zip(NODES) {
            let ahead_s = node.clock.ahead_ns / NS_PER_S;
            rack.told
                .push(format!("the clock of {name} is ahead by {ahead_s} s"));
        }
        (0..NODES.len()).for_each(|at| rack.start(at));
        // Something of every stream is kept.
        rack.run(10);
        let kept = (1..NODES.len()).map(|at| rack.first_kept(at));
        rack.first = kept.collect();
        assert!(rack.first.iter().all(|first| first.len() > 10));
        rack
    }

    fn run(&mut self, seconds: i64) {
        let end_ns = self.clock.monotonic_ns() + seconds * NS_PER_S;
        loop {
            let agents = self.agents.iter_mut().flatten();
            let next_ns = agents.map(SimulatedAgent::step).min().unwrap_or(end_ns);
            let ahead_ns = next_ns.min(end_ns) - self.clock.monotonic_ns();
            self.clock.advance(ahead_ns.max(0));
            if next_ns >= end_ns {
                return;
            }
        }
    }

    fn tell(&mut self, what: &str) {
        let second = (self.clock.now_ns() - START_NS) / NS_PER_S;
        self.told.push(format!("{second} {what}"));
    }

    fn start(&mut self, at: usize) {
        let mut agent = self.nodes[at].start();
        agent.join(&self.network);
        self.agents[at] = Some(agent);
    }

    /// Lets something happen.
    fn meet_chance(&mut self, random: &mut Random) {
        let at = random.below(NODES.len() as u64) as usize;
        let name = NODES[at];
        match random.below(9) {
            0 | 1 => match self.agents[at].take() {
                Some(agent) => {
                    self.tell(&format!("{name} is stopped"));
                    agent.stop();
                }
                None => {
                    self.tell(&format!("{name} is started"));
                    self.start(at);
                }
            },
            2 => {
                if let Some(agent) = self.agents[at].take() {
                    self.tell(&format!("the power of {name} is cut"));
                    agent.cut();
                    self.nodes[at].restart_after_power_cut();
                    self.forgot.insert(at);
                }
            }
            3 | 4 if self.cut.is_none() => {
                self.tell(&format!("{name} is cut off"));
                self.network.cut(name, true);
                self.cut = Some((at, self.clock.now_ns()));
            }
            3..=5 => self.connect_again(),
            6 => {
                let faults = NetworkFaults {
                    lost: random.below(12),
                    doubled: random.below(20),
                    delay_ms_max: random.below(200),
                };
                self.tell(&format!("{faults:?}"));
                self.network.set_faults(faults);
            }
            7 => self.fill_disk(!self.nodes[0].disk.is_full()),
            _ => self.start_all(),
        }
    }

    fn start_all(&mut self) {
        for (at, name) in NODES.iter().enumerate() {
            if self.agents[at].is_none() {
                self.tell(&format!("{name} is started"));
                self.start(at);
            }
        }
    }

    /// Makes the disk of the keeper's histories full, or makes room on it.
    fn fill_disk(&mut self, is_full: bool) {
        self.tell(&format!("the keeper's disk is full: {is_full}"));
        self.nodes[0].disk.set_full(is_full);
    }

    fn connect_again(&mut self) {
        if let Some((at, _)) = self.cut.take() {
            self.tell(&format!("{} is connected again", NODES[at]));
            self.network.cut(NODES[at], false);
        }
    }

    /// A mirror of a node that has been away for long says so.
    fn check_mirrors(&self, away: &mut Away) {
        let now_ns = self.clock.now_ns();
        let pairs = (0..NODES.len()).flat_map(|here| (0..NODES.len()).map(move |of| (here, of)));
        for (here, of) in pairs.filter(|(here, of)| here != of) {
            let is_cut = self.cut.is_some_and(|(cut, _)| cut == here || cut == of);
            let since = &mut away[here][of];
            *since = match self.agents[of].is_none() || is_cut {
                true => since.or(Some(now_ns)),
                false => None,
            };
            let is_long = since.is_some_and(|since_ns| now_ns - since_ns > STALE_NS);
            if is_long
                && self.agents[here].is_some()
                && let Ok(mirror) = SegmentReader::of(&self.mirror(here, of))
            {
                let here_ns = self.nodes[here].clock.now_ns();
                let what = format!("{} of {}", NODES[here], NODES[of]);
                assert!(!mirror.is_alive(here_ns), "{what}: {:?}", self.told);
            }
        }
    }

    /// The run directory of the mirror of a node.
    fn mirror(&self, here: usize, of: usize) -> RunDir {
        RunDir::new(&self.nodes[here].config.run_dir).mirror(NODES[of])
    }

    /// The mirrors of all nodes have what the others have, and what programs there publish for
    /// everyone.
    fn check_views(&self) {
        let pairs = (0..NODES.len()).flat_map(|here| (0..NODES.len()).map(move |of| (here, of)));
        for (here, of) in pairs.filter(|(here, of)| here != of) {
            let mirror = self.mirror(here, of);
            let own = &self.agents[of].as_ref().unwrap().reader;
            self.check_view(own, &mirror, (here, of));
            let scope = RunDir::new(&self.nodes[of].config.run_dir).scope("all");
            let own = SegmentReader::of(&scope).unwrap();
            self.check_view(&own, &mirror.scope("all"), (here, of));
        }
    }

    /// A mirror has what its owner has, apart from samples on their way.
    fn check_view(&self, own: &SegmentReader, mirror: &RunDir, (here, of): (usize, usize)) {
        let mirror = SegmentReader::of(mirror).unwrap();
        let here_ns = self.nodes[here].clock.now_ns();
        assert!(mirror.is_alive(here_ns), "{:?}", self.told);
        self.check_rings(own, &mirror);
        self.check_ages(&mirror, here, of);
        let counts = |reader: &SegmentReader| {
            let entries = reader.directory().entries.into_iter();
            let count = |entry| {
                let count = reader.stream(&entry).count()?;
                let life_ns = entry.created_ns;
                Some((entry.descriptor.to_string(), (life_ns, count)))
            };
            entries.filter_map(count).collect::<BTreeMap<_, _>>()
        };
        let (own, mirror) = (counts(own), counts(&mirror));
        assert!(own.keys().eq(mirror.keys()), "{:?}", self.told);
        for (name, (life_ns, count)) in &own {
            let (mirrored_ns, mirrored) = mirror[name];
            assert_eq!(mirrored_ns, *life_ns, "{name}: {:?}", self.told);
            let is_near = mirrored <= *count && mirrored + 3 >= *count;
            assert!(is_near, "{name}: {mirrored} of {count}: {:?}", self.told);
        }
    }

    /// The keeper's archives of a node have everything that the node's own have: of its own
    /// streams, and of what programs there publish for everyone.
    fn check_histories(&self, at: usize, until_ns: i64) -> [usize; 2] {
        let config = &self.nodes[at].config;
        let kept = self.nodes[0].config.state_dir.join("aggregated");
        let kept = kept.join(NODES[at]);
        let own = config.state_dir.join("applications/all/archive");
        let of_scope = (own.as_path(), kept.join("applications/all"));
        [(config.archive.dir.as_path(), kept), of_scope]
            .map(|(own, kept)| self.check_history(at, (own, &kept), until_ns))
    }

    /// An archive that the keeper has of a node has everything that the node's own has, from the
    /// first sample that was kept. Returns the number of samples that were compared.
    fn check_history(&self, at: usize, (own, kept): (&Path, &Path), until_ns: i64) -> usize {
        let node = NODES[at];
        let own = samples_of(own, node, &self.told);
        let kept = samples_of(kept, node, &self.told);
        let mut compared = 0;
        for (series, own) in &own {
            let told = || format!("{node} {series:?}: {:?}", self.told);
            let Some(kept) = kept.get(series) else {
                panic!("nothing is kept of {}", told());
            };
            let first = *kept.keys().next().unwrap();
            // The mark of the end, which was written after the keeper had stopped.
            let last = own.last_key_value().map(|(place, _)| place);
            let wanted = own
                .range(first..)
                .filter(|((life_ns, _), _)| *life_ns < until_ns);
            for (place, sample) in wanted {
                let ts: i64 = ts_of(sample);
                match kept.get(place) {
                    Some(other) => assert_eq!(other, sample, "{place:?} {}", told()),
                    None if ts >= until_ns || Some(place) == last => {}
                    None => panic!("{place:?} is lacking in {}", told()),
                }
                compared += 1;
            }
            if !self.forgot.contains(&at) {
                let strange = kept.keys().find(|place| !own.contains_key(*place));
                let is_new = strange.is_none_or(|place| ts_of(&kept[place]) >= until_ns);
                assert!(is_new, "{strange:?} is not of {}", told());
            }
        }
        compared
    }
}

/// The time in the text of a sample.
fn ts_of(sample: &str) -> i64 {
    let (_, rest) = sample.split_once("ts: ").unwrap();
    rest.split([',', ' ']).next().unwrap().parse().unwrap()
}

impl Rack<'_> {
    /// After everything has healed: all nodes see all others, and the keeper's archives have
    /// everything. Returns the samples that were compared, of nodes and of programs, and how many
    /// came from archives.
    fn finish(mut self, healed_s: i64) -> ([usize; 2], u64) {
        self.network.set_faults(NetworkFaults::default());
        self.fill_disk(false);
        self.connect_again();
        self.start_all();
        self.run(healed_s);
        self.check_views();
        self.check_bounds();
        let mut past = 0;
        for agent in self.agents.iter().flatten() {
            let fabric = agent.fabric.as_ref().unwrap();
            past += fabric.status().past;
            let faults = fabric.peers().into_iter().filter_map(|peer| peer.fault);
            assert_eq!(faults.collect::<Vec<_>>(), [""; 0], "{:?}", self.told);
        }
        // The last samples are on all disks.
        let until_ns = self.clock.now_ns() - ON_THE_WAY_NS;
        let agents = self.agents.drain(..).flatten();
        agents.for_each(SimulatedAgent::stop);
        // Samples have the times of their owner's clock.
        let until_ns = |at: usize| until_ns + self.nodes[at].clock.ahead_ns;
        (1..NODES.len()).for_each(|at| self.check_first_kept(at));
        let compared = (1..NODES.len()).map(|at| self.check_histories(at, until_ns(at)));
        let compared = compared.fold([0; 2], |all, of_node| {
            [all[0] + of_node[0], all[1] + of_node[1]]
        });
        (compared, past)
    }
}

/// Three machines live through trouble, and are well afterwards. Returns the samples that were
/// compared, of nodes and of programs, and how many came from archives.
fn live_through(seed: u64) -> ([usize; 2], u64) {
    let dir = memory_dir();
    let time = virtual_time();
    let nodes = machines(dir.path(), &time, seed);
    let mut rack = Rack::new(&nodes, &time, seed);
    let mut random = Random(seed);
    let end_ns = START_NS + TROUBLE_S * NS_PER_S;
    let mut away = Away::default();
    while time.now_ns() < end_ns {
        rack.meet_chance(&mut random);
        for _ in 0..1 + random.below(EVENT_S_MAX) {
            rack.run(1);
            rack.check_mirrors(&mut away);
            rack.check_bounds();
        }
    }
    rack.finish(HEALED_S)
}

#[test]
fn a_cluster_lives_through_trouble_and_lacks_nothing_afterwards() {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let seeds = match number("BAROGRAPH_SEED") {
        Some(seed) => seed..=seed,
        None => 1..=number("BAROGRAPH_SEEDS").unwrap_or(6),
    };
    let (mut compared, mut of_programs, mut past) = (0, 0, 0);
    for seed in seeds {
        let ([of_nodes, of_scopes], from_archives) = live_through(seed);
        compared += of_nodes;
        of_programs += of_scopes;
        past += from_archives;
    }
    assert!(compared > 1_000, "{compared}");
    assert!(of_programs > 20, "{of_programs}");
    // One run alone may have needed none.
    let is_alone = number("BAROGRAPH_SEED").is_some();
    assert!(past > 0 || is_alone, "archives were needed");
}
