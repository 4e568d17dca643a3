//! Several I/O servers to which applications are mapped, each with a policy of I/O scheduling: how
//! much of what can be gained is the mapping's and how much the policy's. Carretero, Jeannot,
//! Pallez, Singh and Vidal asked that for CLARISSE (2020), with makespan and stretch as measures.
//!
//! An application drives the bandwidth of one server at most (its links, or its forwarding node),
//! so a phase takes as long alone under each mapping. Servers are fluids as in
//! [`storage`](crate::storage). Striped over all servers, phases share one pool, and the policy is
//! asked again for what the phases that it chose cannot use. Each application does a fixed amount
//! of work, so that there is a makespan.

use barograph_control::{
    ApplicationHistory, IoPhase, SchedulePlan, SchedulePolicy, ScheduleState, UserShares,
    offered_load,
};
use barograph_forecast::Random;

/// Bytes/s of a server. Times and not bytes matter here.
const BANDWIDTH: f64 = 1e9;
const NS_PER_S: f64 = 1e9;
/// A phase has ended when fewer seconds than this are left.
const LEFT_S: f64 = 1e-9;
/// Shortest time in which an application computes, as a share of the mean.
const COMPUTE_MIN: f64 = 0.05;
/// The largest share of its time that an application needs for I/O.
const NEED_MAX: f64 = 0.9;

/// Which server an application uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// All servers: its bytes are striped.
    Striped,
    /// One server, drawn at the begin.
    Random,
    /// One server, each the next one.
    RoundRobin,
    /// One server, so that the I/O that applications say they need is balanced: the greatest first,
    /// to the server that has least.
    Balanced,
    /// In each phase the server with the fewest bytes to do.
    LeastLoaded,
}

impl Mapping {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Random,
        Self::RoundRobin,
        Self::Balanced,
        Self::LeastLoaded,
        Self::Striped,
    ];

    /// What it is called in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Striped => "striped over all",
            Self::Random => "random",
            Self::RoundRobin => "round robin",
            Self::Balanced => "balanced by need",
            Self::LeastLoaded => "least loaded",
        }
    }
}

/// What is simulated.
#[derive(Clone, Debug, PartialEq)]
pub struct MappingCase {
    /// The number of servers.
    pub servers: usize,
    /// Mean seconds between two phases of each application, when it is alone.
    pub periods_s: Vec<f64>,
    /// The standard deviation of the logarithm of what applications need.
    pub spread: f64,
    /// The standard deviation of the time of computing, by its mean.
    pub variation: f64,
    /// The share of the time of all servers that all applications together need.
    pub load: f64,
    /// How much phases at a time on one server cost each other.
    pub interference: f64,
    /// Seconds that each application takes alone, about.
    pub work_s: f64,
}

impl MappingCase {
    /// 60 applications with periods of 10, 100 and 1,000 s on 8 servers, whose needs spread by a
    /// factor of two.
    pub fn mixed(load: f64, interference: f64) -> Self {
        Self {
            servers: 8,
            periods_s: [10.0, 100.0, 1_000.0].repeat(20),
            spread: 0.7,
            variation: 0.25,
            load,
            interference,
            work_s: 5_000.0,
        }
    }
}

/// How well applications fared.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MappingQuality {
    /// The time at which the last application has ended, by the time of the longest one alone.
    pub makespan: f64,
    /// How many times as long as alone applications took: the geometric mean, and the largest.
    pub stretch: f64,
    /// See [`Self::stretch`].
    pub stretch_worst: f64,
    /// How many times as long as alone phases took: the mean of each application, and of these the
    /// geometric mean and the largest.
    pub slowdown: f64,
    /// See [`Self::slowdown`].
    pub slowdown_worst: f64,
    /// The share of their time in which applications compute, on average.
    pub utilisation: f64,
}

struct Application {
    /// Seconds of a phase alone.
    alone_s: f64,
    compute_s: f64,
    phases_left: u64,
    server: usize,
    history: ApplicationHistory,
    /// The end of computing; `None` in a phase, and at the end.
    until_s: Option<f64>,
    begun_s: f64,
    computed_s: f64,
    slowdowns: Vec<f64>,
    ended_s: f64,
}

struct Open {
    phase: IoPhase,
    /// Seconds alone.
    left_s: f64,
    /// Of the bandwidth of a server.
    rate: f64,
}

struct Server {
    /// Servers of which it is made: one, or all.
    capacity: f64,
    open: Vec<Open>,
    plan_s: f64,
    is_changed: bool,
}

struct Servers<'a> {
    case: &'a MappingCase,
    mapping: Mapping,
    random: Random,
    now_s: f64,
    applications: Vec<Application>,
    servers: Vec<Server>,
    phases_begun: u64,
}

