//! The state that all handlers share: what they read, the places and the memory that bound them,
//! and how a request came in.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::response::Response;
use barograph_model::{Clock, MemoryBudget, Past, SqlEngine};
use barograph_stream::{StreamError, is_node_name};
use tokio::sync::{Semaphore, watch as signal};

use crate::config::{IngestConfig, NodeInfo, ServerLimits};
use crate::control::Control;
use crate::counts::RequestCounters;
use crate::deliver::{AnswerAccount, Delivery, deliver};
use crate::event_feed::EventFeeds;
use crate::fault::Fault;
use crate::rights::{AccessWay, Token};
use crate::share::{ClientPlaces, ClientShare, HeldPlace};
use crate::view::{ServedView, ServedViews};

/// Most answers about the present that are made at once; more wait.
pub(crate) const SMALL_ANSWERS_MAX: usize = 4;
/// Most control statements that run at once in each room; more are refused as busy.
pub(crate) const STATEMENTS_MAX: usize = 2;
/// Most tests of insights that run at once in each room; more are refused as busy.
pub(crate) const TESTS_MAX: usize = 4;
/// Most calls that run, or are waited for, at once in each room; more are refused as busy.
pub(crate) const FIRES_MAX: usize = 32;
/// Most plans and reports of readers that are worked on at once in each room; more are refused as
/// busy.
pub(crate) const PLANS_MAX: usize = 16;
/// Most writes that are parsed and applied at once in each room; more are refused as busy.
pub(crate) const INGESTS_MAX: usize = 8;

/// The media type of JSON.
pub(crate) const JSON: &str = "application/json";

/// State that all handlers share.
pub(crate) struct App {
    pub views: Arc<ServedViews>,
    pub clock: Arc<dyn Clock>,
    pub sql: Arc<dyn SqlEngine>,
    pub past: Arc<dyn Past>,
    pub control: Arc<dyn Control>,
    pub ingest: Option<IngestConfig>,
    /// The file events of the node; `None` if none are recorded.
    pub events: Option<Arc<dyn EventFeeds>>,
    pub info: NodeInfo,
    pub http: Option<String>,
    pub token: Token,
    pub limits: ServerLimits,
    /// The room of guests, and the room of clients of the control socket.
    pub rooms: [RequestRoom; 2],
    /// Permits for watchers' turns that are computed at the same time.
    pub turns: Arc<Semaphore>,
    /// Budget of the memory that all answers, and the bodies of requests, hold at once.
    pub memory: Arc<MemoryBudget>,
    pub counters: RequestCounters,
    pub stop: signal::Receiver<bool>,
}

/// Bounds on requests that run at once. There are two rooms, so that guests cannot use up the
/// places of control.
pub(crate) struct RequestRoom {
    pub small: Arc<ClientPlaces>,
    pub large: Arc<ClientPlaces>,
    pub statements: Arc<ClientPlaces>,
    pub tests: Arc<ClientPlaces>,
    pub fires: Arc<ClientPlaces>,
    pub plans: Arc<ClientPlaces>,
    pub watchers: Arc<ClientPlaces>,
    pub ingest: Arc<ClientPlaces>,
}

impl RequestRoom {
    /// Makes the places that `limits` allow. One client gets a quarter to three quarters of each
    /// kind, and all places for statements.
    pub(crate) fn new(limits: &ServerLimits) -> Self {
        let of = |places: usize, of_one: usize| Arc::new(ClientPlaces::new(places, of_one));
        let large = limits.large_answers_max;
        Self {
            small: of(SMALL_ANSWERS_MAX, SMALL_ANSWERS_MAX / 2),
            large: of(large, large - large / 4),
            statements: of(STATEMENTS_MAX, STATEMENTS_MAX),
            tests: of(TESTS_MAX, TESTS_MAX / 2),
            fires: of(FIRES_MAX, FIRES_MAX / 4),
            plans: of(PLANS_MAX, PLANS_MAX / 4),
            watchers: of(limits.watchers_max, limits.watchers_max.div_ceil(4)),
            ingest: of(INGESTS_MAX, INGESTS_MAX / 2),
        }
    }
}

/// The way of a request, and its client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestOrigin(pub AccessWay, pub ClientShare);

impl<S: Send + Sync> FromRequestParts<S> for RequestOrigin {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let way = parts.extensions.get::<AccessWay>().copied();
        let client = parts.extensions.get::<ClientShare>().copied();
        Ok(Self(
            way.unwrap_or(AccessWay::Stranger),
            client.unwrap_or(ClientShare(None)),
        ))
    }
}

/// The state that handlers share, as axum passes it to them.
pub(crate) type SharedApp = State<Arc<App>>;
/// The result of a handler.
pub(crate) type HandlerAnswer = Result<Response, Fault>;

impl App {
    /// Returns when the server is stopped or dropped.
    pub(crate) async fn stopped(&self) {
        // The guard that `wait_for` returns must not live across an await of the caller.
        let _ = self.stop.clone().wait_for(|stop| *stop).await;
    }

