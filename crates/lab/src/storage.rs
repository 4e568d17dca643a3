//! A simulated storage: applications that compute and do I/O in turn, and a policy of I/O
//! scheduling that says who may. The policy is the code that an agent runs.
//!
//! The storage is a fluid: bytes of all phases with a grant flow at once, by their shares. `k`
//! phases at a time get the bandwidth divided by `1 + interference * (k - 1)` in sum, which stands
//! for seeks and locks. Time goes from event to event: a phase begins or ends, or a turn is over.
//!
//! Applications are drawn ([`simulate`]), or were recorded ([`replay`]).

use std::collections::VecDeque;

use barograph_control::{
    ApplicationHistory, IoPhase, PhaseGrant, SchedulePolicy, ScheduleState, UserShares,
    offered_load,
};
use barograph_forecast::Random;

/// Bytes/s of the storage when one phase alone uses it. Times and not bytes matter here.
const BANDWIDTH: f64 = 1e9;
/// Nanoseconds of a second.
const NS_PER_S: f64 = 1e9;
/// A phase has ended when fewer bytes than this are left.
const BYTES_LEFT: f64 = 1.0;
/// Shortest time in which an application computes, as a share of the mean.
const COMPUTE_MIN: f64 = 0.05;

/// What is simulated.
#[derive(Clone, Debug, PartialEq)]
pub struct StorageCase {
    /// Mean seconds between two phases of each application, when it is alone.
    pub periods_s: Vec<f64>,
    /// The standard deviation of the time of computing, by its mean.
    pub variation: f64,
    /// The share of the storage's time that all applications together need; each needs the same.
    pub load: f64,
    /// How much phases at a time cost each other.
    pub interference: f64,
    /// The standard deviation of the logarithm of declared sizes by true ones; `None` for phases
    /// that declare nothing.
    pub declared: Option<f64>,
    /// The length of time, in seconds.
    pub seconds: f64,
    /// Whose the applications are.
    pub users: StorageUsers,
    /// A further user that has phases open all the time. The quality is that of the others.
    pub backlog: Option<Backlog>,
}

/// Applications that do nothing but I/O.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backlog {
    /// Their number: so many phases are open all the time.
    pub applications: usize,
    /// Seconds that each phase takes alone.
    pub alone_s: f64,
}

/// Whose the applications of a case are.
#[derive(Clone, Debug, PartialEq)]
pub enum StorageUsers {
    /// All are of one user.
    One,
    /// Each has a user of its own.
    Each,
    /// As given; further ones are of the last user.
    Of(Vec<u32>),
}

impl StorageUsers {
    fn of(&self, application: usize, applications: usize) -> u32 {
        match self {
            Self::One => 0,
            // Those of the backlog.
            _ if application >= applications => u32::MAX,
            Self::Each => u32::try_from(application).unwrap_or(u32::MAX),
            Self::Of(users) => {
                let last = users.last().copied().unwrap_or(0);
                users.get(application).copied().unwrap_or(last)
            }
        }
    }
}

impl StorageCase {
    /// 20 applications each with periods of 10, 100 and 1,000 s, whose times of computing vary by a
    /// quarter, and which tell the size of each phase.
    pub fn mixed(load: f64, interference: f64) -> Self {
        Self {
            periods_s: [10.0, 100.0, 1_000.0].repeat(20),
            variation: 0.25,
            load,
            interference,
            declared: Some(0.0),
            seconds: 20_000.0,
            users: StorageUsers::One,
            backlog: None,
        }
    }
}

/// How well applications fared.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ScheduleQuality {
    /// The share of time in which applications compute, on average.
    pub utilisation: f64,
    /// How many times as long as alone a phase took: the mean of each application, and of these the
    /// geometric mean and the largest.
    pub slowdown: f64,
    /// See [`Self::slowdown`].
    pub slowdown_worst: f64,
    /// How many times as long as alone an application took: the geometric mean and the largest.
    pub stretch: f64,
    /// See [`Self::stretch`].
    pub stretch_worst: f64,
    /// The number of applications none of whose phases has ended.
    pub starved: usize,
}

