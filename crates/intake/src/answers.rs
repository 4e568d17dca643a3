//! Answers of programs to calls, on their way to the board. An answer that comes with a new value
//! of a knob is passed on after the list of knobs was written with that value, so that a caller who
//! learns that a knob was set finds it set everywhere.
//!
//! It is a module of its own because a list covers many processes and is not written for each
//! answer: with a thousand ranks that would be most of the thread's work.

use std::collections::BTreeSet;

use barograph_stream::Incarnation;
use barograph_stream::calls::AckStatus;

use crate::timing::after_rest;
use barograph_call::Board;
use barograph_stream::ScopeReader;

/// Number of waiting answers from which the lists are written at once.
const WAITING_MAX: usize = 1 << 16;

/// One process's answer to one call.
pub(crate) struct CallAnswer {
    pub uid: u32,
    pub from: Incarnation,
    pub id: u64,
    pub status: AckStatus,
}

impl CallAnswer {
    fn tell(&self, board: &Board) {
        board.answer(self.uid, self.from, self.id, self.status);
    }
}

/// The answers that wait for lists to be written.
#[derive(Default)]
pub(crate) struct CallAnswers {
    waiting: Vec<CallAnswer>,
    /// Readers whose lists lack the values that these answers are about.
    behind: BTreeSet<ScopeReader>,
    /// Monotonic time from which lists may be written for answers again.
    next_ns: i64,
}

impl CallAnswers {
    /// Takes the answers of a process. They wait until the lists of the readers in `behind` are
    /// written; if there are none, they are passed on at once.
    pub(crate) fn take(
        &mut self,
        answers: Vec<CallAnswer>,
        behind: BTreeSet<ScopeReader>,
        board: &Board,
    ) {
        if behind.is_empty() {
            answers.iter().for_each(|answer| answer.tell(board));
            return;
        }
        self.waiting.extend(answers);
        self.behind.extend(behind);
    }

    /// Whether no answer waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The readers whose lists have to be written now, before [`Self::tell`].
    pub(crate) fn due(&self, monotonic_ns: i64) -> Option<BTreeSet<ScopeReader>> {
        let is_due = monotonic_ns >= self.next_ns || self.waiting.len() >= WAITING_MAX;
        (is_due && !self.is_empty()).then(|| self.behind.clone())
    }

    /// Passes on all waiting answers, after the lists were written from `begun_ns` to `ended_ns` on
    /// the monotonic clock.
    pub(crate) fn tell(&mut self, begun_ns: i64, ended_ns: i64, board: &Board) {
        if self.is_empty() {
            return;
        }
        self.waiting.drain(..).for_each(|answer| answer.tell(board));
        self.behind.clear();
        self.next_ns = after_rest(begun_ns, ended_ns);
    }

    /// Passes on the answers of a process that has ended: no list will contain its values.
    pub(crate) fn tell_of(&mut self, process: Incarnation, board: &Board) {
        self.waiting.retain(|answer| {
            let is_of_it = answer.from == process;
            if is_of_it {
                answer.tell(board);
            }
            !is_of_it
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use barograph_model::ManualClock;
    use barograph_stream::RunDir;

    use super::*;

    fn answers(from: u8, count: usize) -> Vec<CallAnswer> {
        let one = |id| CallAnswer {
            uid: 7,
            from: Incarnation([from; 16]),
            id: id as u64,
            status: AckStatus::Done,
        };
        (0..count).map(one).collect()
    }

    #[test]
    fn those_that_wait_for_a_list_wait_no_longer_than_it_is_to_write() {
        let clock = Arc::new(ManualClock::at(0));
        let board = Board::new(RunDir::new("/nowhere"), "/nowhere".into(), clock);
        let mut all = CallAnswers::default();
        let of = |reader| BTreeSet::from([reader]);
        all.take(answers(1, 9), BTreeSet::new(), &board);
        assert!(all.is_empty() && all.due(0).is_none(), "told at once");
        all.take(answers(1, 2), of(ScopeReader::All), &board);
        all.take(answers(2, 1), of(ScopeReader::User(7)), &board);
        assert_eq!(
            all.due(0),
            Some(BTreeSet::from([ScopeReader::All, ScopeReader::User(7)]))
        );
        all.tell(100, 103, &board);
        assert!(all.is_empty());
        // Writing the lists took 3 ns, so there is a rest of 60 ns.
        all.take(answers(1, 1), of(ScopeReader::All), &board);
        assert_eq!(
            (all.due(162), all.due(163)),
            (None, Some(of(ScopeReader::All)))
        );
        all.take(answers(2, 1), of(ScopeReader::All), &board);
        all.tell_of(Incarnation([1; 16]), &board);
        assert_eq!(all.waiting.len(), 1);
        all.tell_of(Incarnation([2; 16]), &board);
        assert!(all.due(163).is_none());
        // Answers are not kept waiting if there are too many.
        all.take(answers(1, WAITING_MAX), of(ScopeReader::All), &board);
        assert!(all.due(104).is_some());
    }
}