    /// The room that requests of this way use.
    pub(crate) fn room(&self, way: AccessWay) -> &RequestRoom {
        match way {
            AccessWay::ControlSocket => &self.rooms[1],
            _ => &self.rooms[0],
        }
    }

    /// Takes a place for a statement; the clients with the right to control share all of these
    /// places.
    pub(crate) fn statement_place(&self, way: AccessWay) -> Result<HeldPlace, Fault> {
        let places = &self.room(way).statements;
        places.take(ClientShare(None), "control statements")
    }

    fn asked(&self, way: AccessWay, client: ClientShare) -> AnswerAccount {
        AnswerAccount {
            memory: Arc::clone(&self.memory),
            client: client.number(way),
            cancel: Arc::default(),
        }
    }

    /// Prepares the delivery of an answer of SQL or history, or fails as busy. A page asks for
    /// several of them at once, so a request beyond the bound waits for a place, for a short time.
    pub(crate) async fn large(
        &self,
        (way, client): (AccessWay, ClientShare),
        content_type: &'static str,
    ) -> Result<Delivery, Fault> {
        let places = &self.room(way).large;
        let place = tokio::time::timeout(self.limits.place_time_max, places.wait(client))
            .await
            .map_err(|_| {
                Fault::busy(
                    "too many queries and histories at once by one user, or by all: try again",
                )
            })??;
        Ok(Delivery {
            asked: self.asked(way, client),
            clock: Arc::clone(&self.clock),
            content_type,
            time_max: self.limits.request_time_max,
            is_large: true,
            place,
        })
    }

    /// The view at present.
    pub(crate) fn view(&self) -> Result<Arc<ServedView>, StreamError> {
        self.views.current(self.clock.now_ns())
    }

    /// The views of a node, and the one at present: of this one, or of one that is mirrored here.
    pub(crate) fn views_of(
        &self,
        node: Option<&str>,
    ) -> Result<(Arc<ServedViews>, Arc<ServedView>), Fault> {
        let own = self.view()?;
        let Some(node) = self.other(node, &own)? else {
            return Ok((Arc::clone(&self.views), own));
        };
        let views = self.views.of_mirror(node);
        match views.current(self.clock.now_ns()) {
            Err(StreamError::NoAgent { .. }) => Err(self.unknown_node(node, &own)),
            view => Ok((Arc::new(views), view?)),
        }
    }

    /// The past of a node that is mirrored here, if it is named and not this one.
    pub(crate) fn past_of(&self, node: Option<&str>) -> Result<Option<Box<dyn Past>>, Fault> {
        let own = self.view()?;
        let Some(node) = self.other(node, &own)? else {
            return Ok(None);
        };
        let past = self.past.of_node(node)?;
        past.map(Some).ok_or_else(|| self.unknown_node(node, &own))
    }

    /// The named node, if it is another one. A name that no node can have must not become part of a
    /// path.
    pub(crate) fn other<'n>(
        &self,
        node: Option<&'n str>,
        own: &ServedView,
    ) -> Result<Option<&'n str>, Fault> {
        match node.filter(|node| *node != own.segment().node()) {
            Some(node) if !is_node_name(node) => Err(self.unknown_node(node, own)),
            other => Ok(other),
        }
    }

    fn unknown_node(&self, node: &str, own: &ServedView) -> Fault {
        let unknown = self
            .views
            .run_dir()
            .unknown_node(node, &own.segment().node());
        Fault::unknown(unknown.to_string())
    }

    /// Makes a small answer from the current view, on a thread that may compute.
    pub(crate) async fn render(
        self: &Arc<Self>,
        asking: RequestOrigin,
        content_type: &'static str,
        make: impl FnOnce(&Self, &ServedView) -> Result<Vec<u8>, Fault> + Send + 'static,
    ) -> HandlerAnswer {
        self.render_of(None, asking, content_type, make).await
    }

    /// Like [`App::render`], from the view of this node or of a mirrored one.
    pub(crate) async fn render_of(
        self: &Arc<Self>,
        node: Option<String>,
        RequestOrigin(way, client): RequestOrigin,
        content_type: &'static str,
        make: impl FnOnce(&Self, &ServedView) -> Result<Vec<u8>, Fault> + Send + 'static,
    ) -> HandlerAnswer {
        let delivery = Delivery {
            asked: self.asked(way, client),
            clock: Arc::clone(&self.clock),
            content_type,
            time_max: self.limits.request_time_max,
            is_large: false,
            place: self.room(way).small.wait(client).await?,
        };
        let app = Arc::clone(self);
        deliver(delivery, move |mut pieces| {
            let (_, view) = app.views_of(node.as_deref())?;
            let bytes = make(&app, &view)?;
            pieces.whole(&bytes)?;
            pieces.finish()
        })
        .await
    }

    /// Reads a document that is a JSON list; the list is empty if the agent has not written it yet.
    pub(crate) fn list_document(&self, name: &str) -> Result<Vec<u8>, Fault> {
        Ok(self
            .views
            .run_dir()
            .document(name)?
            .unwrap_or_else(|| b"[]".to_vec()))
    }
}
