//! What all forecasters of an agent share: how many streams may be forecast, of the whole agent and of each user's applications,
//! and Delphi's weights.
//!
//! Who comes first has a place first: a place that becomes free is at once given to the stream that has waited longest and may have
//! it, whichever thread looks at that stream; the thread takes it up when it next asks.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use barograph_forecast::delphi::Weights;

use super::ForecastConfig;
use barograph_model::ConfigError;

/// Places for streams that are forecast, whichever thread looks at them.
#[derive(Debug)]
pub struct Room {
    streams_max: usize,
    per_user_max: usize,
    delphi: Option<Arc<Weights>>,
    taken: Mutex<Taken>,
    /// Places that were given to streams that waited.
    given: AtomicU64,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    users: HashMap<Box<str>, usize>,
    /// Streams that are meant and have no place, with whose they are, in the order in which they came: as many as there are
    /// streams at most.
    waiting: BTreeMap<u64, Option<Box<str>>>,
    /// The number of the next.
    next: u64,
}

/// One stream's place. Dropping it gives it back.
#[derive(Debug)]
pub struct Place {
    room: Arc<Room>,
    user: Option<Box<str>>,
}

/// That a stream is there and waits for a place. Dropping it says that the stream is gone.
#[derive(Debug)]
pub struct NoPlace {
    room: Arc<Room>,
    /// None once it has become a place.
    number: Option<u64>,
    user: Option<Box<str>>,
    /// The bound that was met.
    pub limit: &'static str,
    /// It.
    pub max: usize,
}

impl Room {
    /// Of a configuration that was checked; the file of weights that it names is read again.
    pub fn new(config: &ForecastConfig) -> Result<Arc<Self>, ConfigError> {
        Ok(Arc::new(Self {
            streams_max: config.streams_max,
            per_user_max: config.streams_per_user_max,
            delphi: config.weights()?,
            taken: Mutex::default(),
            given: AtomicU64::new(0),
        }))
    }

    /// Somebody's own weights of Delphi, if the configuration names some.
    pub fn delphi(&self) -> Option<Arc<Weights>> {
        self.delphi.clone()
    }

    /// A place for a stream, of a user's application or of none. There is none while others wait for it.
    pub fn take(self: &Arc<Self>, user: Option<&str>) -> Result<Place, NoPlace> {
        let mut taken = self.lock();
        let room = Arc::clone(self);
        let Some((limit, max)) = self.met(&taken, user) else {
            taken.take(user);
            let user = user.map(Box::from);
            return Ok(Place { room, user });
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

    /// How many streams are forecast, and how many are meant and have no place.
    pub fn counts(&self) -> (usize, usize) {
        let taken = self.lock();
        (taken.all, taken.waiting.len())
    }

    /// Another number whenever a stream that waited was given a place.
    pub fn given(&self) -> u64 {
        self.given.load(Ordering::Acquire)
    }

    /// The bound that keeps one more stream of a user, or of none, from having a place.
    fn met(&self, taken: &Taken, user: Option<&str>) -> Option<(&'static str, usize)> {
        if taken.all >= self.streams_max {
            return Some(("forecast.streams_max", self.streams_max));
        }
        let of_user = taken.users.get(user?).copied();
        let is_met = of_user.unwrap_or(0) >= self.per_user_max;
        is_met.then_some(("forecast.streams_per_user_max", self.per_user_max))
    }

    /// A place is free again: who has waited longest of those who may have it has it from now on.
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
        // Counts are right after each statement.
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
    /// The place, if it was given one meanwhile.
    pub fn take(&mut self) -> Option<Place> {
        let number = self.number?;
        if self.room.lock().waiting.contains_key(&number) {
            return None;
        }
        self.number = None;
        Some(Place {
            room: Arc::clone(&self.room),
            user: self.user.take(),
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.room.lock();
        self.room.give_back(&mut taken, self.user.as_deref());
    }
}

impl Drop for NoPlace {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let mut taken = self.room.lock();
        // One that is there no more was given a place, which nobody has taken up.
        if taken.waiting.remove(&number).is_none() {
            self.room.give_back(&mut taken, self.user.as_deref());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(streams_max: usize, streams_per_user_max: usize) -> Arc<Room> {
        let config = ForecastConfig {
            streams_max,
            streams_per_user_max,
            ..ForecastConfig::default()
        };
        Room::new(&config).unwrap()
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
        // Eve has as many as she may: it is for Bob, who came after her third. A new one has to wait behind all.
        drop(of_node);
        assert_eq!((room.counts(), room.given()), ((3, 2), 1));
        assert!(room.take(None).is_err(), "it goes at once");
        assert!(third.take().is_none());
        let place = bobs.take().unwrap();
        assert!(bobs.take().is_none(), "one is enough");
        drop(bobs);
        assert_eq!(room.counts(), (3, 2));
        // One of hers: now it is her third that was first.
        eves[0] = None;
        assert_eq!((room.counts(), room.given()), ((3, 1), 2));
        // It ends before anybody has taken it up: then it is for the last.
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
