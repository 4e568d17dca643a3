//! `/api/v1/demand`: streams of another node are mirrored for as long as the request is open, which carries
//! nothing but the news of its demand.
//!
//! It is for programs that read the mirror from memory, and apart from watches, which have a demand beside
//! what they send.

use std::pin::pin;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, State};
use axum::http::header;
use axum::response::IntoResponse as _;
use tokio::sync::mpsc;
use tokio::time::interval;

use crate::app::{App, HandlerAnswer, RequestOrigin, SharedApp};
use crate::blocking;
use crate::control::HeldDemand;
use crate::fault::Fault;
use crate::followed::demand_event;
use crate::params::Params;
use crate::watch::{MessageBody, QUEUED_MAX, STILL_HERE, say_bye};

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
    let _ = to.send(demand_event(&demand).into()).await;
    let mut stopped = pin!(app.stopped());
    let mut quiet = interval(app.limits.keep_alive_every);
    quiet.reset();
    loop {
        tokio::select! {
            () = to.closed() => break,
            () = &mut stopped => {
                say_bye(&to).await;
                break;
            }
            _ = quiet.tick() => {
                let _ = to.try_send(Bytes::from_static(STILL_HERE));
            }
        }
    }
}
