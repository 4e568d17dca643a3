//! A fair queue of queries.
//!
//! It stands alone because it is a policy without threads: clients take turns, no guest gets all
//! threads, and none fills the queue. Clients with the right to control have places that guests
//! cannot take, and come first.

use std::collections::{HashMap, VecDeque};

use barograph_model::{CONTROL, ClientNumber};

/// Places in the queue that are reserved for control.
pub(crate) const CONTROL_WAITING_MAX: usize = 4;

/// The queries that wait, in turns by client.
#[derive(Debug)]
pub(crate) struct Fair<T> {
    /// Clients with waiting queries, in the order of their turns.
    turns: VecDeque<(ClientNumber, VecDeque<T>)>,
    running: HashMap<ClientNumber, usize>,
    waiting: usize,
    threads: usize,
    waiting_max: usize,
}

impl<T> Fair<T> {
    /// Makes an empty queue for this number of threads.
    pub(crate) fn new(threads: usize, waiting_max: usize) -> Self {
        Self {
            turns: VecDeque::new(),
            running: HashMap::new(),
            waiting: 0,
            threads,
            waiting_max,
        }
    }

    /// Adds a query; returns whether there was room. A guest gets at most a quarter of the places.
    pub(crate) fn push(&mut self, client: ClientNumber, one: T) -> bool {
        let of_client = self.turns.iter().position(|(other, _)| *other == client);
        let waits = of_client.map_or(0, |at| self.turns[at].1.len());
        let (share, all) = match client {
            CONTROL => (
                self.waiting_max + CONTROL_WAITING_MAX,
                self.waiting_max + CONTROL_WAITING_MAX,
            ),
            _ => (self.waiting_max.div_ceil(4), self.waiting_max),
        };
        if self.waiting >= all || waits >= share {
            return false;
        }
        match of_client {
            Some(at) => self.turns[at].1.push_back(one),
            None if client == CONTROL => self.turns.push_front((client, VecDeque::from([one]))),
            None => self.turns.push_back((client, VecDeque::from([one]))),
        }
        self.waiting += 1;
        true
    }

    /// Takes the next query, which counts as running from now on; its client's next turn comes
    /// after the others'.
    pub(crate) fn begin(&mut self) -> Option<(ClientNumber, T)> {
        // One thread is left to other clients even if none of them waits now: a running statement
        // cannot be set aside for one that comes a moment later.
        let share = self.threads.saturating_sub(1).max(1);
        let runs = |client: &ClientNumber| self.running.get(client).copied().unwrap_or(0);
        let within =
            |(client, _): &(ClientNumber, VecDeque<T>)| *client == CONTROL || runs(client) < share;
        let at = self.turns.iter().position(within)?;
        let (client, mut waits) = self.turns.remove(at)?;
        let one = waits.pop_front()?;
        if !waits.is_empty() {
            match client {
                CONTROL => self.turns.push_front((client, waits)),
                _ => self.turns.push_back((client, waits)),
            }
        }
        self.waiting -= 1;
        *self.running.entry(client).or_default() += 1;
        Some((client, one))
    }

    /// Notes that a query of this client has ended.
    pub(crate) fn end(&mut self, client: ClientNumber) {
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
            assert!(fair.push(*client, *number));
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
    fn no_guest_has_every_thread() {
        let mut fair = with(3, &[(1, 10), (1, 11), (1, 12), (1, 13)]);
        let begun: Vec<u32> = std::iter::from_fn(|| fair.begin().map(|one| one.1)).collect();
        assert_eq!(begun, [10, 11], "one thread stays for who comes next");
        assert!(fair.push(2, 20));
        assert_eq!(fair.begin(), Some((2, 20)));
        fair.end(1);
        assert_eq!(fair.begin(), Some((1, 12)));
        // If there is only one thread, any client may use it.
        assert_eq!(with(1, &[(1, 10)]).begin(), Some((1, 10)));
    }

    #[test]
    fn the_queue_is_bounded_and_no_guest_fills_it() {
        let mut fair: Fair<u32> = Fair::new(1, 4);
        let taken: Vec<bool> = (0..2).map(|number| fair.push(1, number)).collect();
        assert_eq!(taken, [true, false]);
        for other in 2..5 {
            assert!(fair.push(other, 0));
        }
        assert!(!fair.push(5, 0), "it is full");
        // Control has its own places and comes first.
        let places = u32::try_from(CONTROL_WAITING_MAX).unwrap();
        assert!((0..places).all(|number| fair.push(CONTROL, 100 + number)));
        assert!(!fair.push(CONTROL, 0));
        assert_eq!(fair.begin(), Some((CONTROL, 100)));
        assert_eq!(fair.begin(), Some((CONTROL, 101)));
    }
}
