//! What the state machines of epochs and the scheduler of a shared volume cost, measured.

use std::collections::BTreeSet;
use std::hint::black_box;

use barograph_control::{
    AdaptiveConfig, ControllerMessage, ControllerWord, EpochController, EpochMember, EpochNode,
    EpochOrder, EpochRecord, EpochTimes, EpochUse, EpochUseId, MemberBounds, MemberId,
    MemberReport, MemberStage, ProcessWord, SchedulePolicy, SchedulerConfig, ServerMap,
    VolumeScheduler,
};
use rustix::time::{ClockId, clock_gettime};

const S: i64 = 1_000_000_000;
const NODES: u64 = 10_000;
const MEMBERS_OF_NODE: u64 = 4;
const REPEATS: usize = 9;
/// Bytes of a report: process and phase, stage, application, user, priority, and the two sizes.
const REPORT_BYTES: f64 = 56.0;
/// A process that waits says every half second that it is there.
const RENEWS_PER_S: f64 = 2.0;
/// Plans of a second, each for all reports since the one before.
const PLANS_PER_S: f64 = 100.0;

/// Prints both.
pub(crate) fn print() {
    println!(
        "
What the state machines cost for one change, measured (median of {REPEATS}):

| what | members | processor time |
| --- | ---: | ---: |"
    );
    for members in [100, 1_000, NODES, NODES * MEMBERS_OF_NODE] {
        let micros = median(|| controller(members));
        println!(
            "| the controller, in all | {members} | {:.2} ms, {:.2} us for each |",
            micros / 1e3,
            micros / members as f64
        );
    }
    let micros = median(node);
    println!("| a node controller | {MEMBERS_OF_NODE} | {micros:.1} us |");
    let micros = median(member);
    println!("| a process | - | {micros:.2} us |");
    println!(
        "
### A volume that all nodes share

One `VolumeScheduler` for 10,000 nodes, of which each reports to it. Measured: a report of a process that waits, and a plan
with the answers that it changes, after a phase has ended and another one begun. Computed: {PLANS_PER_S} plans in a second, and
a report every half second of each process that waits, of {REPORT_BYTES} bytes without the transport's.

| applications | processes that wait | report | plan | reports/s | bytes/s | one core is busy for |
| ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    );
    for (applications, waiting) in [
        (10, 1_000),
        (10, NODES),
        (100, NODES),
        (1_000, NODES),
        (NODES, NODES),
    ] {
        let mut report = Vec::new();
        let mut plan = Vec::new();
        let mut volume = Volume::new(applications, waiting);
        for _ in 0..REPEATS {
            report.push(volume.report_us());
            plan.push(volume.plan_us());
        }
        let (report, plan) = (middle(report), middle(plan));
        let reports = waiting as f64 * RENEWS_PER_S;
        let busy = (reports * report + PLANS_PER_S * plan) / 1e6;
        println!(
            "| {applications} | {waiting} | {report:.2} us | {plan:.0} us | {reports:.0} | {:.2} MB | {:.1} % |",
            reports * REPORT_BYTES / 1e6,
            busy * 100.0
        );
    }
}

