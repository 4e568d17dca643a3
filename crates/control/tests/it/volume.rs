//! The scheduler of a volume: processes of one application have one grant.

use barograph_control::{
    MemberAnswer, MemberBounds, MemberId, MemberReport, MemberStage, SchedulePolicy,
    SchedulerConfig, VolumeScheduler,
};
use proptest::prelude::*;

const S: i64 = 1_000_000_000;
const MB: u64 = 1_000_000;
const GO: MemberAnswer = MemberAnswer::Go { share: 1.0 };

fn volume(policy: SchedulePolicy) -> Stepped {
    let bounds = MemberBounds {
        most: 100,
        of_user_most: 50,
    };
    Stepped(VolumeScheduler::new(
        SchedulerConfig::new(policy, 1e6),
        bounds,
    ))
}

/// A volume that is stepped after each report.
struct Stepped(VolumeScheduler);

impl Stepped {
    fn report(&mut self, id: MemberId, report: &MemberReport, now_ns: i64) {
        self.0.report(id, report, now_ns);
        self.0.step(now_ns);
    }

    fn leave(&mut self, process: u128, now_ns: i64) {
        self.0.leave(process, now_ns);
        self.0.step(now_ns);
    }
}

impl std::ops::Deref for Stepped {
    type Target = VolumeScheduler;

    fn deref(&self) -> &VolumeScheduler {
        &self.0
    }
}

impl std::ops::DerefMut for Stepped {
    fn deref_mut(&mut self) -> &mut VolumeScheduler {
        &mut self.0
    }
}

fn id(process: u128, phase: u64) -> MemberId {
    MemberId { process, phase }
}

fn report(application: u64, stage: MemberStage) -> MemberReport {
    MemberReport {
        stage,
        application,
        user: 1_000,
        priority: 5,
        bytes: Some(5 * MB),
        bytes_done: 0,
    }
}

#[test]
fn ranks_of_one_application_go_together_and_others_wait() {
    let mut volume = volume(SchedulePolicy::Fcfs);
    let waits = |application| report(application, MemberStage::Waiting);
    let ends = |application| report(application, MemberStage::Ended);
    volume.report(id(1, 1), &waits(1), 0);
    volume.report(id(9, 1), &waits(9), S);
    volume.report(id(2, 7), &waits(1), 2 * S);
    let answers = volume.take_answers();
    let wait = MemberAnswer::Wait;
    assert_eq!(answers, [(id(1, 1), GO), (id(9, 1), wait), (id(2, 7), GO)]);
    let phases: Vec<_> = volume
        .phases()
        .map(|it| (it.members, it.phase.bytes))
        .collect();
    assert_eq!(phases, [(2, Some(10 * MB)), (1, Some(5 * MB))]);
    // Who begins after one has ended is in the next phase, behind the other application.
    volume.report(id(1, 1), &ends(1), 3 * S);
    volume.report(id(1, 2), &waits(1), 3 * S);
    assert_eq!(volume.take_answers(), [(id(1, 2), wait)]);
    volume.report(id(2, 7), &ends(1), 4 * S);
    assert_eq!(volume.take_answers(), [(id(9, 1), GO)]);
    // Twice, and of nobody.
    volume.report(id(2, 7), &ends(1), 4 * S);
    volume.report(id(3, 1), &ends(1), 4 * S);
    assert_eq!(volume.take_answers(), []);
    volume.report(id(9, 1), &ends(9), 5 * S);
    assert_eq!(volume.take_answers(), [(id(1, 2), GO)]);
    assert_eq!(volume.scheduler().counts().ended, 2);
    let ended: Vec<_> = volume
        .ended()
        .map(|it| (it.begun_ns, it.started_ns, it.ended_ns, it.bytes))
        .collect();
    let first = (0, Some(0), 4 * S, Some(10 * MB));
    assert_eq!(ended, [first, (S, Some(4 * S), 5 * S, Some(5 * MB))]);
}

