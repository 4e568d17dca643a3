//! `/api/v1/demand`, and the demands of watches: streams of another node that are mirrored for as long as
//! a request is open.
//!
//! They stand alone because a watch is one of two requests that have a demand. The other one is for
//! programs that read the mirror from memory, and carries nothing but the news of its demand.

use std::io::Write as _;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, State};
use axum::http::header;
use axum::response::IntoResponse as _;
use barograph_model::Selector;
use barograph_stream::{PEERS_DOCUMENT, PeersRow};
use tokio::sync::mpsc;
use tokio::time::{interval, timeout};

use crate::app::{App, HandlerAnswer, RequestOrigin, SharedApp};
use crate::blocking;
use crate::control::HeldDemand;
use crate::fault::Fault;
use crate::params::Params;
use crate::rights::AccessWay;
use crate::share::HeldPlace;
use crate::view::{ServedView, ServedViews};
use crate::watch::{BYE, BYE_TIME_MAX, MessageBody, QUEUED_MAX, STILL_HERE};

/// A node that somebody follows, and the demand for its streams.
pub(crate) struct FollowedNode {
    pub views: Arc<ServedViews>,
    /// The view at present; `None` if nothing of the node is mirrored yet.
    pub view: Option<Arc<ServedView>>,
    /// The demand, or the reason why there is none, for people; `None` if the node is this one.
    pub demand: Option<Result<HeldDemand, String>>,
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
            return Ok(FollowedNode {
                views: Arc::clone(&self.views),
                view: Some(own),
                demand: None,
            });
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
pub(crate) fn event(demand: &Result<HeldDemand, String>) -> Vec<u8> {
    let (is_held, reason) = (demand.is_ok(), demand.as_ref().err());
    let data = serde_json::json!({ "held": is_held, "reason": reason });
    let mut out = Vec::new();
    // Writing to a Vec cannot fail.
    let _ = write!(out, "event: demand\ndata: {data}\n\n");
    out
}

/// `GET /api/v1/demand?match=P&node=NAME`
pub(crate) async fn demand(
    State(app): SharedApp,
    asking: RequestOrigin,
    RawQuery(query): RawQuery,
) -> HandlerAnswer {
    let params = Params::parse(query.as_deref(), &["match", "node"])?;
    let (selectors, node) = (params.selectors()?, params.node()?);
    let place = app.watcher_place(asking)?;
    let of = Arc::clone(&app);
    let follow = move || of.follow_node(node.as_deref(), &selectors, asking);
    let followed = blocking::wait(follow).await?;
    let demand = followed.demand.ok_or_else(|| {
        Fault::usage("node=NAME names no other node: the streams of this one are there anyway")
    })?;
    let (to, messages) = mpsc::channel(QUEUED_MAX);
    tokio::spawn(hold(app, demand, to));
    let body = Body::new(MessageBody::new(messages, place));
    Ok(([(header::CONTENT_TYPE, "text/event-stream")], body).into_response())
}

/// Holds a demand until its client or the server ends.
async fn hold(app: Arc<App>, demand: Result<HeldDemand, String>, to: mpsc::Sender<Bytes>) {
    let _ = to.send(event(&demand).into()).await;
    let mut stopped = pin!(app.stopped());
    let mut quiet = interval(app.limits.keep_alive_every);
    quiet.reset();
    loop {
        tokio::select! {
            () = to.closed() => break,
            () = &mut stopped => {
                let _ = timeout(BYE_TIME_MAX, to.send(Bytes::from_static(BYE))).await;
                break;
            }
            _ = quiet.tick() => {
                let _ = to.try_send(Bytes::from_static(STILL_HERE));
            }
        }
    }
}
