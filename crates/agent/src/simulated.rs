//! Whole agents in one thread on virtual time, for tests: a [`SimulatedNode`] is a machine with its
//! clock, its disk and its sources, and a [`SimulatedAgent`] the agent that runs there until it is
//! stopped or the power is cut.

#[cfg(test)]
mod bandwidth;
#[cfg(test)]
mod chain;
#[cfg(test)]
mod cluster;
#[cfg(test)]
mod fan_in;
mod machine;
mod network;
mod programs;
mod sources;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};

use barograph_model::{Clock, ManualClock, NS_PER_S};
use barograph_rule::Firing;
use barograph_source::policy::IntervalPolicy;
use barograph_source::{PolicySpec, Poller, Source};
use barograph_statement::StatementKind;
use barograph_stream::{
    AGENT_DOCUMENT, AgentLock, Incarnation, LatestSample, RunDir, SegmentReader,
};

use self::machine::{FillingDisk, MachineClock};
use self::network::{SimulatedFabric, SimulatedNetwork};
use self::programs::FakeProgram;
use self::sources::{FakeSource, FakeWriters};
use crate::Config;
use crate::assemble::{AgentDirectories, agent_document};
use crate::control::wanted;
use crate::event_loop::{Event, EventLoop};
use crate::refusal::StatementAnswer;
use crate::rules::{DeclaredRules, PastEvent, PastReaders, RuleAction, RuleLoop};
use crate::start::intake_config;
use crate::statements::StatementStore;
use barograph_intake::SteppedApplications;
use barograph_recorder::{
    History, JobQueue, ProcessMeter, Randomness, ScopeHistories, Work, World,
};

/// Time at which the simulation begins, in ns since the epoch.
const START_NS: i64 = 1_700_000_000 * NS_PER_S;

/// Number of programs that publish.
const PROGRAMS: usize = 2;
/// Most jobs that wait for one step.
const JOBS_MAX: usize = 64;

/// A process that uses nothing.
struct IdleMeter;

impl ProcessMeter for IdleMeter {
    fn cpu_seconds(&self) -> f64 {
        0.0
    }

    fn resident_bytes(&self) -> Option<i64> {
        None
    }
}

/// Random numbers of a seed.
struct SeededRandomness(Mutex<Random>);

impl Randomness for SeededRandomness {
    fn incarnation(&self) -> io::Result<Incarnation> {
        let mut random = self.0.lock().unwrap();
        Ok(Incarnation(std::array::from_fn(|_| {
            random.below(256) as u8
        })))
    }
}

/// An action that writes down what has fired.
struct RecordedCalls {
    clock: Arc<MachineClock>,
    lines: Mutex<Vec<String>>,
}

impl RecordedCalls {
    fn tell(&self, line: &str) {
        let second = (self.clock.now_ns() - START_NS) / NS_PER_S;
        self.lines.lock().unwrap().push(format!("{second} {line}"));
    }
}

impl RuleAction for RecordedCalls {
    fn fire(&self, firing: &Firing) -> Result<(), String> {
        self.tell(&format!("{firing:?}"));
        Ok(())
    }
}

/// A machine.
pub(crate) struct SimulatedNode {
    pub config: Config,
    /// Whether there are control groups that write to a disk.
    pub has_writers: bool,
    world: World,
    clock: Arc<MachineClock>,
    disk: FillingDisk,
    jobs: JobQueue,
    programs: Mutex<Vec<FakeProgram>>,
    calls: Arc<RecordedCalls>,
    dir: PathBuf,
    seed: u64,
}

/// The time of all machines of a simulation.
pub(crate) fn virtual_time() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(START_NS))
}

/// A directory in memory if possible, since a day has many documents.
pub(crate) fn memory_dir() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    match memory.is_dir() {
        true => tempfile::tempdir_in(memory).unwrap(),
        false => tempfile::tempdir().unwrap(),
    }
}

impl SimulatedNode {
    /// A machine with a new disk in a new directory, whose clock is right.
    pub(crate) fn new(name: &str, dir: &Path, time: &Arc<ManualClock>, seed: u64) -> Self {
        let time = Arc::clone(time);
        Self::with_clock(name, dir, MachineClock { time, ahead_ns: 0 }, seed)
    }

