//! Shares between users: whatever the policy, nobody has more by having more phases.

use std::collections::BTreeMap;

use barograph_control::{
    AdaptiveConfig, IoScheduler, MemberAnswer, MemberBounds, MemberId, MemberReport, MemberStage,
    PhaseBegin, SchedulePolicy, SchedulerConfig, USER_AHEAD_S_MAX, UserShares, UserStanding,
    VolumeScheduler,
};
use proptest::prelude::*;

const S: i64 = 1_000_000_000;
/// One megabyte takes a second alone.
const BANDWIDTH: f64 = 1e6;
const NS: f64 = 1e-9;

fn policies() -> [SchedulePolicy; 10] {
    let turn_s = 1.0;
    let most = 4;
    [
        SchedulePolicy::Fcfs,
        SchedulePolicy::RoundRobin { turn_s },
        SchedulePolicy::Fair { most: 2 },
        SchedulePolicy::ShortestFirst,
        SchedulePolicy::LeastLeft { ageing_s: 100.0 },
        SchedulePolicy::Priority,
        SchedulePolicy::WorstSlowdown { turn_s },
        SchedulePolicy::Set10 {
            most,
            by_left: false,
        },
        SchedulePolicy::Set10 {
            most,
            by_left: true,
        },
        SchedulePolicy::Adaptive(AdaptiveConfig::default()),
    ]
}

/// Phases that flow by their shares.
struct Fluid {
    scheduler: IoScheduler,
    now_ns: i64,
    /// Users and seconds that are left alone of open phases.
    open: BTreeMap<u64, (u32, f64)>,
    /// Seconds that each user was served.
    served: BTreeMap<u32, f64>,
}

impl Fluid {
    fn new(policy: SchedulePolicy) -> Self {
        let config = SchedulerConfig {
            lease_ns: i64::MAX,
            phases_of_user_max: 10_000,
            ..SchedulerConfig::new(policy, BANDWIDTH)
        };
        Self {
            scheduler: IoScheduler::new(config),
            now_ns: 0,
            open: BTreeMap::new(),
            served: BTreeMap::new(),
        }
    }

    fn begin(&mut self, user: u32, application: u64, alone_s: f64) -> u64 {
        let begin = PhaseBegin {
            application,
            user,
            bytes: Some((alone_s * BANDWIDTH) as u64),
            priority: 5,
            yields: true,
        };
        let id = self.scheduler.begin(&begin, self.now_ns).unwrap();
        self.open.insert(id, (user, alone_s));
        id
    }

    fn is_open(&self, user: u32) -> bool {
        self.open.values().any(|(of, _)| *of == user)
    }

    /// Goes on to the next end of a phase, or until something is due; returns the phase that has
    /// ended, with its user.
    fn go_on(&mut self) -> Option<(u64, u32)> {
        let due_ns = self.scheduler.step(self.now_ns);
        let grants = self.scheduler.current().grants.clone();
        let ends = grants
            .iter()
            .map(|grant| self.open[&grant.id].1 / grant.share);
        let end_s = ends.fold(f64::INFINITY, f64::min);
        let due_s = due_ns.map_or(f64::INFINITY, |due_ns| (due_ns - self.now_ns) as f64 * NS);
        let for_s = end_s.min(due_s);
        self.now_ns += ((for_s / NS) as i64).max(1);
        for grant in &grants {
            let (user, left_s) = self.open.get_mut(&grant.id).unwrap();
            let user = *user;
            *left_s -= for_s * grant.share;
            *self.served.entry(user).or_default() += for_s * grant.share;
        }
        let ended = self.open.iter().find(|(_, (_, left_s))| *left_s < 1e-6);
        let (id, user) = ended.map(|(id, (user, _))| (*id, *user))?;
        self.open.remove(&id);
        self.scheduler.end(id, 0, self.now_ns);
        Some((id, user))
    }
}

#[test]
fn a_user_with_a_thousand_phases_waits_for_one_with_one() {
    for policy in policies() {
        let mut fluid = Fluid::new(policy);
        for application in 0..1_000 {
            fluid.begin(1, application, 0.5);
        }
        while fluid.now_ns < 10 * S {
            fluid.go_on();
        }
        let (begun_ns, before_s) = (fluid.now_ns, fluid.served[&1]);
        fluid.begin(2, 1_000, 20.0);
        while fluid.is_open(2) {
            fluid.go_on();
        }
        // Half of the time, and what the first user had begun: phases of half a second.
        let took_s = (fluid.now_ns - begun_ns) as f64 * NS;
        let of_first_s = fluid.served[&1] - before_s;
        assert!(
            of_first_s < took_s / 2.0 + 2.0,
            "{policy:?}: {of_first_s} of {took_s}"
        );
        assert!(took_s < 2.0 * (20.0 + 2.0), "{policy:?}: {took_s}");
        // Nothing is held back for nobody.
        let sum_s: f64 = fluid.served.values().sum();
        assert!(
            (sum_s - fluid.now_ns as f64 * NS).abs() < 1e-3,
            "{policy:?}: {sum_s}"
        );
    }
}

