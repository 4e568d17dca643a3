//! A queue of questions that no client can have for itself.
//!
//! It stands alone because it is a policy without threads: clients take turns, none has every thread
//! while another waits, and none fills the queue.

use std::collections::{HashMap, VecDeque};

/// Who asks; those who did not say are one client.
type Client = Option<u64>;

/// What waits, in turns by client.
#[derive(Debug)]
pub(crate) struct Fair<T> {
    /// Clients with something that waits, in the order of their turns.
    turns: VecDeque<(Client, VecDeque<T>)>,
    running: HashMap<Client, usize>,
    waiting: usize,
    threads: usize,
    waiting_max: usize,
}

impl<T> Fair<T> {
    /// Nothing yet, for so many threads.
    pub(crate) fn new(threads: usize, waiting_max: usize) -> Self {
        Self {
            turns: VecDeque::new(),
            running: HashMap::new(),
            waiting: 0,
            threads,
            waiting_max,
        }
    }

    /// Adds a question; whether there was room. A client that is known has at most half of it.
    pub(crate) fn push(&mut self, client: Client, one: T) -> bool {
        let of_client = self.turns.iter().position(|(other, _)| *other == client);
        let waits = of_client.map_or(0, |at| self.turns[at].1.len());
        let share = match client {
            Some(_) => self.waiting_max.div_ceil(2),
            None => self.waiting_max,
        };
        if self.waiting >= self.waiting_max || waits >= share {
            return false;
        }
        match of_client {
            Some(at) => self.turns[at].1.push_back(one),
            None => self.turns.push_back((client, VecDeque::from([one]))),
        }
        self.waiting += 1;
        true
    }

    /// The next question, which runs from now on; its client's turn comes again after the others'.
    pub(crate) fn begin(&mut self) -> Option<(Client, T)> {
        // One thread is left to the others, when others wait.
        let share = match self.turns.len() {
            0 | 1 => usize::MAX,
            _ => self.threads.saturating_sub(1).max(1),
        };
        let runs = |client: &Client| self.running.get(client).copied().unwrap_or(0);
        let within = |(client, _): &(Client, VecDeque<T>)| runs(client) < share;
        let at = self.turns.iter().position(within)?;
        let (client, mut waits) = self.turns.remove(at)?;
        let one = waits.pop_front()?;
        if !waits.is_empty() {
            self.turns.push_back((client, waits));
        }
        self.waiting -= 1;
        *self.running.entry(client).or_default() += 1;
        Some((client, one))
    }

    /// A question of this client has its answer.
    pub(crate) fn end(&mut self, client: Client) {
        if let Some(runs) = self.running.get_mut(&client) {
            *runs -= 1;
            if *runs == 0 {
                self.running.remove(&client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(threads: usize, waiting: &[(u64, u32)]) -> Fair<u32> {
        let mut fair = Fair::new(threads, 16);
        for (client, number) in waiting {
            assert!(fair.push(Some(*client), *number));
        }
        fair
    }

    #[test]
    fn clients_take_turns() {
        let mut fair = with(1, &[(1, 10), (1, 11), (1, 12), (2, 20), (3, 30), (2, 21)]);
        let mut order = Vec::new();
        while let Some((client, number)) = fair.begin() {
            order.push(number);
            fair.end(client);
        }
        assert_eq!(order, [10, 20, 30, 11, 21, 12]);
    }

    #[test]
    fn no_client_has_every_thread_while_another_waits() {
        let mut fair = with(3, &[(1, 10), (1, 11), (1, 12), (1, 13)]);
        // Alone, it may have them all.
        let begun: Vec<u32> = (0..3).map(|_| fair.begin().unwrap().1).collect();
        assert_eq!(begun, [10, 11, 12]);
        fair.end(Some(1));
        assert!(fair.push(Some(2), 20));
        // The one that is free goes to the other, though the first was there before.
        assert_eq!(fair.begin(), Some((Some(2), 20)));
        assert!(fair.push(Some(2), 21));
        assert_eq!(fair.begin(), Some((Some(2), 21)));
    }

    #[test]
    fn the_queue_is_bounded_and_no_client_fills_it() {
        let mut fair: Fair<u32> = Fair::new(1, 4);
        let taken: Vec<bool> = (0..3).map(|number| fair.push(Some(1), number)).collect();
        assert_eq!(taken, [true, true, false]);
        assert!(fair.push(None, 0));
        assert!(fair.push(Some(2), 0));
        assert!(!fair.push(Some(3), 0));
    }
}
