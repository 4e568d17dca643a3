//! The handlers of the HTTP API, as specified in `docs/design/0001-one-node.md`.

use std::borrow::Cow;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequest as _, FromRequestParts, RawQuery, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use barograph_model::{
    ArchiveVerb, BigIntegers, Clock, MemoryBudget, MemoryClaim, Past, ResultFormat, SqlEngine,
    SqlRequest,
};
use barograph_stream::{ARCHIVE_DOCUMENT, INSIGHTS_DOCUMENT, SOURCES_DOCUMENT, StreamError};
use hyper::body::Body as _;
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, mpsc, watch as signal};

use crate::blocking;
use crate::counts::Counters;
use crate::deliver::{Asked, CancelOnDrop, Delivery, deliver};
use crate::fault::Fault;
use crate::fire::FIRES_MAX;
use crate::ingest::{INGESTS_MAX, Ingesting};
use crate::json::{LatestJson, StreamJson};
use crate::params::Params;
use crate::rights::{Token, Way, check_control};
use crate::share::{Client, Held, Places};
use crate::view::{View, Views};
use crate::watch::{
    self, EVERY_MS_DEFAULT, EVERY_MS_MAX, EVERY_MS_MIN, MessageBody, QUEUED_MAX, Watcher,
};
use crate::{Control, Limits, NodeInfo};

/// Most answers about the present that are made at once; more wait.
pub(crate) const SMALL_ANSWERS_MAX: usize = 4;
/// Most control statements that run at once in each room; more are refused as busy.
pub(crate) const STATEMENTS_MAX: usize = 2;
/// Most tests of insights that run at once in each room; more are refused as busy.
pub(crate) const TESTS_MAX: usize = 4;

/// Path prefix of the requests that work on the archive.
pub(crate) const ARCHIVE_PATH: &str = "/api/v1/archive/";
/// Longest time that a request below [`ARCHIVE_PATH`] may take.
pub(crate) const ARCHIVE_TIME_MAX: Duration = Duration::from_secs(3600);

pub(crate) const JSON: &str = "application/json";
const ARROW: &str = "application/vnd.apache.arrow.stream";

/// State that all handlers share.
pub(crate) struct App {
    pub views: Views,
    pub clock: Arc<dyn Clock>,
    pub sql: Arc<dyn SqlEngine>,
    pub past: Arc<dyn Past>,
    pub control: Arc<dyn Control>,
    pub ingest: Option<Ingesting>,
    pub info: NodeInfo,
    pub http: Option<String>,
    pub token: Token,
    pub limits: Limits,
    /// The room of guests, and the room of clients of the control socket.
    pub rooms: [Room; 2],
    /// Permits for watchers' turns that are computed at the same time.
    pub turns: Arc<Semaphore>,
    /// Budget of the memory that all answers, and the bodies of requests, hold at once.
    pub memory: Arc<MemoryBudget>,
    pub counters: Counters,
    pub stop: signal::Receiver<bool>,
}

/// Bounds on requests that run at once. There are two rooms, so that guests cannot use up the
/// places of control.
pub(crate) struct Room {
    pub small: Arc<Places>,
    pub large: Arc<Places>,
    pub statements: Arc<Places>,
    pub tests: Arc<Places>,
    pub fires: Arc<Places>,
    pub watchers: Arc<Places>,
    pub ingest: Arc<Places>,
}

impl Room {
    /// Makes the places that `limits` allow. One client gets a quarter to three quarters of each
    /// kind, and all places for statements.
    pub(crate) fn new(limits: &Limits) -> Self {
        let of = |places: usize, of_one: usize| Arc::new(Places::new(places, of_one));
        let large = limits.large_answers_max;
        Self {
            small: of(SMALL_ANSWERS_MAX, SMALL_ANSWERS_MAX / 2),
            large: of(large, large - large / 4),
            statements: of(STATEMENTS_MAX, STATEMENTS_MAX),
            tests: of(TESTS_MAX, TESTS_MAX / 2),
            fires: of(FIRES_MAX, FIRES_MAX / 4),
            watchers: of(limits.watchers_max, limits.watchers_max.div_ceil(4)),
            ingest: of(INGESTS_MAX, INGESTS_MAX / 2),
        }
    }
}

