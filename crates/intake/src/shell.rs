//! The shell of the intake thread: it alone waits, for the time of the next round or for a knock.

use std::sync::atomic::{AtomicBool, Ordering};

use barograph_model::Clock;

use crate::door::KnockSocket;
use crate::intake::{Intake, IntakeEvent, NextStep};

/// Takes in until `stop` is set; then takes in everything that is committed by then.
pub(crate) fn run(
    mut intake: Intake<'_>,
    door: &KnockSocket,
    clock: &dyn Clock,
    stop: &AtomicBool,
) {
    let mut is_stopping = false;
    loop {
        match intake.step() {
            NextStep::At(at_ns) => wait(&mut intake, door, clock, at_ns, false),
            NextStep::AtOrKnock(at_ns) => wait(&mut intake, door, clock, at_ns, true),
            NextStep::Never => return,
        }
        if !is_stopping {
            intake.apply(IntakeEvent::Knocks(door.hear()));
        }
        if !is_stopping && stop.load(Ordering::Acquire) {
            is_stopping = true;
            intake.apply(IntakeEvent::Stop);
        }
    }
}

/// Waits until a time, or for a knock. Phases of I/O are attended at once, since their programs
/// wait; between two times for them there is a rest, so that rounds and other threads have theirs.
fn wait(
    intake: &mut Intake<'_>,
    door: &KnockSocket,
    clock: &dyn Clock,
    at_ns: i64,
    is_for_knock: bool,
) {
    loop {
        let now_ns = clock.monotonic_ns();
        if now_ns >= at_ns {
            return;
        }
        let rested_ns = intake.phases_due_ns();
        let is_for_phases = now_ns >= rested_ns;
        let until_ns = match is_for_phases {
            true => at_ns,
            false => at_ns.min(rested_ns),
        };
        let has_knocked = door.wait(until_ns - now_ns, is_for_knock, is_for_phases);
        if is_for_phases {
            let from = door.hear_phases();
            if !from.is_empty() {
                intake.apply(IntakeEvent::Phases(from));
                // The processes are awake now, which changes the time of the next round.
                if is_for_knock {
                    return;
                }
            }
        }
        if has_knocked {
            return;
        }
    }
}
