//! The forecast slots that all forecasters of an agent share, with their bounds: for the whole
//! agent and for each user's applications; and the weights of Delphi.
//!
//! Slots are given in the order of requests: a slot that becomes free goes at once to the stream
//! that has waited longest and may have it, whichever thread looks at that stream. The thread takes
//! the slot when it next asks.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use barograph_forecast::delphi::Weights;

use super::ForecastConfig;
use barograph_model::ConfigError;

/// The forecast slots of the agent, for streams of all threads, and their queue.
#[derive(Debug)]
pub struct ForecastRoom {
    streams_max: usize,
    per_user_max: usize,
    delphi: Option<Arc<Weights>>,
    taken: Mutex<Taken>,
    /// Number of slots that were given to waiting streams.
    given: AtomicU64,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    users: HashMap<Box<str>, usize>,
    /// Users of the waiting streams, by queue number, oldest first; at most as many as there are
    /// streams.
    waiting: BTreeMap<u64, Option<Box<str>>>,
    /// The next queue number.
    next: u64,
}

/// A forecast slot: one stream's place among those that have a forecast. Dropping it frees the
/// slot.
#[derive(Debug)]
pub struct ForecastSlot {
    room: Arc<ForecastRoom>,
    user: Option<Box<str>>,
}

/// A queue ticket for a stream that has no forecast slot yet. Dropping it leaves the queue.
#[derive(Debug)]
pub struct NoPlace {
    room: Arc<ForecastRoom>,
    /// Queue number; none once the ticket was exchanged for a slot.
    number: Option<u64>,
    user: Option<Box<str>>,
    /// Configuration key of the bound that was met.
    pub limit: &'static str,
    /// Value of that bound.
    pub max: usize,
}

impl ForecastRoom {
    /// Makes the slots for a checked configuration; reads the file of weights again, and fails if
    /// it is invalid.
    pub fn new(config: &ForecastConfig) -> Result<Arc<Self>, ConfigError> {
        Ok(Arc::new(Self {
            streams_max: config.streams_max,
            per_user_max: config.streams_per_user_max,
            delphi: config.weights()?,
            taken: Mutex::default(),
            given: AtomicU64::new(0),
        }))
    }

    /// The weights of Delphi, if the configuration names a file of them.
    pub fn delphi(&self) -> Option<Arc<Weights>> {
        self.delphi.clone()
    }

    /// Takes a slot for a stream of a user's application, or of none. Returns a ticket if a bound
    /// is met.
    pub fn take(self: &Arc<Self>, user: Option<&str>) -> Result<ForecastSlot, NoPlace> {
        let mut taken = self.lock();
        let room = Arc::clone(self);
        let Some((limit, max)) = self.met(&taken, user) else {
            taken.take(user);
            let user = user.map(Box::from);
            return Ok(ForecastSlot { room, user });
        };
        let number = taken.next;
        taken.next += 1;
        taken.waiting.insert(number, user.map(Box::from));
        Err(NoPlace {
            room,
            number: Some(number),
            user: user.map(Box::from),
            limit,
            max,
        })
    }

    /// The number of streams that are forecast, and of those that wait for a slot.
    pub fn counts(&self) -> (usize, usize) {
        let taken = self.lock();
        (taken.all, taken.waiting.len())
    }

    /// Number of slots that were given to waiting streams so far; a new number means that tickets
    /// may have a slot.
    pub fn given(&self) -> u64 {
        self.given.load(Ordering::Acquire)
    }

    /// The bound that one more stream of a user, or of none, would exceed.
    fn met(&self, taken: &Taken, user: Option<&str>) -> Option<(&'static str, usize)> {
        if taken.all >= self.streams_max {
            return Some(("forecast.streams_max", self.streams_max));
        }
        let of_user = taken.users.get(user?).copied();
        let is_met = of_user.unwrap_or(0) >= self.per_user_max;
        is_met.then_some(("forecast.streams_per_user_max", self.per_user_max))
    }

    /// Frees a slot and gives it to the stream that has waited longest among those that may have
    /// one.
    fn give_back(&self, taken: &mut Taken, user: Option<&str>) {
        taken.give_back(user);
        let mut waiting = taken.waiting.iter();
        let first = waiting.find(|(_, user)| self.met(taken, user.as_deref()).is_none());
        if let Some(number) = first.map(|(number, _)| *number)
            && let Some(user) = taken.waiting.remove(&number)
        {
            taken.take(user.as_deref());
            self.given.fetch_add(1, Ordering::Release);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        // Ignoring poison is sound: the counts are right after each statement.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    fn take(&mut self, user: Option<&str>) {
        self.all += 1;
        if let Some(user) = user {
            *self.users.entry(user.into()).or_default() += 1;
        }
    }

    fn give_back(&mut self, user: Option<&str>) {
        self.all = self.all.saturating_sub(1);
        let Some(user) = user else { return };
        if let Some(count) = self.users.get_mut(user) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.users.remove(user);
            }
        }
    }
}