#[test]
fn a_job_in_many_applications_is_no_faster() {
    for policy in policies() {
        let mut fluid = Fluid::new(policy);
        // 40 s each, in 40 applications or in 4 phases of one.
        for application in 0..40 {
            fluid.begin(1, application, 1.0);
        }
        let mut left = 3;
        fluid.begin(2, 100, 10.0);
        while fluid.is_open(2) {
            if let Some((_, 2)) = fluid.go_on()
                && left > 0
            {
                left -= 1;
                fluid.begin(2, 100, 10.0);
            }
        }
        let (of_many_s, of_one_s) = (fluid.served[&1], fluid.served[&2]);
        assert!(
            of_many_s <= of_one_s + 2.0,
            "{policy:?}: {of_many_s} and {of_one_s}"
        );
    }
}

#[test]
fn phases_that_never_end_are_interrupted_for_other_users() {
    for policy in policies() {
        let mut fluid = Fluid::new(policy);
        for application in 0..8 {
            fluid.begin(1, application, 1e6);
        }
        fluid.go_on();
        let before_s = fluid.served[&1];
        let begun_ns = fluid.now_ns;
        fluid.begin(2, 100, 300.0);
        while fluid.is_open(2) && fluid.now_ns < 5_000 * S {
            fluid.go_on();
        }
        let took_s = (fluid.now_ns - begun_ns) as f64 * NS;
        let of_first_s = fluid.served[&1] - before_s;
        let most_s = took_s / 2.0 + USER_AHEAD_S_MAX + 2.0;
        assert!(of_first_s < most_s, "{policy:?}: {of_first_s} of {took_s}");
    }
}

#[test]
fn who_is_back_at_once_is_served_as_much_as_who_never_pauses() {
    for policy in policies() {
        let mut fluid = Fluid::new(policy);
        // A short phase follows the other one when that has ended: at that moment the second user,
        // whose phases are long, is alone.
        fluid.begin(1, 1, 0.05);
        fluid.begin(2, 2, 4.0);
        while fluid.now_ns < 1_000 * S {
            if let Some((_, user)) = fluid.go_on() {
                let alone_s = if user == 1 { 0.05 } else { 4.0 };
                fluid.begin(user, u64::from(user), alone_s);
            }
        }
        let (short_s, long_s) = (fluid.served[&1], fluid.served[&2]);
        let most_s = USER_AHEAD_S_MAX + 10.0;
        assert!(
            (short_s - long_s).abs() < 2.0 * most_s,
            "{policy:?}: {short_s} and {long_s}"
        );
    }
}

#[test]
fn a_backlog_of_a_user_is_not_starved_by_a_policy() {
    let mut fluid = Fluid::new(SchedulePolicy::Fcfs);
    for application in 0..1_000 {
        fluid.begin(1, application, 0.5);
    }
    fluid.begin(2, 1_000, 1e3);
    while fluid.now_ns < 200 * S {
        fluid.go_on();
        // Hundreds of the phases have waited for a minute, and 100 times as long as they take.
        let grants = fluid.scheduler.current().grants.len();
        assert!(grants <= 3, "{grants} at {} s", fluid.now_ns / S);
    }
    assert!(fluid.scheduler.counts().starved > 0);
    let (of_many_s, of_one_s) = (fluid.served[&1], fluid.served[&2]);
    assert!(of_many_s <= of_one_s + 2.0, "{of_many_s} and {of_one_s}");
}

#[test]
fn the_processes_of_a_volume_have_the_users_of_their_reports() {
    let bounds = MemberBounds {
        most: 4_096,
        of_user_most: 1_024,
    };
    let config = SchedulerConfig::new(SchedulePolicy::Fcfs, BANDWIDTH);
    let mut volume = VolumeScheduler::new(config, bounds);
    let id = |process: u64| MemberId {
        process: u128::from(process),
        phase: 1,
    };
    let mut report = |process: u64, user, stage, now_ns| {
        let report = MemberReport {
            stage,
            application: process,
            user,
            priority: 5,
            bytes: Some(1_000_000),
            bytes_done: 0,
            lease_ns: None,
            host: None,
        };
        volume.report(id(process), &report, now_ns);
        volume.step(now_ns);
        let answers = volume.take_answers().into_iter();
        let goes = answers.filter(|(_, answer)| matches!(answer, MemberAnswer::Go { .. }));
        goes.map(|(id, _)| id.process).collect::<Vec<u128>>()
    };
    for process in 0..1_000 {
        report(process, 1_000, MemberStage::Waiting, 0);
    }
    assert_eq!(report(5_000, 2_000, MemberStage::Waiting, S), []);
    // The phase that it has begun, of which the other user has waited for half; not the next 998.
    assert_eq!(report(0, 1_000, MemberStage::Ended, 2 * S), [5_000]);
    assert_eq!(report(5_000, 2_000, MemberStage::Ended, 3 * S), [1]);
}