/// Seconds for which the processor has run this thread, whatever else runs.
pub(crate) fn thread_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn median(of: impl Fn() -> f64) -> f64 {
    middle((0..REPEATS).map(|_| of()).collect())
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn map(epoch: u64, servers: std::ops::Range<u64>) -> ServerMap {
    ServerMap {
        epoch,
        servers: servers.collect(),
    }
}

/// Microseconds of a controller from the begin of a change until all are told.
fn controller(members: u64) -> f64 {
    let record = EpochRecord {
        term: 1,
        map: map(1, 0..32),
        last_epoch: 1,
        change: None,
        homes: (0..32).map(|server| (server, server)).collect(),
    };
    let times = EpochTimes {
        drain_ns: S,
        repeat_ns: S,
    };
    let (mut controller, _) = EpochController::take_over(2, record, 0..members, times);
    controller.saved(true, 0);
    let servers: BTreeSet<u64> = (1..32).collect();
    let begun_s = thread_s();
    black_box(controller.change(servers).unwrap());
    black_box(controller.saved(true, 0));
    for member in 0..members {
        black_box(controller.hear_member(member, &ProcessWord::Drained { epoch: 2 }));
    }
    black_box(controller.saved(true, 0));
    for server in 0..32 {
        black_box(controller.hear_server(server, &ProcessWord::Fenced { epoch: 2 }));
    }
    black_box(controller.saved(true, 0));
    for member in 0..members {
        black_box(controller.hear_member(member, &ProcessWord::Uses { epoch: 2 }));
    }
    let micros = (thread_s() - begun_s) * 1e6;
    assert!(controller.is_idle() && controller.record().map.epoch == 2);
    micros
}

fn messages() -> [ControllerMessage; 2] {
    let term = 2;
    let switch = ControllerWord::Switch { map: map(2, 1..32) };
    [ControllerWord::Prepare { epoch: 2 }, switch].map(|what| ControllerMessage { term, what })
}

/// Microseconds of a node controller for a change: two orders, the reports after them, and what it
/// says then.
fn node() -> f64 {
    let order = |prepare, epoch, servers| EpochOrder {
        prepare,
        fence: epoch,
        map: map(epoch, servers),
    };
    let orders = [order(2, 1, 0..32), order(0, 2, 1..32)];
    let mut nodes = vec![EpochNode::default(); 1_000];
    let report = |node: &mut EpochNode, seen| {
        for process in 0..u128::from(MEMBERS_OF_NODE) {
            let id = EpochUseId { process, slot: 0 };
            let of = EpochUse::Member {
                running: 0,
                refused: 0,
            };
            black_box(node.report(id, of, seen));
        }
        black_box(node.word())
    };
    for node in &mut nodes {
        report(node, 0);
        node.hear(1, &order(0, 1, 0..32), None);
        report(node, 1);
    }
    let begun_s = thread_s();
    for node in &mut nodes {
        for order in &orders {
            let tell = black_box(node.hear(1, order, None)).unwrap();
            report(node, tell.number);
        }
    }
    let micros = (thread_s() - begun_s) * 1e6 / nodes.len() as f64;
    assert!(nodes.iter().all(|node| node.word().epoch == 2));
    micros
}

/// Microseconds of a process for a change.
fn member() -> f64 {
    let [prepare, switch] = messages();
    let mut members = vec![EpochMember::new(map(1, 0..32), S); 1_000];
    let begun_s = thread_s();
    for member in &mut members {
        black_box(member.hear(&prepare, 0));
        black_box(member.hear(&switch, 0));
    }
    (thread_s() - begun_s) * 1e6 / members.len() as f64
}

/// A volume of which processes of all nodes wait.
struct Volume {
    scheduler: VolumeScheduler,
    applications: u64,
    processes: u64,
    phase: u64,
    now_ns: i64,
}

impl Volume {
    fn new(applications: u64, processes: u64) -> Self {
        let policy = SchedulePolicy::Adaptive(AdaptiveConfig::default());
        let config = SchedulerConfig {
            lease_ns: 1_000_000 * S,
            starved_ns: i64::MAX,
            phases_max: 20_000,
            phases_of_user_max: 20_000,
            ..SchedulerConfig::new(policy, 1e9)
        };
        let bounds = MemberBounds {
            most: 20_000,
            of_user_most: 20_000,
        };
        let mut volume = Self {
            scheduler: VolumeScheduler::new(config, bounds),
            applications,
            processes,
            phase: 1,
            now_ns: 0,
        };
        for process in 0..processes {
            volume.say(process, 1, MemberStage::Waiting);
        }
        volume.scheduler.step(0);
        volume
    }

    fn say(&mut self, process: u64, phase: u64, stage: MemberStage) {
        let application = process % self.applications;
        let id = MemberId {
            process: u128::from(process),
            phase,
        };
        let report = MemberReport {
            stage,
            application,
            user: (application / 10) as u32,
            priority: 5,
            bytes: Some(1_000_000_000),
            bytes_done: 0,
            lease_ns: None,
            host: None,
        };
        self.scheduler.report(id, &report, self.now_ns);
    }

    /// Microseconds of a report of a process that waits.
    fn report_us(&mut self) -> f64 {
        let begun_s = thread_s();
        for process in 0..self.processes {
            self.say(process, 1, MemberStage::Waiting);
        }
        (thread_s() - begun_s) * 1e6 / self.processes as f64
    }

    /// Microseconds of a plan with its answers, after an end and a begin.
    fn plan_us(&mut self) -> f64 {
        let mut took_s = 0.0;
        for _ in 0..20 {
            self.phase += 1;
            self.now_ns += S / 100;
            // One that is not among those that wait all the time.
            self.say(self.processes, self.phase, MemberStage::Waiting);
            if self.phase > 2 {
                self.say(self.processes, self.phase - 1, MemberStage::Ended);
            }
            let begun_s = thread_s();
            black_box(self.scheduler.step(self.now_ns));
            black_box(self.scheduler.take_answers());
            took_s += thread_s() - begun_s;
        }
        took_s * 1e6 / 20.0
    }
}
