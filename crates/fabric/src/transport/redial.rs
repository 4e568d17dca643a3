//! Links that zenoh does not make again.
//!
//! Zenoh dials the addresses of the configuration until somebody answers, and again when such a
//! link is lost. A node that was heard of through a third one it dials once. If that link is lost
//! while the third node is gone as well, the two would never meet again, although both are there.
//! So a node remembers what it has dialled with success, and dials it again.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use barograph_model::NS_PER_S;
use zenoh::config::{Locator, ZenohId};
use zenoh::internal::runtime::{Runtime, RuntimeBuilder, ZRuntime};
use zenoh::{Config, Error, Session, Wait as _};

/// Time between two looks at the links, in ns: a link that is lost within less is not remembered.
const LOOK_NS: i64 = NS_PER_S;
/// Time between two rounds in which nodes are dialled, in ns.
const DIAL_NS: i64 = 5 * NS_PER_S;
/// Time after which a node that cannot be reached is not dialled any more, in ns. One that has
/// started anew is another one for zenoh, and dials by itself.
const FORGET_NS: i64 = 3_600 * NS_PER_S;
/// Most nodes that are remembered, and that are dialled in one round.
const KNOWN_MAX: usize = 4_096;
const DIALLED_MAX: usize = 16;

/// The end of zenoh that a session belongs to. It is closed when this is dropped.
pub(super) struct Redial {
    runtime: Runtime,
    known: HashMap<ZenohId, Known>,
    /// Whether the nodes of the last round are still being dialled.
    dials: Arc<AtomicBool>,
    look_ns: i64,
    dial_ns: i64,
}

/// Where a node was dialled with success.
struct Known {
    address: Locator,
    linked_ns: i64,
    dialled_ns: i64,
}

impl Redial {
    /// Opens a session.
    pub(super) fn open(config: Config) -> Result<(Session, Self), Error> {
        let runtime = ZRuntime::Application.block_in_place(RuntimeBuilder::new(config).build())?;
        let redial = Self {
            runtime: runtime.clone(),
            known: HashMap::new(),
            dials: Arc::default(),
            look_ns: i64::MIN,
            dial_ns: i64::MIN,
        };
        let session = zenoh::session::init(runtime.clone().into()).wait()?;
        let mut starting = runtime;
        ZRuntime::Application.block_in_place(starting.start())?;
        Ok((session, redial))
    }

    /// Looks at the links, if it is time for that, and dials nodes whose links are lost. It waits
    /// for nobody.
    pub(super) fn tend(&mut self, session: &Session, now_ns: i64) {
        if now_ns < self.look_ns {
            return;
        }
        self.look_ns = now_ns.saturating_add(LOOK_NS);
        let info = session.info();
        let own: HashSet<String> = info.locators().wait().iter().filter_map(port).collect();
        let mut linked = HashSet::new();
        for link in info.links().wait() {
            linked.insert(*link.zid());
            // A link that comes from an address of this node's own was made by the other one,
            // whose address is no place to be dialled.
            if port(link.src()).is_some_and(|port| !own.contains(&port)) {
                let known = Known {
                    address: link.dst().clone(),
                    linked_ns: now_ns,
                    dialled_ns: now_ns,
                };
                self.known.insert(*link.zid(), known);
            }
        }
        self.forget(now_ns);
        if now_ns < self.dial_ns || self.dials.swap(true, Ordering::SeqCst) {
            return;
        }
        self.dial_ns = now_ns.saturating_add(DIAL_NS);
        let lost = self.lost(&linked, now_ns);
        if lost.is_empty() {
            self.dials.store(false, Ordering::SeqCst);
            return;
        }
        let (runtime, dials) = (self.runtime.clone(), Arc::clone(&self.dials));
        // It ends with its answers, or with the timeout of each.
        drop(ZRuntime::Net.spawn(async move {
            for (node, address) in lost {
                runtime.connect_peer(&node.into(), &[address]).await;
            }
            dials.store(false, Ordering::SeqCst);
        }));
    }

    /// The nodes whose turn it is to be dialled: those without a link for which that is longest
    /// ago.
    fn lost(&mut self, linked: &HashSet<ZenohId>, now_ns: i64) -> Vec<(ZenohId, Locator)> {
        let mut lost: Vec<_> = self.known.iter_mut().collect();
        lost.retain(|(node, _)| !linked.contains(node));
        lost.sort_by_key(|(_, known)| known.dialled_ns);
        lost.truncate(DIALLED_MAX);
        let dial = |(node, known): (&ZenohId, &mut Known)| {
            known.dialled_ns = now_ns;
            (*node, known.address.clone())
        };
        lost.into_iter().map(dial).collect()
    }

    fn forget(&mut self, now_ns: i64) {
        self.known
            .retain(|_, known| now_ns.saturating_sub(known.linked_ns) < FORGET_NS);
        while self.known.len() > KNOWN_MAX {
            let oldest = self.known.iter().min_by_key(|(_, known)| known.linked_ns);
            let Some(oldest) = oldest.map(|(node, _)| *node) else {
                return;
            };
            self.known.remove(&oldest);
        }
    }
}

impl Drop for Redial {
    fn drop(&mut self) {
        // A node that is not told of the end finds it by its lease.
        let _ = self.runtime.close().wait();
    }
}

/// The port of an address.
fn port(address: &Locator) -> Option<String> {
    let address = address.address().to_string();
    address.rsplit_once(':').map(|(_, port)| port.to_owned())
}