#[test]
fn a_process_that_dies_leaves_its_grant_and_its_places() {
    let mut volume = volume(SchedulePolicy::Fcfs);
    for phase in 1..=50 {
        volume.report(id(1, phase), &report(1, MemberStage::Waiting), 0);
    }
    volume.take_answers();
    volume.report(id(1, 51), &report(1, MemberStage::Waiting), 0);
    assert_eq!(
        volume.take_answers(),
        [(id(1, 51), MemberAnswer::Unscheduled)]
    );
    assert_eq!(volume.counts().refused, 1);
    let other = MemberReport {
        user: 2_000,
        ..report(2, MemberStage::Waiting)
    };
    volume.report(id(2, 1), &other, S);
    assert_eq!(volume.take_answers(), [(id(2, 1), MemberAnswer::Wait)]);
    volume.leave(1, 2 * S);
    assert_eq!(volume.take_answers(), [(id(2, 1), GO)]);
    volume.report(id(1, 52), &report(1, MemberStage::Waiting), 3 * S);
    assert_eq!(volume.take_answers(), [(id(1, 52), MemberAnswer::Wait)]);
    // A holder of which nothing is heard; the other one says that it is there.
    for now_s in 4..12 {
        volume.report(id(1, 52), &report(1, MemberStage::Waiting), now_s * S);
        volume.step(now_s * S);
    }
    let unscheduled = MemberAnswer::Unscheduled;
    assert_eq!(
        volume.take_answers(),
        [(id(2, 1), unscheduled), (id(1, 52), GO)]
    );
    assert_eq!(volume.phases().count(), 1);
}

#[test]
fn who_reports_to_be_at_work_twice_stops_for_others() {
    for (reports, expect) in [(1, MemberAnswer::Wait), (2, GO)] {
        let mut volume = volume(SchedulePolicy::RoundRobin { turn_s: 1.0 });
        for _ in 0..reports {
            volume.report(id(1, 1), &report(1, MemberStage::Granted), 0);
        }
        volume.report(id(2, 1), &report(2, MemberStage::Waiting), 0);
        volume.step(3 * S);
        let answers = volume.take_answers();
        let last = answers.iter().rev().find(|(of, _)| *of == id(2, 1));
        assert_eq!(last.unwrap().1, expect, "{reports}");
    }
}

#[test]
fn phases_that_are_over_are_remembered_of_each_user() {
    let mut volume = volume(SchedulePolicy::Fcfs);
    let of = |user: u32, stage| MemberReport {
        user,
        ..report(1, stage)
    };
    volume.report(id(1, 1), &of(1, MemberStage::Waiting), 0);
    volume.report(id(1, 1), &of(1, MemberStage::Ended), S);
    for phase in 0..1_000 {
        volume.report(id(2, phase), &of(2, MemberStage::Waiting), 2 * S);
        volume.report(id(2, phase), &of(2, MemberStage::Ended), 3 * S);
    }
    assert_eq!(volume.ended().count(), 256);
    assert_eq!(volume.ended().next().unwrap().user, 1);
}

#[test]
fn many_reports_cost_one_plan() {
    let mut volume = volume(SchedulePolicy::Fcfs).0;
    for process in 0..40 {
        volume.report(
            id(process, 1),
            &report(process as u64, MemberStage::Waiting),
            0,
        );
    }
    assert!(volume.take_answers().is_empty() && volume.scheduler().current().grants.is_empty());
    volume.step(0);
    let answers = volume.take_answers();
    assert_eq!(answers.len(), 40);
    assert_eq!(
        answers.iter().filter(|(_, answer)| *answer == GO).count(),
        1
    );
}

proptest! {
    /// Whatever processes report: nobody has two answers that hold, the counts are right, and all
    /// is empty when all have gone.
    #[test]
    fn reports_in_any_order_leave_nothing_behind(
        reports in prop::collection::vec((0_u128..4, 0_u64..3, 0_u64..3, 0_u8..5, 0_i64..30), 0..200)
    ) {
        let stages = [
            MemberStage::Waiting,
            MemberStage::Granted,
            MemberStage::Alone,
            MemberStage::Ended,
        ];
        let mut volume = volume(SchedulePolicy::WorstSlowdown { turn_s: 1.0 });
        let mut now_ns = 0;
        for (process, phase, application, what, wait_s) in reports {
            now_ns += wait_s * S / 3;
            match stages.get(usize::from(what)) {
                Some(stage) => volume.report(id(process, phase), &report(application, *stage), now_ns),
                None => volume.leave(process, now_ns),
            }
            volume.step(now_ns);
            let members: usize = volume.phases().map(|it| it.members).sum();
            prop_assert!(members <= 12);
            prop_assert!(volume.phases().all(|it| it.members > 0));
            let granted = volume.scheduler().current().grants.len();
            prop_assert!(granted > 0 || members == 0);
        }
        for process in 0..4 {
            volume.leave(process, now_ns);
        }
        prop_assert_eq!(volume.phases().count(), 0);
        prop_assert_eq!(volume.step(now_ns), None);
    }
}