/// Runs the applications of a case to their ends.
pub fn simulate_mapping(
    policy: &SchedulePolicy,
    mapping: Mapping,
    case: &MappingCase,
    seed: u64,
) -> MappingQuality {
    let mut random = Random::new(seed);
    let applications = applications(case, mapping, &mut random);
    let (count, capacity) = match mapping {
        Mapping::Striped => (1, case.servers.max(1) as f64),
        _ => (case.servers.max(1), 1.0),
    };
    let server = |_| Server {
        capacity,
        open: Vec::new(),
        plan_s: f64::INFINITY,
        is_changed: false,
    };
    let mut servers = Servers {
        case,
        mapping,
        random,
        now_s: 0.0,
        applications,
        servers: (0..count).map(server).collect(),
        phases_begun: 0,
    };
    while servers.step(policy) {}
    servers.quality()
}

/// Draws what applications need, and maps them.
fn applications(case: &MappingCase, mapping: Mapping, random: &mut Random) -> Vec<Application> {
    let weights = case.periods_s.iter();
    let weights: Vec<f64> = weights
        .map(|_| (case.spread * random.normal()).exp())
        .collect();
    let sum: f64 = weights.iter().sum();
    let servers = case.servers.max(1);
    let needs = weights.iter().map(|weight| {
        let need = case.load * servers as f64 * weight / sum;
        need.min(NEED_MAX)
    });
    let needs: Vec<f64> = needs.collect();
    let drawn: Vec<usize> = needs.iter().map(|_| random.below(servers)).collect();
    let placed = match mapping {
        Mapping::Striped | Mapping::LeastLoaded => vec![0; needs.len()],
        Mapping::Random => drawn,
        Mapping::RoundRobin => (0..needs.len()).map(|number| number % servers).collect(),
        Mapping::Balanced => balanced(&needs, servers),
    };
    let each = case.periods_s.iter().zip(needs).zip(placed);
    let each = each.map(|((period_s, need), server)| Application {
        alone_s: period_s * need,
        compute_s: period_s * (1.0 - need),
        phases_left: (case.work_s / period_s).ceil().max(1.0) as u64,
        server,
        history: ApplicationHistory::default(),
        until_s: Some(random.unit() * period_s),
        begun_s: 0.0,
        computed_s: 0.0,
        slowdowns: Vec::new(),
        ended_s: 0.0,
    });
    let mut all: Vec<Application> = each.collect();
    for application in &mut all {
        application.computed_s = application.until_s.unwrap_or(0.0);
    }
    all
}

/// The greatest need first, to the server that has least.
fn balanced(needs: &[f64], servers: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..needs.len()).collect();
    order.sort_by(|a, b| needs[*b].total_cmp(&needs[*a]));
    let mut loads = vec![0.0; servers];
    let mut placed = vec![0; needs.len()];
    for application in order {
        let least = (0..servers).min_by(|a, b| f64::total_cmp(&loads[*a], &loads[*b]));
        let least = least.unwrap_or(0);
        loads[least] += needs[application];
        placed[application] = least;
    }
    placed
}

