//! What all forecasters of an agent share: how many streams may be forecast, of the whole agent and of each user's applications,
//! and Delphi's weights.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use barograph_forecast::delphi::Weights;

use super::ForecastConfig;
use crate::AgentError;

/// Places for streams that are forecast, whichever thread looks at them.
#[derive(Debug)]
pub struct Room {
    streams_max: usize,
    per_user_max: usize,
    delphi: Option<Arc<Weights>>,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    users: HashMap<Box<str>, usize>,
    /// Streams that are meant and have no place.
    beyond: usize,
}

/// One stream's place. Dropping it gives it back.
#[derive(Debug)]
pub struct Place {
    room: Arc<Room>,
    user: Option<Box<str>>,
}

/// That a stream is there and has no place. Dropping it says that the stream is gone.
#[derive(Debug)]
pub struct NoPlace {
    room: Arc<Room>,
    /// The bound that was met.
    pub limit: &'static str,
    /// It.
    pub max: usize,
}

impl Room {
    /// Of a configuration that was checked; the file of weights that it names is read again.
    pub fn new(config: &ForecastConfig) -> Result<Arc<Self>, AgentError> {
        Ok(Arc::new(Self {
            streams_max: config.streams_max,
            per_user_max: config.streams_per_user_max,
            delphi: config.weights()?,
            taken: Mutex::default(),
        }))
    }

    /// Somebody's own weights of Delphi, if the configuration names some.
    pub fn delphi(&self) -> Option<Arc<Weights>> {
        self.delphi.clone()
    }

    /// A place for a stream, of a user's application or of none.
    pub fn take(self: &Arc<Self>, user: Option<&str>) -> Result<Place, NoPlace> {
        let mut taken = self.lock();
        let of_user = user.and_then(|user| taken.users.get(user)).copied();
        let met = if taken.all >= self.streams_max {
            Some(("forecast.streams_max", self.streams_max))
        } else if user.is_some() && of_user.unwrap_or(0) >= self.per_user_max {
            Some(("forecast.streams_per_user_max", self.per_user_max))
        } else {
            None
        };
        if let Some((limit, max)) = met {
            taken.beyond += 1;
            let room = Arc::clone(self);
            return Err(NoPlace { room, limit, max });
        }
        taken.all += 1;
        if let Some(user) = user {
            *taken.users.entry(user.into()).or_default() += 1;
        }
        Ok(Place {
            room: Arc::clone(self),
            user: user.map(Box::from),
        })
    }

    /// How many streams are forecast, and how many are meant and have no place.
    pub fn counts(&self) -> (usize, usize) {
        let taken = self.lock();
        (taken.all, taken.beyond)
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        // Counts are right after each statement.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.room.lock();
        taken.all -= 1;
        let Some(user) = self.user.take() else {
            return;
        };
        if let Some(count) = taken.users.get_mut(&user) {
            *count -= 1;
            if *count == 0 {
                taken.users.remove(&user);
            }
        }
    }
}

impl Drop for NoPlace {
    fn drop(&mut self) {
        self.room.lock().beyond -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_for_all_and_for_each_user() {
        let room = Room::new(&ForecastConfig {
            streams_max: 3,
            streams_per_user_max: 1,
            ..ForecastConfig::default()
        })
        .unwrap();
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
}
