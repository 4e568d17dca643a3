//! The node that a request follows, and its demand: streams of another node are mirrored for as
//! long as the request is open.
//!
//! It stands alone because two kinds of requests have a demand: watches, and those that carry
//! nothing else ([`crate::demand`]).

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use barograph_model::Selector;
use barograph_stream::{PEERS_DOCUMENT, PeersRow};

use crate::app::{App, RequestOrigin};
use crate::control::HeldDemand;
use crate::fault::Fault;
use crate::rights::AccessWay;
use crate::share::HeldPlace;
use crate::view::{ServedView, ServedViews};

/// A node that somebody follows, and the demand for its streams.
pub(crate) struct FollowedNode {
    pub views: Arc<ServedViews>,
    /// The view at present; `None` if nothing of the node is mirrored yet.
    pub view: Option<Arc<ServedView>>,
    /// The demand, or the reason why there is none, for people; `None` if nothing is to be
    /// demanded.
    pub demand: Option<Result<HeldDemand, String>>,
}

impl FollowedNode {
    /// A node of which nothing is demanded.
    pub(crate) fn mirrored((views, view): (Arc<ServedViews>, Arc<ServedView>)) -> Self {
        Self {
            views,
            view: Some(view),
            demand: None,
        }
    }
}

impl App {
    /// Demands these streams of a node, if it is another one, and finds its views.
    pub(crate) fn follow_node(
        &self,
        node: Option<&str>,
        selectors: &[Selector],
        RequestOrigin(way, client): RequestOrigin,
    ) -> Result<FollowedNode, Fault> {
        let own = self.view()?;
        let Some(node) = self.other(node, &own)? else {
            return Ok(FollowedNode::mirrored((Arc::clone(&self.views), own)));
        };
        let (views, view) = match self.views_of(Some(node)) {
            Ok((views, view)) => (views, Some(view)),
            // Its mirror begins with the demand.
            Err(_) if self.knows(node)? => (Arc::new(self.views.of_mirror(node)), None),
            Err(fault) => return Err(fault),
        };
        let user = match way {
            AccessWay::Tcp => None,
            _ => client.0,
        };
        Ok(FollowedNode {
            views,
            view,
            demand: Some(self.control.demand(node, selectors, user)),
        })
    }

    /// Whether the node is connected.
    fn knows(&self, node: &str) -> Result<bool, Fault> {
        let document = self.list_document(PEERS_DOCUMENT)?;
        let peers: Vec<PeersRow> = serde_json::from_slice(&document).map_err(|e| {
            Fault::internal(format!("{PEERS_DOCUMENT} is not as it should be: {e}"))
        })?;
        let mut peers = peers.iter();
        Ok(peers.any(|peer| peer.node == node && peer.state == "connected"))
    }

    /// Takes a place among those who follow streams.
    pub(crate) fn watcher_place(
        &self,
        RequestOrigin(way, client): RequestOrigin,
    ) -> Result<HeldPlace, Fault> {
        let place = self.room(way).watchers.take(client, "watchers");
        place.inspect_err(|_| {
            self.counters
                .refused_watchers
                .fetch_add(1, Ordering::Relaxed);
        })
    }
}

/// The event that tells whether streams are mirrored by demand, and the reason why they are not.
pub(crate) fn demand_event(demand: &Result<HeldDemand, String>) -> Vec<u8> {
    let (is_held, reason) = (demand.is_ok(), demand.as_ref().err());
    let data = serde_json::json!({ "held": is_held, "reason": reason });
    let mut out = Vec::new();
    // Writing to a Vec cannot fail.
    let _ = write!(out, "event: demand\ndata: {data}\n\n");
    out
}
