//! The processes that are taken in: found by incarnation, kept in the order in which they came, and
//! looked at in turns, separately for each user.

use std::collections::{BTreeMap, HashMap, VecDeque};

use barograph_stream::Incarnation;

use super::process::PublishingProcess;

/// All processes that are taken in.
#[derive(Default)]
pub(crate) struct ProcessRoster {
    /// The processes by number, in the order in which they came.
    all: BTreeMap<u64, Box<PublishingProcess>>,
    by_incarnation: HashMap<Incarnation, u64>,
    /// Numbers of awake processes by user, in the order of their turns.
    awake: BTreeMap<u32, VecDeque<u64>>,
    next: u64,
    /// The sweep has still to check the sleeping processes from this number on.
    sweep: Option<u64>,
}

impl ProcessRoster {
    /// Adds a process and wakes it.
    pub(crate) fn add(&mut self, mut process: PublishingProcess) {
        let number = self.next;
        self.next += 1;
        process.is_awake = true;
        self.by_incarnation
            .insert(process.file().incarnation(), number);
        self.awake
            .entry(process.uid())
            .or_default()
            .push_back(number);
        self.all.insert(number, Box::new(process));
    }

    pub(crate) fn has(&self, incarnation: Incarnation) -> bool {
        self.by_incarnation.contains_key(&incarnation)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &PublishingProcess> + Clone {
        self.all.values().map(|process| &**process)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut PublishingProcess> {
        self.all.values_mut().map(|process| &mut **process)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn is_anyone_awake(&self) -> bool {
        !self.awake.is_empty()
    }

    /// Wakes a process; returns whether it is known.
    pub(crate) fn wake(&mut self, incarnation: Incarnation) -> bool {
        let number = self.by_incarnation.get(&incarnation).copied();
        if let Some(number) = number {
            self.wake_number(number);
        }
        number.is_some()
    }

    pub(crate) fn wake_all(&mut self) {
        self.sweep = None;
        for (number, process) in &mut self.all {
            if !process.is_awake {
                process.is_awake = true;
                let queue = self.awake.entry(process.uid()).or_default();
                queue.push_back(*number);
            }
        }
    }

    /// Wakes processes whose cells are due to be read.
    pub(crate) fn wake_due(&mut self, monotonic_ns: i64) {
        for (number, process) in &mut self.all {
            let due_ns = process.look_due_ns();
            if !process.is_awake && due_ns.is_some_and(|due_ns| monotonic_ns >= due_ns) {
                process.is_awake = true;
                let queue = self.awake.entry(process.uid()).or_default();
                queue.push_back(*number);
            }
        }
    }

    /// Monotonic time at which the next cells are due.
    pub(crate) fn next_look_ns(&self) -> i64 {
        let asleep = self.all.values().filter(|process| !process.is_awake);
        let due = asleep.filter_map(|process| process.look_due_ns());
        due.min().unwrap_or(i64::MAX)
    }

    /// Begins to check all sleeping processes for news, after knocks may have been lost.
    pub(crate) fn begin_sweep(&mut self) {
        self.sweep = Some(0);
    }

    pub(crate) fn is_sweeping(&self) -> bool {
        self.sweep.is_some()
    }

    /// Checks the next `count_max` sleeping processes, and wakes those that have news.
    pub(crate) fn sweep(&mut self, count_max: usize) {
        let Some(from) = self.sweep else {
            return;
        };
        let asleep = self.all.range(from..).filter(|(_, p)| !p.is_awake);
        let looked: Vec<(u64, bool)> = asleep
            .take(count_max)
            .map(|(number, process)| (*number, process.file().has_news()))
            .collect();
        let last = looked.last().map(|(number, _)| *number);
        self.sweep = last.filter(|_| looked.len() == count_max).map(|n| n + 1);
        for (number, has_news) in looked {
            if has_news {
                self.wake_number(number);
            }
        }
    }

    fn wake_number(&mut self, number: u64) {
        if let Some(process) = self.all.get_mut(&number)
            && !process.is_awake
        {
            process.is_awake = true;
            let queue = self.awake.entry(process.uid()).or_default();
            queue.push_back(number);
        }
    }

    /// The users that have awake processes, and the number of these.
    pub(crate) fn awake(&self) -> Vec<(u32, usize)> {
        let users = self.awake.iter();
        users.map(|(uid, queue)| (*uid, queue.len())).collect()
    }

    /// Takes the user's process whose turn it is, until it is put back or let go.
    pub(crate) fn take_turn(&mut self, uid: u32) -> Option<(u64, Box<PublishingProcess>)> {
        let number = self.awake.get_mut(&uid)?.pop_front()?;
        Some((number, self.all.remove(&number)?))
    }

    /// A process that is not taken for its turn.
    pub(crate) fn get_mut(&mut self, incarnation: Incarnation) -> Option<&mut PublishingProcess> {
        let number = self.by_incarnation.get(&incarnation)?;
        self.all.get_mut(number).map(|process| &mut **process)
    }

    /// Takes a process before its turn, and wakes it, until it is put back or let go.
    pub(crate) fn take(
        &mut self,
        incarnation: Incarnation,
    ) -> Option<(u64, Box<PublishingProcess>)> {
        let number = *self.by_incarnation.get(&incarnation)?;
        let mut process = self.all.remove(&number)?;
        if std::mem::replace(&mut process.is_awake, true)
            && let Some(queue) = self.awake.get_mut(&process.uid())
        {
            queue.retain(|of_queue| *of_queue != number);
        }
        Some((number, process))
    }

    /// Puts a process back after its turn.
    pub(crate) fn put_back(&mut self, number: u64, process: Box<PublishingProcess>) {
        let uid = process.uid();
        if process.is_awake {
            self.awake.entry(uid).or_default().push_back(number);
        }
        self.all.insert(number, process);
        self.drop_empty(uid);
    }

    /// Removes a process that is over and was taken for its turn.
    pub(crate) fn let_go(&mut self, process: &PublishingProcess) {
        self.by_incarnation.remove(&process.file().incarnation());
        self.drop_empty(process.uid());
    }

    fn drop_empty(&mut self, uid: u32) {
        if self.awake.get(&uid).is_some_and(VecDeque::is_empty) {
            self.awake.remove(&uid);
        }
    }
}