    /// A machine with a new disk in a new directory.
    pub(crate) fn with_clock(name: &str, dir: &Path, clock: MachineClock, seed: u64) -> Self {
        let clock = Arc::new(clock);
        let disk_dir = dir.join("disk");
        fs::create_dir_all(&disk_dir).unwrap();
        let disk = FillingDisk::new(&disk_dir, &disk_dir.join("state/aggregated"));
        let jobs = JobQueue::new(JOBS_MAX);
        let mut config = Config {
            node: name.into(),
            run_dir: dir.join("run"),
            state_dir: disk_dir.join("state"),
            policy: vec![PolicySpec {
                name: "space".into(),
                streams: vec!["filesystem.available.bytes".into()],
                error: Some("64 MiB".into()),
                ..PolicySpec::default()
            }],
            ..Config::default()
        };
        config.archive.dir = disk_dir.join("archive");
        config.sources.sys_root = dir.to_owned();
        config.forecast.streams = vec!["filesystem.*".into()];
        Self {
            config: config.resolve().unwrap(),
            has_writers: false,
            world: World {
                clock: clock.clone(),
                storage: Arc::new(disk.clone()),
                randomness: Arc::new(SeededRandomness(Mutex::new(Random(seed)))),
                work: Work::Stepped(jobs.clone()),
                meter: Arc::new(IdleMeter),
            },
            clock: Arc::clone(&clock),
            disk,
            jobs,
            programs: Mutex::default(),
            calls: Arc::new(RecordedCalls {
                clock,
                lines: Mutex::default(),
            }),
            dir: dir.to_owned(),
            seed,
        }
    }

    /// Starts an agent.
    pub(crate) fn start(&self) -> SimulatedAgent<'_> {
        let (config, world) = (&self.config, &self.world);
        let directories = AgentDirectories::prepare(config, world).unwrap();
        let history = History::start(&config.archive, &config.node, world);
        let parts = directories.assemble(config, world, history, None).unwrap();
        let run_dir = parts.sampling.run_dir.clone();
        let reader = parts.sampling.segment.reader().unwrap();
        let history = Arc::clone(&parts.sampling.history);
        let poller =
            Poller::with_sources(self.sources(), Arc::clone(&world.clock)).with_inline_reads();
        let histories = parts.shared.histories.clone();
        let counts = Arc::clone(&parts.sampling.ingest);
        let applications = SteppedApplications::new(
            &intake_config(config),
            &run_dir,
            &world.clock,
            counts,
            parts.shared,
        );
        let event_loop = EventLoop::new(world, poller, parts.sampling);
        let document = agent_document(
            (&config.node, &config.state_dir),
            &config.schedule.paths(),
            &history,
            parts.started_ns,
            None,
        );
        run_dir
            .publish(AGENT_DOCUMENT, document.to_string().as_bytes(), 0o644)
            .unwrap();
        let kept = parts.statements.of(StatementKind::Rule);
        let clock = &world.clock;
        let demand = parts.cluster_insights.map(|cluster| cluster.demand());
        let rules = DeclaredRules::new(&kept, &run_dir, clock, (self.calls.clone(), None), demand);
        self.tell(&format!("life {}", reader.incarnation()));
        self.begin_programs();
        SimulatedAgent {
            node: self,
            applications: applications.unwrap(),
            histories,
            event_loop,
            past: PastReaders::new(clock),
            rule_loop: None,
            next_rules_ns: i64::MIN,
            rules,
            history,
            statements: parts.statements,
            events: parts.receiver,
            reader,
            fabric: None,
            steps: 0,
            _lock: parts.lock,
        }
    }

    /// Begins programs until there are [`PROGRAMS`].
    fn begin_programs(&self) {
        let mut programs = self.programs.lock().unwrap();
        while programs.len() < PROGRAMS {
            let incarnation = self.world.randomness.incarnation().unwrap();
            let dir = RunDir::new(&self.config.run_dir).ingest_dir();
            programs.push(FakeProgram::begin(&dir, incarnation, &*self.clock));
        }
    }

    /// Ends the oldest program, and begins another one.
    pub(crate) fn replace_program(&self) {
        self.programs.lock().unwrap().remove(0);
        self.begin_programs();
    }

    /// Makes programs put the values that are due, and returns the time of the next put.
    fn step_programs(&self) -> i64 {
        let mut programs = self.programs.lock().unwrap();
        let next = programs
            .iter_mut()
            .map(|program| program.step(&*self.clock));
        next.min().unwrap_or(i64::MAX)
    }

    /// Loses the memory, and all data on the disk that was not synced.
    pub(crate) fn restart_after_power_cut(&self) {
        self.programs.lock().unwrap().clear();
        fs::remove_dir_all(&self.config.run_dir).unwrap();
        let now_s = (self.clock.now_ns() / NS_PER_S).unsigned_abs();
        self.disk.disk.restart(self.seed ^ now_s).unwrap();
    }

    fn sources(&self) -> Vec<(Box<dyn Source>, IntervalPolicy)> {
        let since_start_s = ((self.clock.now_ns() - START_NS) / NS_PER_S).unsigned_abs();
        let seed = self.seed.wrapping_add(since_start_s);
        let fixed = |seconds: i64| IntervalPolicy::Fixed {
            interval_ns: seconds * NS_PER_S,
        };
        let mut sources: Vec<(Box<dyn Source>, IntervalPolicy)> = vec![
            (Box::new(FakeSource::disk(seed)), fixed(1)),
            (Box::new(FakeSource::filesystem(seed)), fixed(10)),
        ];
        if self.has_writers {
            sources.push((Box::new(FakeWriters::new()), fixed(1)));
        }
        sources
    }

    /// The directories of the archives: the agent's own, and those of the scopes of its programs.
    pub(crate) fn archives(&self) -> [PathBuf; 3] {
        let us = rustix::process::getuid().as_raw();
        let scopes = self.config.state_dir.join("applications");
        let of_scope = |scope: &str| scopes.join(scope).join("archive");
        let own = self.config.archive.dir.clone();
        [own, of_scope(&format!("u{us}")), of_scope("all")]
    }

    /// Writes a line between those of calls, for the comparison of two runs.
    pub(crate) fn tell(&self, line: &str) {
        self.calls.tell(line);
    }

    /// All calls and lines so far.
    pub(crate) fn told(&self) -> String {
        self.calls.lines.lock().unwrap().join("\n")
    }

    /// All files of the machine, by path, apart from locks, segments and the files of programs, in
    /// which most bytes are memory that nobody uses.
    pub(crate) fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let (mut files, mut dirs) = (BTreeMap::new(), vec![self.dir.clone()]);
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                let name = path.file_name().unwrap().to_str().unwrap();
                if path.is_dir() && name != "ingest" {
                    dirs.push(path);
                } else if path.is_file() && name != "lock" && name != "segment" {
                    files.insert(path.clone(), fs::read(&path).unwrap());
                }
            }
        }
        files
    }
}