impl Servers<'_> {
    /// Goes on to the next event; false at the end.
    fn step(&mut self, policy: &SchedulePolicy) -> bool {
        let computing = self.applications.iter().filter_map(|it| it.until_s);
        let servers = self.servers.iter();
        let flowing = servers.flat_map(|server| {
            let ends = server.open.iter().filter(|it| it.rate > 0.0);
            let ends = ends.map(|it| self.now_s + (it.left_s / it.rate).max(LEFT_S));
            ends.chain([server.plan_s])
        });
        let next_s = computing.chain(flowing).fold(f64::INFINITY, f64::min);
        if next_s == f64::INFINITY {
            return false;
        }
        let for_s = (next_s - self.now_s).max(0.0);
        self.now_s = next_s;
        for open in self.servers.iter_mut().flat_map(|it| &mut it.open) {
            open.left_s -= open.rate * for_s;
            let alone_s = self.applications[open.phase.application as usize].alone_s;
            open.phase.bytes_done = ((alone_s - open.left_s).max(0.0) * BANDWIDTH) as u64;
        }
        self.end_phases();
        self.begin_phases();
        for server in 0..self.servers.len() {
            let at = &self.servers[server];
            if at.is_changed || at.plan_s <= next_s {
                self.plan(server, policy);
            }
        }
        true
    }

    fn end_phases(&mut self) {
        for server in &mut self.servers {
            let (ended, going): (Vec<_>, Vec<_>) = std::mem::take(&mut server.open)
                .into_iter()
                .partition(|it| it.left_s < LEFT_S);
            server.open = going;
            server.is_changed |= !ended.is_empty();
            for open in ended {
                let application = &mut self.applications[open.phase.application as usize];
                let took_s = self.now_s - application.begun_s;
                application.slowdowns.push(took_s / application.alone_s);
                application.history.end(self.now_s, application.alone_s);
                application.ended_s = self.now_s;
                application.phases_left -= 1;
                if application.phases_left > 0 {
                    let noise = 1.0 + self.case.variation * self.random.normal();
                    let compute_s = application.compute_s * noise.max(COMPUTE_MIN);
                    application.computed_s += compute_s;
                    application.until_s = Some(self.now_s + compute_s);
                }
            }
        }
    }

    fn begin_phases(&mut self) {
        let now_ns = nanoseconds(self.now_s);
        for number in 0..self.applications.len() {
            let application = &mut self.applications[number];
            if application
                .until_s
                .is_none_or(|until_s| until_s > self.now_s)
            {
                continue;
            }
            application.until_s = None;
            application.begun_s = self.now_s;
            application.history.begin(self.now_s);
            if self.mapping == Mapping::LeastLoaded {
                let left_s = |server: &Server| server.open.iter().map(|it| it.left_s).sum::<f64>();
                let loads = self.servers.iter().map(left_s).enumerate();
                let least = loads.min_by(|a, b| a.1.total_cmp(&b.1));
                application.server = least.map_or(0, |(server, _)| server);
            }
            self.phases_begun += 1;
            let server = &mut self.servers[application.server];
            server.is_changed = true;
            server.open.push(Open {
                phase: IoPhase {
                    id: self.phases_begun,
                    application: number as u64,
                    user: 0,
                    begun_ns: now_ns,
                    bytes: Some((application.alone_s * BANDWIDTH) as u64),
                    bytes_done: 0,
                    granted_ns: None,
                    waiting_ns: now_ns,
                    priority: 5,
                    period: application.history.period(),
                },
                left_s: application.alone_s,
                rate: 0.0,
            });
        }
    }

    /// Asks the policy of a server, and again as long as those that it has chosen cannot use all.
    fn plan(&mut self, number: usize, policy: &SchedulePolicy) {
        let now_ns = nanoseconds(self.now_s);
        let (applications, striped) = (&self.applications, self.mapping == Mapping::Striped);
        let used = applications
            .iter()
            .filter(|it| striped || it.server == number);
        // A pool of servers is loaded by what all need, by the number of servers.
        let capacity = self.servers[number].capacity;
        let offered_load = offered_load(used.map(|it| &it.history)).map(|load| load / capacity);
        let server = &mut self.servers[number];
        server.is_changed = false;
        server.open.iter_mut().for_each(|it| it.rate = 0.0);
        let mut left: Vec<IoPhase> = server.open.iter().map(|it| it.phase.clone()).collect();
        let (mut free, mut until_ns) = (server.capacity, None);
        let mut granted = 0_usize;
        while free > 1e-9 && !left.is_empty() {
            let plan = policy.plan(&ScheduleState {
                now_ns,
                bandwidth: BANDWIDTH,
                phases: &left,
                users: &UserShares::default(),
                offered_load,
            });
            until_ns = until_ns.into_iter().chain(plan.until_ns).min();
            let before = free;
            for grant in &plan.grants {
                let rate = (grant.share * before).min(1.0).min(free);
                let open = server.open.iter_mut().find(|it| it.phase.id == grant.id);
                if let Some(open) = open {
                    open.rate = rate;
                    open.phase.follow(&plan, now_ns);
                    granted += 1;
                    free -= rate;
                }
            }
            left.retain(|phase| plan.grants.iter().all(|grant| grant.id != phase.id));
        }
        let nothing = SchedulePlan {
            grants: Vec::new(),
            until_ns: None,
            is_new_turn: false,
            by: "",
        };
        let slower = 1.0 + self.case.interference * granted.saturating_sub(1) as f64;
        for open in &mut server.open {
            if open.rate == 0.0 {
                open.phase.follow(&nothing, now_ns);
            }
            open.rate /= slower;
        }
        let until_s = until_ns.map(|until_ns| until_ns as f64 / NS_PER_S);
        server.plan_s = until_s.map_or(f64::INFINITY, |until_s| until_s.max(self.now_s + 1e-6));
    }

    fn quality(&self) -> MappingQuality {
        let count = self.applications.len().max(1) as f64;
        let (mut quality, mut longest_s) = (MappingQuality::default(), 1e-9_f64);
        let mut logarithms = (0.0, 0.0);
        for application in &self.applications {
            let phases = application.slowdowns.len().max(1) as f64;
            let alone_s = application.computed_s + phases * application.alone_s;
            let slowdown = (application.slowdowns.iter().sum::<f64>() / phases).max(1.0);
            let stretch = (application.ended_s / alone_s).max(1.0);
            longest_s = longest_s.max(alone_s);
            quality.makespan = quality.makespan.max(application.ended_s);
            quality.utilisation += application.computed_s / application.ended_s.max(1e-9) / count;
            logarithms.0 += slowdown.ln() / count;
            logarithms.1 += stretch.ln() / count;
            quality.slowdown_worst = quality.slowdown_worst.max(slowdown);
            quality.stretch_worst = quality.stretch_worst.max(stretch);
        }
        quality.makespan /= longest_s;
        (quality.slowdown, quality.stretch) = (logarithms.0.exp(), logarithms.1.exp());
        quality
    }
}

fn nanoseconds(seconds: f64) -> i64 {
    // A conversion of floats saturates.
    (seconds * NS_PER_S) as i64
}