impl NoPlace {
    /// Exchanges the ticket for its slot, if it has been given one.
    pub fn take(&mut self) -> Option<ForecastSlot> {
        let number = self.number?;
        if self.room.lock().waiting.contains_key(&number) {
            return None;
        }
        self.number = None;
        Some(ForecastSlot {
            room: Arc::clone(&self.room),
            user: self.user.take(),
        })
    }
}

impl Drop for ForecastSlot {
    fn drop(&mut self) {
        let mut taken = self.room.lock();
        self.room.give_back(&mut taken, self.user.as_deref());
    }
}

impl Drop for NoPlace {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let mut taken = self.room.lock();
        // A ticket that has left the queue was given a slot, which was not taken.
        if taken.waiting.remove(&number).is_none() {
            self.room.give_back(&mut taken, self.user.as_deref());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(streams_max: usize, streams_per_user_max: usize) -> Arc<ForecastRoom> {
        let config = ForecastConfig {
            streams_max,
            streams_per_user_max,
            ..ForecastConfig::default()
        };
        ForecastRoom::new(&config).unwrap()
    }

    #[test]
    fn places_are_bounded_for_all_and_for_each_user() {
        let room = room(3, 1);
        let of_node = room.take(None).unwrap();
        let of_eve = room.take(Some("eve")).unwrap();
        let beyond = room.take(Some("eve")).unwrap_err();
        assert_eq!(
            (beyond.limit, beyond.max),
            ("forecast.streams_per_user_max", 1)
        );
        let of_bob = room.take(Some("bob")).unwrap();
        assert_eq!(room.take(None).unwrap_err().limit, "forecast.streams_max");
        assert_eq!(room.counts(), (3, 1));
        drop((beyond, of_eve));
        assert_eq!(room.counts(), (2, 0));
        let again = room.take(Some("eve")).unwrap();
        drop((again, of_bob, of_node));
        assert_eq!(room.counts(), (0, 0));
        assert!(room.lock().users.is_empty());
    }

    #[test]
    fn who_waits_longest_of_those_who_may_is_given_what_becomes_free() {
        let room = room(3, 2);
        let mut eves = [(); 2].map(|()| room.take(Some("eve")).ok());
        let of_node = room.take(None).unwrap();
        let mut third = room.take(Some("eve")).unwrap_err();
        let mut bobs = room.take(Some("bob")).unwrap_err();
        let last = room.take(None).unwrap_err();
        assert_eq!((room.counts(), room.given()), ((3, 3), 0));
        // Eve has as many slots as she may: the slot goes to Bob, who came after her third. A new
        // request has to wait behind all.
        drop(of_node);
        assert_eq!((room.counts(), room.given()), ((3, 2), 1));
        assert!(room.take(None).is_err(), "it goes at once");
        assert!(third.take().is_none());
        let place = bobs.take().unwrap();
        assert!(bobs.take().is_none(), "one is enough");
        drop(bobs);
        assert_eq!(room.counts(), (3, 2));
        // One of Eve's slots becomes free: her third stream is now first in the queue.
        eves[0] = None;
        assert_eq!((room.counts(), room.given()), ((3, 1), 2));
        // Eve's third stream ends before its slot was taken: the slot goes to the last one.
        drop(third);
        assert_eq!((room.counts(), room.given()), ((3, 0), 3));
        drop(last);
        assert_eq!(room.counts(), (2, 0));
        drop((place, eves));
        assert_eq!((room.counts(), room.given()), ((0, 0), 3));
        assert!(room.lock().users.is_empty());
    }

    #[test]
    fn places_are_counted_together_whoever_takes_them() {
        const EACH: usize = 2_000;
        let room = room(5, 3);
        std::thread::scope(|threads| {
            for user in [None, Some("eve"), Some("bob")] {
                let room = &room;
                threads.spawn(move || {
                    let (mut places, mut waiting) = (Vec::new(), Vec::new());
                    for at in 0..EACH {
                        match room.take(user) {
                            Ok(place) => places.push(place),
                            Err(no_place) => waiting.push(no_place),
                        }
                        places.extend(waiting.iter_mut().filter_map(NoPlace::take));
                        assert!(room.counts().0 <= 5 && (user.is_none() || places.len() <= 3));
                        if at % 3 == 0 {
                            places.pop();
                        }
                        waiting.truncate(at % 7);
                    }
                });
            }
        });
        assert_eq!(room.counts(), (0, 0));
        let taken = room.lock();
        assert!(taken.users.is_empty() && taken.waiting.is_empty());
    }
}