/// A phase of an application that was recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecordedPhase {
    /// Seconds since the end of the phase before, or since the beginning of the record.
    pub compute_s: f64,
    /// The bytes that it read and wrote.
    pub bytes: f64,
    /// The bytes that it had declared.
    pub declared: Option<u64>,
    /// 1 to 10, 10 for the most important.
    pub priority: u8,
    /// The number of its user, where users are recorded.
    pub user: u32,
}

/// What an application does between its phases, and in them.
enum Work {
    /// Phases that are drawn: seconds of one alone, and mean seconds of computing.
    Drawn { alone_s: f64, compute_s: f64 },
    /// Recorded phases that are still to come.
    Recorded(VecDeque<RecordedPhase>),
}

impl Work {
    /// The next phase; `None` if there is none.
    fn next(&mut self, case: &StorageCase, random: &mut Random) -> Option<RecordedPhase> {
        match self {
            Self::Drawn { alone_s, compute_s } => {
                let noise = 1.0 + case.variation * random.normal();
                Some(RecordedPhase {
                    compute_s: *compute_s * noise.max(COMPUTE_MIN),
                    bytes: *alone_s * BANDWIDTH,
                    declared: None,
                    priority: 5,
                    user: 0,
                })
            }
            Self::Recorded(phases) => phases.pop_front(),
        }
    }
}

struct Application {
    work: Work,
    /// The phase that is computed for, or that is done.
    current: RecordedPhase,
    /// Seconds that the phases so far take alone.
    alone_sum_s: f64,
    is_over: bool,
    history: ApplicationHistory,
    /// The end of computing; `None` in a phase.
    until_s: Option<f64>,
    /// Seconds of computing before the current phase.
    computing_s: f64,
    begun_s: f64,
    computed_s: f64,
    slowdowns: Vec<f64>,
    ended_s: f64,
}

/// A phase with its bytes, of which there are parts in a fluid.
struct FluidPhase {
    phase: IoPhase,
    left: f64,
}

/// Runs the applications of a case under a policy.
pub fn simulate(policy: &SchedulePolicy, case: &StorageCase, seed: u64) -> ScheduleQuality {
    let mut random = Random::new(seed);
    let count = case.periods_s.len().max(1) as f64;
    let drawn = case.periods_s.iter().map(|period_s| {
        let alone_s = period_s * case.load / count;
        let first = RecordedPhase {
            compute_s: random.unit() * period_s,
            bytes: alone_s * BANDWIDTH,
            declared: None,
            priority: 5,
            user: 0,
        };
        let compute_s = (period_s - alone_s).max(0.0);
        Application::new(first, Work::Drawn { alone_s, compute_s })
    });
    let mut applications: Vec<Application> = drawn.collect();
    if let Some(Backlog {
        applications: count,
        alone_s,
    }) = case.backlog
    {
        let first = RecordedPhase {
            compute_s: 0.0,
            bytes: alone_s * BANDWIDTH,
            declared: None,
            priority: 5,
            user: 0,
        };
        let work = || Work::Drawn {
            alone_s,
            compute_s: 0.0,
        };
        applications.extend((0..count).map(|_| Application::new(first, work())));
    }
    run(policy, case, random, BANDWIDTH, applications)
}

/// Runs applications that were recorded under a policy: they compute for as long and do as much I/O
/// as in the record, on a storage of so many bytes/s. What they waited for then is not in it.
pub fn replay(
    policy: &SchedulePolicy,
    bandwidth: f64,
    interference: f64,
    applications: &[Vec<RecordedPhase>],
) -> ScheduleQuality {
    let case = StorageCase {
        interference,
        seconds: f64::INFINITY,
        ..StorageCase::mixed(0.0, interference)
    };
    let recorded = applications.iter().filter_map(|phases| {
        let mut phases: VecDeque<RecordedPhase> = phases.iter().copied().collect();
        let first = phases.pop_front()?;
        Some(Application::new(first, Work::Recorded(phases)))
    });
    let applications = recorded.collect();
    run(policy, &case, Random::new(0), bandwidth, applications)
}

fn run(
    policy: &SchedulePolicy,
    case: &StorageCase,
    random: Random,
    bandwidth: f64,
    applications: Vec<Application>,
) -> ScheduleQuality {
    let mut storage = Storage {
        case,
        bandwidth,
        applications,
        random,
        now_s: 0.0,
        phases: Vec::new(),
        grants: Vec::new(),
        shares: UserShares::default(),
        plan_s: f64::INFINITY,
        phases_begun: 0,
    };
    while storage.step(policy) {}
    storage.quality()
}

