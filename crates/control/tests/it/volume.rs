//! The scheduler of a volume: processes of one application have one grant.

use barograph_control::{
    MemberAnswer, MemberBounds, MemberId, MemberReport, MemberStage, SchedulePolicy,
    SchedulerConfig, TakeBackRefusal, VolumeScheduler,
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
        lease_ns: None,
        host: None,
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
fn a_process_with_two_files_joins_its_own_phase_and_its_bytes_count_once() {
    let mut volume = volume(SchedulePolicy::Fcfs);
    let of = |application, stage, bytes_done, host| MemberReport {
        bytes_done,
        host,
        ..report(application, stage)
    };
    let (waits, goes, ends) = (
        MemberStage::Waiting,
        MemberStage::Granted,
        MemberStage::Ended,
    );
    // Two ranks, of which one ends: others of the application belong to the next phase.
    volume.report(id(1, 1), &of(1, waits, 0, None), 0);
    volume.report(id(2, 1), &of(1, waits, 0, None), 0);
    volume.report(id(9, 1), &of(9, waits, 0, None), 0);
    volume.report(id(1, 1), &of(1, goes, 2 * MB, None), S);
    volume.report(id(2, 1), &of(1, ends, 0, None), S);
    volume.take_answers();
    volume.report(id(3, 1), &of(2, waits, 0, Some(1)), S);
    volume.report(id(4, 1), &of(1, waits, 0, None), S);
    let answers = volume.take_answers();
    assert_eq!(answers, [(id(3, 1), GO), (id(4, 1), MemberAnswer::Wait)]);
    assert_eq!(volume.phases().next().map(|it| it.members), Some(1));
    // Both count the same bytes, one of them a little more.
    volume.report(id(3, 1), &of(2, goes, MB, Some(1)), 2 * S);
    volume.report(id(1, 1), &of(1, goes, 3 * MB, Some(1)), 2 * S);
    volume.report(id(3, 1), &of(2, ends, 4 * MB, Some(1)), 2 * S);
    volume.report(id(1, 1), &of(1, ends, 3 * MB, Some(1)), 2 * S);
    assert_eq!(volume.take_answers(), [(id(9, 1), GO)]);
    assert_eq!(volume.ended().next().map(|it| it.bytes_done), Some(4 * MB));
    // One of another user is none of it.
    let stranger = MemberReport {
        user: 2_000,
        ..of(7, waits, 0, Some(9))
    };
    volume.report(id(7, 1), &stranger, 3 * S);
    assert_eq!(volume.take_answers(), [(id(7, 1), MemberAnswer::Wait)]);
}

#[test]
fn a_process_with_a_lease_of_its_own_ends_with_it() {
    let mut volume = volume(SchedulePolicy::Fcfs);
    let leased = |stage, bytes_done| MemberReport {
        lease_ns: Some(2 * S),
        bytes_done,
        ..report(1, stage)
    };
    let (wait, waits) = (MemberAnswer::Wait, report(9, MemberStage::Waiting));
    volume.report(id(1, 1), &leased(MemberStage::Waiting, 0), 0);
    volume.report(id(9, 1), &waits, 0);
    assert_eq!(volume.take_answers(), [(id(1, 1), GO), (id(9, 1), wait)]);
    volume.report(id(1, 1), &leased(MemberStage::Granted, MB), S);
    assert_eq!(volume.step(3 * S - 1), Some(3 * S));
    assert_eq!(volume.take_answers(), []);
    // It has ended when it was heard last, and is to ask again if it does more.
    volume.step(3 * S);
    assert_eq!(volume.take_answers(), [(id(1, 1), wait), (id(9, 1), GO)]);
    let ended = volume.ended().next().unwrap();
    let told = (ended.started_ns, ended.ended_ns, ended.bytes_done);
    assert_eq!((told, ended.has_expired), ((Some(0), S, MB), false));
    // More of it is a new phase, with another lease: that of the scheduler.
    volume.report(id(1, 1), &report(1, MemberStage::Granted), 4 * S);
    assert_eq!(volume.take_answers(), [(id(1, 1), wait)]);
    volume.report(id(9, 1), &report(9, MemberStage::Ended), 5 * S);
    assert_eq!(volume.take_answers(), [(id(1, 1), GO)]);
    assert_eq!(volume.step(5 * S), Some(14 * S));
    // One that has a grant since it was heard has not ended before that, and other processes of its
    // application stay.
    volume.report(id(1, 1), &report(1, MemberStage::Ended), 6 * S);
    volume.report(id(9, 2), &waits, 6 * S);
    volume.report(id(1, 2), &leased(MemberStage::Waiting, 0), 7 * S);
    volume.report(id(2, 1), &report(1, MemberStage::Waiting), 7 * S);
    volume.report(id(9, 2), &report(9, MemberStage::Ended), 8 * S);
    volume.step(20 * S);
    let open: Vec<_> = volume.phases().map(|it| it.members).collect();
    assert_eq!(open, [] as [usize; 0], "the other lease was over as well");
    let last = volume.ended().last().unwrap();
    assert_eq!((last.started_ns, last.has_expired), (Some(8 * S), true));
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
                Some(stage) => {
                    let said = MemberReport {
                        lease_ns: (process == 0).then_some(2 * S),
                        host: (process < 2 && phase > 0).then_some(1),
                        ..report(application, *stage)
                    };
                    volume.report(id(process, phase), &said, now_ns);
                }
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

#[test]
fn all_are_let_go_and_turns_begin_again_beside_who_is_at_work() {
    let mut volume = volume(SchedulePolicy::Fcfs);
    let waits = |application| report(application, MemberStage::Waiting);
    let alone = |application| report(application, MemberStage::Alone);
    let unscheduled = MemberAnswer::Unscheduled;
    volume.report(id(1, 1), &waits(1), 0);
    volume.report(id(2, 1), &waits(2), 0);
    volume.take_answers();
    volume.let_all(true, S);
    volume.step(S);
    // Who waits is let go; who has a grant goes on.
    assert_eq!(volume.take_answers(), [(id(2, 1), unscheduled)]);
    volume.report(id(2, 1), &alone(2), S);
    volume.report(id(3, 1), &waits(3), 2 * S);
    assert_eq!(volume.take_answers(), [(id(3, 1), unscheduled)]);
    volume.report(id(3, 1), &alone(3), 2 * S);
    assert_eq!(volume.counts().went_alone, 0, "nobody went against a plan");
    // Twice changes nothing.
    volume.let_all(true, 2 * S);
    volume.step(2 * S);
    assert_eq!(volume.take_answers(), []);
    // Who has only just begun waits.
    volume.0.report(id(4, 1), &waits(4), 3 * S);
    volume.let_all(false, 3 * S);
    volume.step(3 * S);
    let told = volume.take_answers();
    let wait = MemberAnswer::Wait;
    assert!(told.contains(&(id(4, 1), wait)), "{told:?}");
    assert_eq!(volume.counts().went_alone, 2);
    for process in 1..=3 {
        volume.leave(process, 4 * S);
    }
    assert_eq!(volume.take_answers().pop(), Some((id(4, 1), GO)));
    let started: Vec<_> = volume.ended().map(|it| it.started_ns).collect();
    assert_eq!(started, [Some(0), Some(S), Some(2 * S)]);
}

#[test]
fn a_grant_is_taken_back_where_the_program_stops_and_somebody_waits() {
    let mut volume = volume(SchedulePolicy::Fcfs);
    let with = |application, stage, bytes_done| MemberReport {
        bytes_done,
        ..report(application, stage)
    };
    let phase_of = |volume: &Stepped, application| {
        let mut phases = volume.phases();
        let found = phases.find(|it| it.phase.application == application);
        found.unwrap().phase.id
    };
    volume.report(id(1, 1), &with(1, MemberStage::Waiting, 0), 0);
    volume.report(id(1, 1), &with(1, MemberStage::Granted, 0), 0);
    let first = phase_of(&volume, 1);
    assert_eq!(volume.take_back(4_711, 0), Err(TakeBackRefusal::NoGrant));
    assert_eq!(volume.take_back(first, 0), Err(TakeBackRefusal::NeverStops));
    volume.report(id(1, 1), &with(1, MemberStage::Granted, MB), S);
    assert_eq!(
        volume.take_back(first, S),
        Err(TakeBackRefusal::NobodyWaits)
    );
    volume.report(id(2, 1), &with(2, MemberStage::Waiting, 0), S);
    let second = phase_of(&volume, 2);
    assert_eq!(volume.take_back(second, S), Err(TakeBackRefusal::NoGrant));
    volume.take_answers();
    assert_eq!(volume.take_back(first, 2 * S), Ok(()));
    volume.step(2 * S);
    let wait = MemberAnswer::Wait;
    assert_eq!(volume.take_answers(), [(id(1, 1), wait), (id(2, 1), GO)]);
    // It is first again when another one has ended.
    volume.report(id(3, 1), &with(3, MemberStage::Waiting, 0), 3 * S);
    volume.report(id(2, 1), &with(2, MemberStage::Ended, MB), 4 * S);
    assert!(volume.take_answers().contains(&(id(1, 1), GO)));
}