#[test]
fn an_account_forgives_and_gathers_no_credit() {
    let mut users = UserShares::default();
    let standing = |users: &UserShares| [1, 2].map(|user| users.standing(user));
    use UserStanding::{Ahead, FarAhead, Within};
    // Alone, and away.
    users.begin(1, 5, 0);
    users.follow([(1, 1.0)]);
    users.settle(1_000 * S);
    assert_eq!(standing(&users), [Within, Within]);
    // The other one comes, and has its half from then on.
    users.begin(2, 5, 1_000 * S);
    assert_eq!(users.follow([(1, 1.0)]), Some(1_120 * S));
    users.settle(1_010 * S);
    assert_eq!((standing(&users), users.ahead_s(1)), ([Ahead, Within], 5.0));
    users.settle(1_120 * S);
    assert_eq!(standing(&users), [FarAhead, Within]);
    users.follow([(2, 1.0)]);
    users.settle(1_200 * S);
    assert_eq!(standing(&users), [FarAhead, Within]);
    assert!(
        (users.ahead_s(1) - 20.0).abs() < 1e-6,
        "{}",
        users.ahead_s(1)
    );
    users.settle(1_240 * S);
    assert_eq!(standing(&users), [Within, Within]);
    users.settle(1_250 * S);
    assert_eq!(standing(&users), [Within, Ahead]);
    // What it was ahead is known after it has gone, and is forgotten in time.
    let ahead_s = users.ahead_s(2);
    users.end(2, 5, 1.0, 1_250 * S);
    users.follow([(1, 1.0)]);
    users.settle(1_251 * S);
    assert_eq!(users.len(), 2);
    assert!((1.0..ahead_s).contains(&users.ahead_s(2)), "{ahead_s}");
    users.settle(1_300 * S);
    assert_eq!((users.len(), standing(&users)), (1, [Within, Within]));
    // Shares are by priorities: a third and two thirds.
    users.end(1, 5, 1.0, 1_300 * S);
    users.begin(1, 5, 1_300 * S);
    users.begin(3, 10, 1_300 * S);
    users.follow([(1, 0.5), (3, 0.5)]);
    users.settle(1_330 * S);
    assert!(
        (users.ahead_s(1) - 5.0).abs() < 1e-9,
        "{}",
        users.ahead_s(1)
    );
}

#[test]
fn users_that_are_away_are_bounded() {
    let mut users = UserShares::default();
    users.begin(0, 1, 0);
    for user in 1..10_000 {
        users.begin(user, 1, 0);
        users.follow([(user, 1.0)]);
        users.settle(i64::from(user) * S / 1_000);
        users.end(user, 1, 1.0, i64::from(user) * S / 1_000);
    }
    users.settle(10 * S);
    assert!(users.len() <= 4_097 && !users.is_empty(), "{}", users.len());
}

#[derive(Clone, Copy, Debug)]
struct Load {
    /// Phases that each user has open all the time.
    open: usize,
    alone_s: f64,
}

fn any_load() -> impl Strategy<Value = Load> {
    (2..12_usize, 0.05..4.0_f64).prop_map(|(open, alone_s)| Load { open, alone_s })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Users that always have phases open are served equally, up to what each had begun.
    #[test]
    fn users_with_a_backlog_are_served_equally(
        loads in prop::collection::vec(any_load(), 2..5),
        which in 0..10_usize,
    ) {
        let policy = policies()[which];
        let mut fluid = Fluid::new(policy);
        let mut applications = 0;
        for (user, load) in (1..).zip(&loads) {
            for _ in 0..load.open {
                applications += 1;
                fluid.begin(user, applications, load.alone_s);
            }
        }
        while fluid.now_ns < 400 * S {
            if let Some((_, user)) = fluid.go_on() {
                applications += 1;
                fluid.begin(user, applications, loads[user as usize - 1].alone_s);
            }
        }
        let longest_s = loads.iter().map(|load| load.alone_s).fold(1.0, f64::max);
        let share_s = 400.0 / loads.len() as f64;
        for user in (1..).take(loads.len()) {
            let served_s = fluid.served.get(&user).copied().unwrap_or(0.0);
            prop_assert!(
                (served_s - share_s).abs() < 8.0 * longest_s,
                "{:?}: {} of {}: {:?}", policy, served_s, share_s, fluid.served
            );
        }
    }
}