/// A running agent.
pub(crate) struct SimulatedAgent<'n> {
    node: &'n SimulatedNode,
    pub event_loop: EventLoop<'n>,
    rules: DeclaredRules,
    rule_loop: Option<RuleLoop>,
    next_rules_ns: i64,
    past: PastReaders,
    applications: SteppedApplications<'n>,
    histories: ScopeHistories,
    history: Arc<History>,
    statements: Arc<StatementStore>,
    events: Receiver<Event>,
    reader: SegmentReader,
    /// The agent's part in a cluster.
    pub fabric: Option<SimulatedFabric>,
    /// Number of steps so far.
    pub steps: u64,
    _lock: AgentLock,
}

impl SimulatedAgent<'_> {
    /// Does what is due in every loop, and returns the time of the next.
    pub(crate) fn step(&mut self) -> i64 {
        self.steps += 1;
        while let Ok(event) = self.events.try_recv() {
            self.event_loop.apply(event);
        }
        let next_ns = self.event_loop.step();
        let now_ns = self.node.clock.monotonic_ns();
        let archive_ns = self.history.step(now_ns);
        let programs_ns = self.node.step_programs();
        let fabric = self.fabric.as_mut();
        let fabric_ns = fabric.map_or(i64::MAX, SimulatedFabric::step);
        next_ns
            .min(fabric_ns)
            .min(self.step_rules())
            .min(archive_ns)
            .min(programs_ns)
            .min(self.step_applications())
    }

    /// Does what is due in the intake, its jobs and the archives of its scopes.
    fn step_applications(&mut self) -> i64 {
        while self.node.jobs.run_next() {}
        let next_ns = self.applications.step();
        let now_ns = self.node.clock.monotonic_ns();
        next_ns.min(self.histories.step(now_ns))
    }

    fn step_rules(&mut self) -> i64 {
        if self.rule_loop.is_none() {
            self.rule_loop = self.rules.take_loop();
            self.next_rules_ns = i64::MIN;
        }
        if self.node.clock.monotonic_ns() >= self.next_rules_ns {
            self.next_rules_ns = self.next_step_of_rules();
        }
        self.next_rules_ns
    }

    fn next_step_of_rules(&mut self) -> i64 {
        let Some(rule_loop) = &mut self.rule_loop else {
            return i64::MAX;
        };
        let Some(next_ns) = rule_loop.step() else {
            self.rule_loop = None;
            return i64::MAX;
        };
        let Some(order) = rule_loop.take_order() else {
            return next_ns;
        };
        self.past.read(order, &mut |found| {
            rule_loop.apply(PastEvent::Found(found));
            true
        });
        rule_loop.apply(PastEvent::Ended);
        self.node.clock.monotonic_ns()
    }

    /// Runs this agent alone for so long.
    pub(crate) fn run(&mut self, seconds: i64) {
        let end_ns = self.node.clock.monotonic_ns() + seconds * NS_PER_S;
        let time = Arc::clone(&self.node.clock.time);
        run(&time, end_ns, std::slice::from_mut(self));
    }

    /// Executes a statement as the server does: it is kept, and applied.
    pub(crate) fn execute(&mut self, sql: &str) -> StatementAnswer {
        let statements = Arc::clone(&self.statements);
        statements.execute(sql, |head| match head.kind {
            StatementKind::Rule => self.rules.execute(sql),
            // A tree is outside of the simulation.
            StatementKind::Watch => Ok(serde_json::Value::Null),
            kind => {
                let (reply, answer) = sync_channel(1);
                let event = Event::Execute(kind, sql.to_owned(), reply);
                self.event_loop.apply(event);
                answer.try_recv().unwrap()
            }
        })
    }

    /// Applies a configuration that was read again.
    pub(crate) fn reload(&mut self, config: &Config) -> StatementAnswer {
        let (reply, answer) = sync_channel(1);
        let wanted = wanted(config, &self.statements, None);
        self.event_loop.apply(Event::Reload(wanted, reply));
        Ok(serde_json::json!(answer.try_recv().unwrap()))
    }

    /// Joins the cluster that the configuration names.
    pub(crate) fn join(&mut self, network: &SimulatedNetwork) {
        let (config, world) = (&self.node.config, &self.node.world);
        let fabric = SimulatedFabric::join(network, config, world);
        self.fabric = Some(fabric);
    }

    /// Stops the parts in order.
    pub(crate) fn stop(mut self) {
        self.fabric = None;
        self.rules.stop();
        self.applications.stop();
        let clock = &self.node.clock;
        loop {
            let next_ns = self.step_applications();
            if self.applications.has_ended() {
                break;
            }
            let ahead_ns = next_ns - clock.monotonic_ns();
            clock.time.advance(ahead_ns.max(0));
        }
        drop(self.applications);
        self.event_loop.stop();
        self.history.close();
    }

    /// Ends as the process of a machine without power does: nothing is written any more.
    pub(crate) fn cut(self) {
        self.node.disk.disk.fail_after(0);
        drop(self.fabric);
        drop(self.applications);
        self.history.close();
        self.node.jobs.clear();
    }

    /// The samples in the ring of each stream, by name and labels.
    pub(crate) fn samples(&self) -> BTreeMap<String, String> {
        let directory = self.reader.directory();
        let of = |entry: &barograph_stream::DirectoryEntry| {
            let mut samples = Vec::new();
            let handle = self.reader.stream(entry);
            handle.scan(0, &mut samples)?;
            let looked_ns = handle.looked_ns();
            Some((
                entry.descriptor.to_string(),
                format!("{samples:?} {looked_ns}"),
            ))
        };
        directory.entries.iter().filter_map(of).collect()
    }

    /// The newest value of the stream of this name.
    pub(crate) fn value(&self, name: &str) -> Option<f64> {
        let directory = self.reader.directory();
        let mut entries = directory.entries.iter();
        let entry = entries.find(|e| e.descriptor.name.as_str() == name)?;
        match self.reader.stream(entry).latest() {
            LatestSample::Sample { sample, .. } => sample.value.as_f64(),
            _ => None,
        }
    }
}

/// Runs agents until `end_ns`, from one due time to the next.
pub(crate) fn run(clock: &ManualClock, end_ns: i64, agents: &mut [SimulatedAgent<'_>]) {
    loop {
        let next_ns = agents.iter_mut().map(SimulatedAgent::step).min();
        let next_ns = next_ns.unwrap_or(end_ns).min(end_ns);
        let ahead_ns = next_ns - clock.monotonic_ns();
        clock.advance(ahead_ns.max(0));
        if next_ns >= end_ns {
            return;
        }
    }
}

/// Random numbers of a seed (Knuth's MMIX generator).
pub(crate) struct Random(pub u64);

impl Random {
    /// Returns a number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}