/// How a request came in, and from which client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asking(pub Way, pub Client);

impl<S: Send + Sync> FromRequestParts<S> for Asking {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let way = parts.extensions.get::<Way>().copied();
        let client = parts.extensions.get::<Client>().copied();
        Ok(Self(
            way.unwrap_or(Way::Stranger),
            client.unwrap_or(Client(None)),
        ))
    }
}

/// The state that handlers share, as axum passes it to them.
pub(crate) type Shared = State<Arc<App>>;
/// The result of a handler.
pub(crate) type Answer = Result<Response, Fault>;

impl App {
    /// Returns when the server is stopped or dropped.
    pub(crate) async fn stopped(&self) {
        // The guard that `wait_for` returns must not live across an await of the caller.
        let _ = self.stop.clone().wait_for(|stop| *stop).await;
    }

    /// The room that requests of this way use.
    pub(crate) fn room(&self, way: Way) -> &Room {
        match way {
            Way::ControlSocket => &self.rooms[1],
            _ => &self.rooms[0],
        }
    }

    fn asked(&self, way: Way, client: Client) -> Asked {
        Asked {
            memory: Arc::clone(&self.memory),
            client: client.number(way),
            cancel: Arc::default(),
        }
    }

    /// Prepares the delivery of an answer of SQL or history, or fails as busy. A page asks for
    /// several of them at once, so a request beyond the bound waits for a place, for a short time.
    pub(crate) async fn large(
        &self,
        (way, client): (Way, Client),
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
    fn view(&self) -> Result<Arc<View>, StreamError> {
        self.views.current(self.clock.now_ns())
    }

    /// Makes a small answer from the current view, on a thread that may compute.
    pub(crate) async fn render(
        self: &Arc<Self>,
        Asking(way, client): Asking,
        content_type: &'static str,
        make: impl FnOnce(&Self, &View) -> Result<Vec<u8>, Fault> + Send + 'static,
    ) -> Answer {
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
            let bytes = make(&app, &*app.view()?)?;
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

pub(crate) fn to_json<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, Fault> {
    serde_json::to_vec(value).map_err(|e| Fault::internal(format!("cannot write JSON: {e}")))
}

/// `GET /healthz`
pub(crate) async fn healthz(State(app): Shared) -> Answer {
    let now_ns = app.clock.now_ns();
    let view = app.views.current(now_ns)?;
    let segment = view.segment();
    let mut body = serde_json::json!({
        "status": "ok", "node": segment.node(), "incarnation": segment.incarnation().to_string(),
    });
    if view.is_alive(now_ns) {
        return Ok(axum::Json(body).into_response());
    }
    let age_s = now_ns.saturating_sub(segment.heartbeat_ns()).max(0) as f64 / 1e9;
    let fault = Fault::internal(format!(
        "the agent's loop has not ticked for {age_s:.1} s: it has ended or hangs"
    ));
    body["status"] = "stopped".into();
    body["error"] = fault.body()["error"].take();
    Ok((StatusCode::SERVICE_UNAVAILABLE, axum::Json(body)).into_response())
}

#[derive(Serialize)]
struct StatusJson<'a> {
    node: String,
    version: &'a str,
    incarnation: String,
    pid: u64,
    started_ts: i64,
    now_ts: i64,
    streams: usize,
    streams_max: usize,
    samples: u64,
    sources_up: usize,
    sources: usize,
    run_dir: Cow<'a, str>,
    http: Option<&'a str>,
    /// The archive's document; null if the agent keeps no archive.
    archive: Option<serde_json::Value>,
}

/// The part of a source's description that the status needs.
#[derive(Deserialize)]
struct SourceState {
    state: String,
}

/// `GET /api/v1/status`
pub(crate) async fn status(
    State(app): Shared,
    asking: Asking,
    RawQuery(query): RawQuery,
) -> Answer {
    Params::parse(query.as_deref(), &[])?;
    app.render(asking, JSON, |app, view| {
        let segment = view.segment();
        let sources: Vec<SourceState> =
            serde_json::from_slice(&app.list_document(SOURCES_DOCUMENT)?).map_err(|e| {
                Fault::internal(format!("{SOURCES_DOCUMENT} is not as it should be: {e}"))
            })?;
        let archive = app.views.run_dir().document(ARCHIVE_DOCUMENT)?;
        let archive = archive
            .map(|text| serde_json::from_slice(&text))
            .transpose();
        let archive = archive.map_err(|e| {
            Fault::internal(format!("{ARCHIVE_DOCUMENT} is not as it should be: {e}"))
        })?;
        let sources: Vec<_> = sources.into_iter().filter(|s| s.state != "off").collect();
        let up = |s: &&SourceState| s.state == "ok" || s.state == "partial";
        to_json(&StatusJson {
            node: segment.node(),
            version: &app.info.version,
            incarnation: segment.incarnation().to_string(),
            pid: segment.pid(),
            started_ts: app.info.started_ns,
            now_ts: app.clock.now_ns(),
            streams: view.streams.len(),
            streams_max: view.streams_max(),
            samples: view.streams.iter().filter_map(|s| s.handle.count()).sum(),
            sources_up: sources.iter().filter(up).count(),
            sources: sources.len(),
            run_dir: app.views.run_dir().path().to_string_lossy(),
            http: app.http.as_deref(),
            archive,
        })
    })
    .await
}

/// `GET /api/v1/streams?match=P`
pub(crate) async fn streams(
    State(app): Shared,
    asking: Asking,
    RawQuery(query): RawQuery,
) -> Answer {
    let selectors = Params::parse(query.as_deref(), &["match"])?.selectors()?;
    app.render(asking, JSON, move |_, view| {
        let meant = view.select(&selectors).into_iter();
        let list: Vec<_> = meant
            .map(|at| StreamJson::of(&view.streams[at], None))
            .collect();
        to_json(&list)
    })
    .await
}

/// `GET /api/v1/latest?match=P&allow_predicted=true`
pub(crate) async fn latest(
    State(app): Shared,
    asking: Asking,
    RawQuery(query): RawQuery,
) -> Answer {
    let params = Params::parse(query.as_deref(), &["match", "allow_predicted"])?;
    let allow_predicted = params.flag("allow_predicted")?;
    let selectors = params.selectors()?;
    app.render(asking, JSON, move |app, view| {
        let now_ns = app.clock.now_ns();
        let meant = view.select(&selectors).into_iter();
        let list: Vec<_> = meant
            .map(|at| &view.streams[at])
            .filter_map(|stream| match allow_predicted {
                true => LatestJson::of_predicted(view, stream, now_ns),
                false => LatestJson::of(stream, now_ns),
            })
            .collect();
        to_json(&list)
    })
    .await
}

/// `GET /api/v1/watch?match=P&every_ms=1000`
pub(crate) async fn watch(
    State(app): Shared,
    Asking(way, client): Asking,
    RawQuery(query): RawQuery,
) -> Answer {
    let params = Params::parse(query.as_deref(), &["match", "every_ms"])?;
    let every_ms = params
        .integer("every_ms", "milliseconds")?
        .unwrap_or(EVERY_MS_DEFAULT);
    if !(EVERY_MS_MIN..=EVERY_MS_MAX).contains(&every_ms) {
        return Err(Fault::usage(format!(
            "every_ms={every_ms} is not between {EVERY_MS_MIN} and {EVERY_MS_MAX}"
        )));
    }
    let every = Duration::from_millis(every_ms.unsigned_abs());
    let streams_max = app.limits.watch_streams_max;
    let watcher = Watcher::new(params.selectors()?, streams_max, &*app.view()?)?;
    let place = app.room(way).watchers.take(client, "watchers");
    let place = place.inspect_err(|_| {
        app.counters
            .refused_watchers
            .fetch_add(1, Ordering::Relaxed);
    })?;
    let (to, messages) = mpsc::channel(QUEUED_MAX);
    let memory = Arc::clone(&app.memory);
    let claims = move || memory.claim(client.number(way));
    tokio::spawn(watch::serve(app, watcher, (every, claims), to));
    let body = Body::new(MessageBody::new(messages, place));
    Ok(([(header::CONTENT_TYPE, "text/event-stream")], body).into_response())
}

/// `GET /api/v1/sources`
pub(crate) async fn sources(
    State(app): Shared,
    asking: Asking,
    RawQuery(query): RawQuery,
) -> Answer {
    Params::parse(query.as_deref(), &[])?;
    app.render(asking, JSON, |app, _| app.list_document(SOURCES_DOCUMENT))
        .await
}

/// `GET /api/v1/insights`
pub(crate) async fn insights(
    State(app): Shared,
    asking: Asking,
    RawQuery(query): RawQuery,
) -> Answer {
    Params::parse(query.as_deref(), &[])?;
    app.render(asking, JSON, |app, _| app.list_document(INSIGHTS_DOCUMENT))
        .await
}

/// `POST /api/v1/archive/seal` and `/compact`: need the right to control.
pub(crate) async fn archive(
    State(app): Shared,
    Extension(way): Extension<Way>,
    request: Request,
    verb: ArchiveVerb,
) -> Answer {
    check_control(way, &app.token, request.headers())?;
    Params::parse(request.uri().query(), &[])?;
    let place = statements(&app, way)?;
    let work = move || {
        let _place = place;
        Ok::<_, Fault>(app.control.archive(verb)?)
    };
    Ok(axum::Json(blocking::wait(work).await?).into_response())
}

/// Takes a place for a statement; the clients with the right to control share all of these places.
pub(crate) fn statements(app: &App, way: Way) -> Result<Held, Fault> {
    let places = &app.room(way).statements;
    places.take(Client(None), "control statements")
}

/// `POST /api/v1/insights/test`: changes nothing, but runs any computation that it is sent. Over
/// TCP, where web pages and forwarded ports come from, it needs the right to control; on the
/// sockets each user has a share of the tests.
pub(crate) async fn test_insight(
    State(app): Shared,
    Asking(way, client): Asking,
    request: Request,
) -> Answer {
    if way == Way::Tcp {
        check_control(way, &app.token, request.headers())?;
    }
    Params::parse(request.uri().query(), &[])?;
    let sql = statement(request, &app).await?;
    let place = app.room(way).tests.take(client, "tests of insights")?;
    let time = Duration::from_nanos(app.limits.sql.time_ns_max.unsigned_abs());
    let cancel = Arc::new(AtomicBool::new(false));
    let to_cancel = Arc::clone(&cancel);
    // This future is dropped when the client disconnects.
    let _cancelled_with_us = CancelOnDrop(Arc::clone(&cancel));
    let work = move || {
        let _place = place;
        Ok::<_, Fault>(app.control.test(&sql, &cancel)?)
    };
    let mut work = pin!(blocking::nicely(work));
    let rows = match tokio::time::timeout(time, work.as_mut()).await {
        Ok(rows) => rows?,
        Err(_) => {
            to_cancel.store(true, Ordering::Relaxed);
            work.await?
        }
    };
    Ok(axum::Json(rows).into_response())
}

/// The parameter that selects how JSON holds integers beyond 2^53.
const BIG_INTEGERS: &str = "big_integers";

/// `POST /api/v1/sql?format=rows|table|arrow`
pub(crate) async fn sql(
    State(app): Shared,
    Asking(way, client): Asking,
    request: Request,
) -> Answer {
    let params = Params::parse(request.uri().query(), &["format", BIG_INTEGERS])?;
    let (format, content_type) = match params.one("format")?.unwrap_or("rows") {
        "rows" => (ResultFormat::JsonRows, JSON),
        "table" => (ResultFormat::JsonTable, JSON),
        "arrow" => (ResultFormat::Arrow, ARROW),
        other => {
            return Err(Fault::usage(format!(
                "format={other} is not rows, table or arrow"
            )));
        }
    };
    let big_integers = match params.one(BIG_INTEGERS)?.unwrap_or("number") {
        "number" => BigIntegers::Number,
        "text" => BigIntegers::Text,
        other => {
            return Err(Fault::usage(format!(
                "{BIG_INTEGERS}={other} is not number or text"
            )));
        }
    };
    let sql = statement(request, &app).await?;
    // The query threads have a low priority of their own, and this thread only waits for them. They
    // wait for a slow reader no longer than a statement may take.
    let delivery = Delivery {
        is_large: false,
        time_max: Duration::from_nanos(app.limits.sql.time_ns_max.unsigned_abs()),
        ..app.large((way, client), content_type).await?
    };
    let question = SqlRequest {
        sql,
        format,
        big_integers,
        limits: app.limits.sql,
        cancel: Arc::clone(&delivery.asked.cancel),
    };
    let number = client.number(way);
    deliver(delivery, move |pieces| {
        app.sql.query_into(number, &question, Box::new(pieces))?;
        Ok(())
    })
    .await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StatementJson {
    sql: String,
}

/// The statement in a body: plain text, or `{"sql": …}`.
pub(crate) async fn statement(request: Request, app: &App) -> Result<String, Fault> {
    let is_json = says_json(request.headers());
    let (body, _claim) = body_of(request, app).await?;
    let text = std::str::from_utf8(&body).map_err(|_| Fault::usage("the body is not UTF-8"))?;
    // No statement begins with a brace.
    let text = if is_json || text.trim_start().starts_with('{') {
        let StatementJson { sql } = serde_json::from_str(text)
            .map_err(|e| Fault::usage(format!("the body is not {{\"sql\": \"…\"}}: {e}")))?;
        sql
    } else {
        text.to_owned()
    };
    if text.trim().is_empty() {
        return Err(Fault::usage(
            "the body holds no statement: send SQL, or {\"sql\": \"…\"}",
        ));
    }
    Ok(text)
}

/// Reads a whole body up to the allowed length, with the claim on its memory.
pub(crate) async fn body_of(request: Request, app: &App) -> Result<(Bytes, MemoryClaim), Fault> {
    let limits = &app.limits;
    let too_large = || {
        Fault::limit(format!(
            "the body is larger than {} bytes",
            limits.body_bytes_max
        ))
        .with_status(StatusCode::PAYLOAD_TOO_LARGE)
    };
    // A body whose announced size is too large is refused before it is read.
    if request.body().size_hint().lower() > limits.body_bytes_max as u64 {
        return Err(too_large());
    }
    let claim = claim_for_body(app, &request, (1, limits.body_bytes_max))?;
    let read = Bytes::from_request(request, &()).await;
    let bytes = read.map_err(|rejected| match rejected.status() {
        StatusCode::PAYLOAD_TOO_LARGE => too_large(),
        status => Fault::usage(rejected.body_text()).with_status(status),
    })?;
    Ok((bytes, claim))
}

/// Claims memory for a body before it is read: its announced length, or `bytes_max` if it announces
/// none, times `times`.
pub(crate) fn claim_for_body(
    app: &App,
    request: &Request,
    (times, bytes_max): (usize, usize),
) -> Result<MemoryClaim, Fault> {
    let (way, client) = (
        request.extensions().get::<Way>().copied(),
        request.extensions().get::<Client>().copied(),
    );
    let client = client.unwrap_or(Client(None));
    let mut claim = app
        .memory
        .claim(client.number(way.unwrap_or(Way::Stranger)));
    let said = request.body().size_hint().upper();
    let bytes = said.map_or(bytes_max, |bytes| {
        usize::try_from(bytes).unwrap_or(bytes_max).min(bytes_max)
    });
    match claim.grow(bytes.saturating_mul(times)) {
        true => Ok(claim),
        false => Err(Fault::busy(
            "the bodies and answers of one user, or of all, hold too much memory: try again",
        )),
    }
}

fn says_json(headers: &HeaderMap) -> bool {
    let content_type = headers
        .get(header::CONTENT_TYPE)
        .and_then(|v| v.to_str().ok());
    content_type.is_some_and(|t| t.trim_start().to_ascii_lowercase().starts_with(JSON))
}
