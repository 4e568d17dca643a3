//! Places for requests that run at once, shared between the users of this machine.
//!
//! It stands alone because it is a policy: a user with many requests is refused before nothing is
//! left for others. A user is known by the user id of the other end, from the kernel.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use barograph_model::{CONTROL, ClientNumber, UNKNOWN};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::fault::Fault;
use crate::rights::AccessWay;

/// The client whose requests count together: one user, or all whose user is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClientShare(pub Option<u32>);

impl ClientShare {
    /// The number under which memory and query threads count this client: clients of the control
    /// socket count as control, whatever their user.
    pub(crate) fn number(self, way: AccessWay) -> ClientNumber {
        match way {
            AccessWay::ControlSocket => CONTROL,
            _ => self.0.map_or(UNKNOWN, u64::from),
        }
    }
}

/// A set of places that are taken and given back; each client gets a limited share of them.
#[derive(Debug)]
pub(crate) struct ClientPlaces {
    places: Arc<Semaphore>,
    held: Mutex<HashMap<ClientShare, usize>>,
    /// Semaphores of clients that wait for a place, one share each.
    waits: Mutex<HashMap<ClientShare, Arc<Semaphore>>>,
    of_one_max: usize,
}

impl ClientPlaces {
    /// Makes `places` places, of which one client gets at most `of_one_max`.
    pub(crate) fn new(places: usize, of_one_max: usize) -> Self {
        Self {
            places: Arc::new(Semaphore::new(places)),
            held: Mutex::default(),
            waits: Mutex::default(),
            of_one_max: of_one_max.clamp(1, places.max(1)),
        }
    }

    /// Takes a place now, or fails with 503. `what` names the kind in the message.
    pub(crate) fn take(
        self: &Arc<Self>,
        client: ClientShare,
        what: &str,
    ) -> Result<HeldPlace, Fault> {
        let mut held = self.held();
        let count = held.get(&client).copied().unwrap_or(0);
        if count >= self.of_one_max {
            return Err(Fault::busy(format!(
                "too many {what} at once by one user: try again"
            )));
        }
        let permit = Arc::clone(&self.places)
            .try_acquire_owned()
            .map_err(|_| Fault::busy(format!("too many {what} at once: try again")))?;
        held.insert(client, count + 1);
        Ok(HeldPlace {
            from: Arc::clone(self),
            client,
            _permits: (permit, None),
        })
    }

    /// Waits for a place, first within the client's own share, so that a client that waits for many
    /// places does not block others.
    pub(crate) async fn wait(self: &Arc<Self>, client: ClientShare) -> Result<HeldPlace, Fault> {
        let stopping = |_| Fault::busy("the server is stopping");
        let share = {
            let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
            // Unused shares are removed, so that there are no more of them than users with
            // requests.
            waits.retain(|_, share| Arc::strong_count(share) > 1);
            let of_one = || Arc::new(Semaphore::new(self.of_one_max));
            Arc::clone(waits.entry(client).or_insert_with(of_one))
        };
        let own = share.acquire_owned().await.map_err(stopping)?;
        let place = Arc::clone(&self.places).acquire_owned().await;
        let place = place.map_err(stopping)?;
        *self.held().entry(client).or_default() += 1;
        Ok(HeldPlace {
            from: Arc::clone(self),
            client,
            _permits: (place, Some(own)),
        })
    }

    /// Waits until all places have been given back.
    pub(crate) async fn all(&self, places: usize) -> bool {
        let places = u32::try_from(places).unwrap_or(u32::MAX);
        self.places.acquire_many(places).await.is_ok()
    }

    fn held(&self) -> MutexGuard<'_, HashMap<ClientShare, usize>> {
        // No code panics while it holds this lock.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct HeldPlace {
    from: Arc<ClientPlaces>,
    client: ClientShare,
    _permits: (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>),
}

impl Drop for HeldPlace {
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

    const EAGER: ClientShare = ClientShare(Some(1000));
    const OTHER: ClientShare = ClientShare(Some(1001));

    #[test]
    fn no_client_takes_every_place() {
        let shared = Arc::new(ClientPlaces::new(8, 6));
        let taken: Vec<HeldPlace> = (0..6)
            .map(|_| shared.take(EAGER, "queries").unwrap())
            .collect();
        assert!(shared.take(EAGER, "queries").is_err());
        let others =
            [OTHER, ClientShare(None)].map(|client| shared.take(client, "queries").unwrap());
        assert!(shared.take(OTHER, "queries").is_err(), "none is left");
        drop(others);
        drop(taken);
        assert!(shared.held().is_empty());
        shared.take(EAGER, "queries").unwrap();
    }

    #[test]
    fn a_single_place_is_anyones() {
        let shared = Arc::new(ClientPlaces::new(1, 1));
        let taken = shared.take(EAGER, "queries").unwrap();
        assert!(shared.take(OTHER, "queries").is_err());
        drop(taken);
        shared.take(OTHER, "queries").unwrap();
    }

    #[test]
    fn who_waits_for_many_keeps_nobody_waiting() {
        let threads = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        threads.block_on(async {
            let shared = Arc::new(ClientPlaces::new(2, 1));
            let held = shared.wait(EAGER).await.unwrap();
            let eager: Vec<_> = (0..10)
                .map(|_| {
                    let shared = Arc::clone(&shared);
                    tokio::spawn(async move { shared.wait(EAGER).await.map(drop) })
                })
                .collect();
            tokio::task::yield_now().await;
            drop(shared.wait(OTHER).await.unwrap());
            assert!(eager.iter().all(|task| !task.is_finished()));
            drop(held);
            for task in eager {
                task.await.unwrap().unwrap();
            }
            assert!(shared.held().is_empty());
        });
    }
}
