//! The shell of the intake thread: it alone waits, for the time of the next round or for a knock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use barograph_model::Clock;

use crate::door::KnockSocket;
use crate::intake::{Intake, IntakeEvent, NextStep};

/// Takes in until `stop` is set; then takes in everything that is committed by then.
#[expect(clippy::disallowed_methods, reason = "the shell of the intake")]
pub(crate) fn run(
    mut intake: Intake<'_>,
    door: &KnockSocket,
    clock: &dyn Clock,
    stop: &AtomicBool,
) {
    let mut is_stopping = false;
    loop {
        let next = intake.step();
        let wait_ns = |at_ns: i64| at_ns.saturating_sub(clock.monotonic_ns()).max(0);
        match next {
            NextStep::At(at_ns) => {
                std::thread::sleep(Duration::from_nanos(wait_ns(at_ns).unsigned_abs()));
            }
            NextStep::AtOrKnock(at_ns) => door.wait(wait_ns(at_ns)),
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
