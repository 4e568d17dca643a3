//! A server as a part of a map of servers: what the agent tells of the map goes to the server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use barograph_client::publish::{MapFollower, Publisher, ToldMap};
use barograph_control::ToldEpochs;
use barograph_staging::{ServerMembership, StagingServer};

use super::Usage;

/// Longest wait for the first word of an agent about the map. A server that hears none serves
/// epoch 0, as members do then.
const FIRST_WAIT: Duration = Duration::from_secs(2);
/// Time between two looks whether the server stops.
const LOOK: Duration = Duration::from_millis(200);

/// A server's part of a map.
pub(super) struct MapPart {
    number: u32,
    follower: MapFollower,
    /// The epoch that was told last, and whether the server was in it.
    before: Option<(u64, bool)>,
}

impl MapPart {
    /// Joins a map as its server of this number.
    pub(super) fn join(publisher: &Publisher, map: &str, number: u32) -> anyhow::Result<Self> {
        let server = publisher.map_server(map, number);
        let server = server.map_err(|error| Usage(error.to_string()))?;
        Ok(Self {
            number,
            follower: server.follow(),
            before: None,
        })
    }

    /// What is known of the map before the server serves anything; waits for it for a short time.
    pub(super) fn first(&mut self) -> Option<(ToldEpochs, ServerMembership)> {
        let mut newest = None;
        let mut wait = FIRST_WAIT;
        while let Some(told) = self.follower.next(wait) {
            let words = self.take(&told);
            self.follower.serves_from(words.0.fence);
            newest = Some(words);
            // What is told after this finds the server counted.
            wait = Duration::ZERO;
        }
        if newest.is_none() {
            self.follower.serves_from(0);
        }
        newest
    }

    /// Tells the server what comes, until it is to stop.
    pub(super) fn follow(mut self, server: &StagingServer, is_over: &AtomicBool) -> Self {
        while !is_over.load(Ordering::Relaxed) {
            if let Some(told) = self.follower.next(LOOK) {
                let (epochs, membership) = self.take(&told);
                server.tell(epochs, membership);
                self.follower.serves_from(server.fence());
                tracing::info!(
                    epoch = told.epochs.epoch,
                    fence = server.fence(),
                    ?membership,
                    "told of the map"
                );
            }
        }
        self
    }

    fn take(&mut self, told: &ToldMap) -> (ToldEpochs, ServerMembership) {
        let now = (told.epochs.epoch, told.servers.contains(self.number));
        let membership = membership(self.before.replace(now), now, told.epochs.fence);
        let epoch = match membership {
            ServerMembership::Stayed => told.epochs.epoch,
            // The epoch with which it comes back may be the one that is being made ready.
            ServerMembership::Joined => told.epochs.epoch.max(told.epochs.fence),
        };
        let epochs = ToldEpochs {
            epoch,
            ..told.epochs
        };
        (epochs, membership)
    }
}

/// Whether the server was in every map, from the epochs that it was told of: each with whether it
/// was in that one. One that was not seen may have been without it.
fn membership(before: Option<(u64, bool)>, now: (u64, bool), fence: u64) -> ServerMembership {
    let (epoch, is_in) = now;
    match before {
        Some((last, true)) if is_in && epoch <= last.saturating_add(1) => ServerMembership::Stayed,
        // It is in no map, nor will be in the one that is made ready.
        _ if !is_in && fence <= epoch => ServerMembership::Stayed,
        _ => ServerMembership::Joined,
    }
}

#[cfg(test)]
mod tests {
    use ServerMembership::{Joined, Stayed};

    use super::*;

    #[test]
    fn a_server_has_stayed_only_if_it_saw_that_it_was_in_all_maps() {
        for (before, now, fence, expect) in [
            // The first word: nobody knows what was before.
            (None, (3, true), 3, Joined),
            (None, (3, false), 3, Stayed),
            (Some((3, true)), (3, true), 3, Stayed),
            (Some((3, true)), (3, true), 4, Stayed),
            (Some((3, true)), (4, true), 4, Stayed),
            // Epoch 4 may have been without it.
            (Some((3, true)), (5, true), 5, Joined),
            (Some((3, true)), (4, false), 4, Stayed),
            (Some((4, false)), (5, true), 5, Joined),
            // It may be in epoch 5, which members may know before it does.
            (Some((4, false)), (4, false), 5, Joined),
        ] {
            let shown = format!("{before:?} {now:?} {fence}");
            assert_eq!(membership(before, now, fence), expect, "{shown}");
        }
    }
}