impl Application {
    fn new(first: RecordedPhase, work: Work) -> Self {
        Self {
            work,
            current: first,
            alone_sum_s: 0.0,
            is_over: false,
            history: ApplicationHistory::default(),
            until_s: Some(first.compute_s),
            computing_s: first.compute_s,
            begun_s: 0.0,
            computed_s: 0.0,
            slowdowns: Vec::new(),
            ended_s: 0.0,
        }
    }
}

struct Storage<'a> {
    case: &'a StorageCase,
    /// Bytes/s when one phase alone uses it.
    bandwidth: f64,
    random: Random,
    now_s: f64,
    applications: Vec<Application>,
    phases: Vec<FluidPhase>,
    grants: Vec<PhaseGrant>,
    shares: UserShares,
    plan_s: f64,
    phases_begun: u64,
}

impl Storage<'_> {
    /// Goes on to the next event; false at the end.
    fn step(&mut self, policy: &SchedulePolicy) -> bool {
        let next_s = self.next_s();
        if next_s == f64::INFINITY {
            // All that was recorded is over.
            return false;
        }
        self.flow(next_s - self.now_s);
        self.now_s = next_s;
        if next_s >= self.case.seconds {
            return false;
        }
        self.end_phases();
        self.begin_phases();
        self.plan(policy);
        true
    }

    /// Bytes/s of a grant.
    fn rate(&self, grant: &PhaseGrant) -> f64 {
        let others = self.grants.len().saturating_sub(1) as f64;
        grant.share * self.bandwidth / (1.0 + self.case.interference * others)
    }

    fn next_s(&self) -> f64 {
        let computing = self.applications.iter().filter_map(|it| it.until_s);
        let flowing = self.grants.iter().filter_map(|grant| {
            let phase = self.phases.iter().find(|it| it.phase.id == grant.id)?;
            // Less than a nanosecond is no time of the policy's.
            Some(self.now_s + (phase.left / self.rate(grant)).max(1e-9))
        });
        let times = computing.chain(flowing);
        times.fold(self.case.seconds.min(self.plan_s), f64::min)
    }

    fn flow(&mut self, seconds: f64) {
        let rates = self.grants.iter().map(|grant| (grant.id, self.rate(grant)));
        let rates: Vec<_> = rates.collect();
        for (id, rate) in rates {
            if let Some(flowing) = self.phases.iter_mut().find(|it| it.phase.id == id) {
                flowing.left -= rate * seconds.max(0.0);
                let all = self.applications[flowing.phase.application as usize]
                    .current
                    .bytes;
                flowing.phase.bytes_done = (all - flowing.left).max(0.0) as u64;
            }
        }
    }

    fn end_phases(&mut self) {
        let now_s = self.now_s;
        let (ended, going): (Vec<_>, Vec<_>) = std::mem::take(&mut self.phases)
            .into_iter()
            .partition(|it| it.left < BYTES_LEFT);
        self.phases = going;
        for phase in ended {
            let grant = self.grants.iter().find(|grant| grant.id == phase.phase.id);
            let served = grant.map_or(0.0, |grant| grant.share);
            let (user, priority) = (phase.phase.user, phase.phase.priority);
            self.shares.end(user, priority, served, nanoseconds(now_s));
            let application = &mut self.applications[phase.phase.application as usize];
            let alone_s = application.current.bytes / self.bandwidth;
            application
                .slowdowns
                .push((now_s - application.begun_s) / alone_s);
            application.alone_sum_s += alone_s;
            application.computed_s += application.computing_s;
            application.history.end(now_s, alone_s);
            application.ended_s = now_s;
            let Some(next) = application.work.next(self.case, &mut self.random) else {
                application.is_over = true;
                continue;
            };
            application.current = next;
            application.computing_s = next.compute_s;
            application.until_s = Some(now_s + next.compute_s);
        }
    }

    fn begin_phases(&mut self) {
        let now_s = self.now_s;
        for (number, application) in self.applications.iter_mut().enumerate() {
            if application.until_s.is_none_or(|until_s| until_s > now_s) {
                continue;
            }
            application.until_s = None;
            application.begun_s = now_s;
            application.history.begin(now_s);
            self.phases_begun += 1;
            let bytes = application.current.bytes;
            let declared = match (&application.work, self.case.declared) {
                (Work::Recorded(_), _) => application.current.declared,
                (_, Some(deviation)) => {
                    let factor = (deviation * self.random.normal()).exp();
                    Some((bytes * factor) as u64)
                }
                (_, None) => None,
            };
            let now_ns = nanoseconds(now_s);
            let user = match &application.work {
                Work::Recorded(_) => application.current.user,
                Work::Drawn { .. } => self.case.users.of(number, self.case.periods_s.len()),
            };
            let priority = application.current.priority;
            self.shares.begin(user, priority, now_ns);
            self.phases.push(FluidPhase {
                phase: IoPhase {
                    id: self.phases_begun,
                    application: number as u64,
                    user,
                    begun_ns: now_ns,
                    bytes: declared,
                    bytes_done: 0,
                    granted_ns: None,
                    waiting_ns: now_ns,
                    priority,
                    period: application.history.period(),
                },
                left: bytes,
            });
        }
    }

    fn plan(&mut self, policy: &SchedulePolicy) {
        let now_ns = nanoseconds(self.now_s);
        self.shares.settle(now_ns);
        let phases: Vec<IoPhase> = self.phases.iter().map(|it| it.phase.clone()).collect();
        let histories = self.applications.iter().map(|it| &it.history);
        let plan = policy.plan(&ScheduleState {
            now_ns,
            bandwidth: self.bandwidth,
            phases: &phases,
            users: &self.shares,
            offered_load: offered_load(histories),
        });
        for fluid in &mut self.phases {
            fluid.phase.follow(&plan, now_ns);
        }
        let served = plan.grants.iter().filter_map(|grant| {
            let phase = phases.iter().find(|phase| phase.id == grant.id)?;
            Some((phase.user, grant.share))
        });
        let far_ns = self.shares.follow(served);
        // A turn of less than a microsecond is one.
        let until_ns = plan.until_ns.into_iter().chain(far_ns).min();
        let until_s = until_ns.map(|until_ns| until_ns as f64 / NS_PER_S);
        self.plan_s = until_s.map_or(f64::INFINITY, |until_s| until_s.max(self.now_s + 1e-6));
        self.grants = plan.grants;
    }

    fn quality(mut self) -> ScheduleQuality {
        let now_s = self.now_s;
        let mut quality = ScheduleQuality::default();
        let drawn = self.case.backlog.map(|_| self.case.periods_s.len());
        self.applications.truncate(drawn.unwrap_or(usize::MAX));
        let count = self.applications.len().max(1) as f64;
        let mut logarithms = (0.0, 0.0);
        for application in &mut self.applications {
            quality.starved += usize::from(application.slowdowns.is_empty());
            if application.until_s.is_none() && !application.is_over {
                // One that has not ended counts as far as it has come.
                let alone_s = application.current.bytes / self.bandwidth;
                let slowdown = (now_s - application.begun_s) / alone_s;
                application.slowdowns.push(slowdown.max(1.0));
                application.alone_sum_s += alone_s;
                application.computed_s += application.computing_s;
                application.ended_s = now_s;
            }
            let phases = application.slowdowns.len().max(1) as f64;
            let slowdown = application.slowdowns.iter().sum::<f64>().max(1.0) / phases;
            let alone_s = application.computed_s + application.alone_sum_s;
            let stretch = (application.ended_s / alone_s).max(1.0);
            quality.utilisation += application.computed_s / application.ended_s.max(1e-9) / count;
            logarithms.0 += slowdown.max(1.0).ln() / count;
            logarithms.1 += stretch.ln() / count;
            quality.slowdown_worst = quality.slowdown_worst.max(slowdown);
            quality.stretch_worst = quality.stretch_worst.max(stretch);
        }
        quality.slowdown = logarithms.0.exp();
        quality.stretch = logarithms.1.exp();
        quality
    }
}

fn nanoseconds(seconds: f64) -> i64 {
    // A conversion of floats saturates.
    (seconds * NS_PER_S) as i64
}
