//! Places for large answers, shared between the users of this machine.
//!
//! It stands alone because it is a policy: whoever asks much is refused before nothing is left for
//! others. Who asks is known by the kernel's word for it, the user id of the other end.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::blocking;
use crate::fault::Fault;

/// Whose questions count together: a user, or all those whose user could not be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Client(pub Option<u32>);

impl Client {
    /// The number under which [`barograph_model::SqlEngine::query_of`] knows this client.
    pub fn number(self) -> u64 {
        self.0.map_or(u64::MAX, u64::from)
    }
}

/// Places that are taken and given back.
#[derive(Debug)]
pub struct Places {
    places: Arc<Semaphore>,
    held: Mutex<HashMap<Client, usize>>,
    of_one_max: usize,
}

impl Places {
    /// So many places; a quarter of them is out of reach of any one client.
    pub fn new(places: usize) -> Self {
        Self {
            places: Arc::new(Semaphore::new(places)),
            held: Mutex::default(),
            of_one_max: places - places / 4,
        }
    }

    /// A place now, or 503.
    pub fn take(self: &Arc<Self>, client: Client, what: &str) -> Result<Held, Fault> {
        let mut held = self.held();
        let count = held.get(&client).copied().unwrap_or(0);
        if count >= self.of_one_max {
            return Err(Fault::busy(format!(
                "too many {what} at once by one user: try again"
            )));
        }
        let permit = blocking::permit(&self.places, what)?;
        held.insert(client, count + 1);
        Ok(Held {
            from: Arc::clone(self),
            client,
            _permit: permit,
        })
    }

    fn held(&self) -> MutexGuard<'_, HashMap<Client, usize>> {
        // No code panics while it holds this.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place, given back when dropped.
#[derive(Debug)]
pub struct Held {
    from: Arc<Places>,
    client: Client,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut held = self.from.held();
        if let Some(count) = held.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EAGER: Client = Client(Some(1000));
    const OTHER: Client = Client(Some(1001));

    #[test]
    fn no_client_takes_every_place() {
        let shared = Arc::new(Places::new(8));
        let taken: Vec<Held> = (0..6)
            .map(|_| shared.take(EAGER, "queries").unwrap())
            .collect();
        assert!(shared.take(EAGER, "queries").is_err());
        let others = [OTHER, Client(None)].map(|client| shared.take(client, "queries").unwrap());
        assert!(shared.take(OTHER, "queries").is_err(), "none is left");
        drop(others);
        drop(taken);
        assert!(shared.held().is_empty());
        shared.take(EAGER, "queries").unwrap();
    }

    #[test]
    fn a_single_place_is_anyones() {
        let shared = Arc::new(Places::new(1));
        let taken = shared.take(EAGER, "queries").unwrap();
        assert!(shared.take(OTHER, "queries").is_err());
        drop(taken);
        shared.take(OTHER, "queries").unwrap();
    }
}
