//! The server's life: threads, listeners, routes, and an end in bounded time.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::handler::Handler;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodRouter, get, post};
use barograph_model::{
    ArchiveVerb, Clock, ControllerVerb, FIRE_PATH, FIRE_WAIT_MAX, MemoryBudget, Past, SqlEngine,
    near,
};
use barograph_stream::RunDir;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, watch};

use crate::actions;
use crate::api;
use crate::app::{
    App, FIRES_MAX, INGESTS_MAX, PLANS_MAX, RequestRoom, SMALL_ANSWERS_MAX, STATEMENTS_MAX,
};
use crate::counts::{RequestCounters, RequestCounts};
use crate::declared;
use crate::demand;
use crate::events;
use crate::execute;
use crate::fault::Fault;
use crate::fire;
use crate::history;
use crate::ingest;
use crate::listen::{self, Listeners};
use crate::planning;
use crate::prometheus::api as prometheus;
use crate::rights::{AccessWay, PeerPid, Token, check_asker};
use crate::share::{ClientPlaces, ClientShare};
use crate::site::{Asset, CONTENT_SECURITY_POLICY, Site};
use crate::view::ServedViews;
use crate::{Control, NodeInfo, ServerConfig, ServerError, ServerLimits};

/// Threads that wait for the network; answers are made on other threads.
const WORKERS: usize = 2;
/// Watchers' turns that are computed at once.
const TURNS_MAX: usize = 4;
/// Time for threads that still compute, after the connections' time is up.
const THREADS_TIME_MAX: Duration = Duration::from_millis(500);

/// A running server. Dropping it stops it and waits, so it must not be dropped on a thread of an
/// async runtime.
pub struct Server {
    runtime: Option<Runtime>,
    app: Arc<App>,
    http: Option<SocketAddr>,
    stop: watch::Sender<bool>,
    connections: [Arc<ClientPlaces>; 3],
}

impl Server {
    /// Opens the listeners and serves until [`Server::stop`]. The caller must have occupied the run
    /// directory.
    pub fn start(
        config: ServerConfig,
        run_dir: RunDir,
        sql: Arc<dyn SqlEngine>,
        past: Arc<dyn Past>,
        control: Arc<dyn Control>,
        clock: Arc<dyn Clock>,
        info: NodeInfo,
    ) -> Result<Self, ServerError> {
        let limits = config.limits;
        let runtime = start_threads(&limits)?;
        let inside = runtime.enter();
        let listeners = Listeners::open(config.http, &run_dir)?;
        let tcp = listeners.tcp.as_ref();
        let http = tcp.and_then(|tcp| tcp.local_addr().ok());
        let (stop, stopped) = watch::channel(false);
        let app = Arc::new(App {
            token: Token::publish(&run_dir)?,
            views: Arc::new(ServedViews::new(run_dir)),
            clock,
            sql,
            past,
            control,
            ingest: config.ingest,
            events: config.events,
            info,
            http: http.map(|address| format!("http://{address}")),
            rooms: [RequestRoom::new(&limits), RequestRoom::new(&limits)],
            turns: Arc::new(Semaphore::new(TURNS_MAX)),
            memory: Arc::new(MemoryBudget::new(limits.memory_bytes_max)),
            counters: RequestCounters::default(),
            stop: stopped,
            limits,
        });
        let all = app.limits.connections_max;
        let connections = [(); 3].map(|()| Arc::new(ClientPlaces::new(all, all.div_ceil(4))));
        accept_all(&app, &connections, listeners);
        tracing::info!(http = app.http.as_deref().unwrap_or("off"), "server ready");
        drop(inside);
        Ok(Self {
            runtime: Some(runtime),
            app,
            http,
            stop,
            connections,
        })
    }

    /// The TCP address that the server listens on, if any.
    pub fn http_addr(&self) -> Option<SocketAddr> {
        self.http
    }

    /// Numbers of requests, and of refused and dropped ones, so far.
    pub fn counts(&self) -> RequestCounts {
        self.app.counters.now()
    }

    /// Bytes that answers and bodies hold now.
    pub fn memory_bytes(&self) -> usize {
        self.app.memory.bytes()
    }

    /// Most bytes that the answers and bodies of one user may hold.
    pub fn memory_bytes_max_of_one(&self) -> usize {
        self.app.memory.bytes_max_of_one()
    }

    /// The number of refused claims on memory.
    pub fn memory_refused(&self) -> u64 {
        self.app.memory.refused()
    }

    /// Stops accepting, sends `bye` to watchers, lets requests end, and returns in bounded time.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let Some(runtime) = self.runtime.take() else {
            return;
        };
        let run_dir = self.app.views.run_dir();
        for path in [
            run_dir.read_socket(),
            run_dir.control_socket(),
            run_dir.control_token(),
        ] {
            // A file may be gone already.
            let _ = fs::remove_file(path);
        }
        let _ = self.stop.send(true);
        let (all, time_max) = (
            self.app.limits.connections_max,
            self.app.limits.stop_time_max,
        );
        let rooms = self.connections.clone();
        let drained = runtime.block_on(async move {
            let waits = rooms.map(|room| {
                tokio::spawn(async move { listen::drained(&room, all, time_max).await })
            });
            let mut drained = true;
            for wait in waits {
                drained &= wait.await.unwrap_or(false);
            }
            drained
        });
        if !drained {
            tracing::warn!("the server closes connections that did not end in time");
        }
        runtime.shutdown_timeout(THREADS_TIME_MAX);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// Starts to accept on every listener; must be called within the runtime.
fn accept_all(app: &Arc<App>, connections: &[Arc<ClientPlaces>; 3], listeners: Listeners) {
    let Listeners {
        tcp,
        read,
        control: controlling,
    } = listeners;
    let routes = routes(app);
    let spawn = |room: usize| {
        (
            Arc::clone(app),
            routes.clone(),
            Arc::clone(&connections[room]),
        )
    };
    if let Some(tcp) = tcp {
        let (app, routes, room) = spawn(0);
        tokio::spawn(listen::accept(tcp, app, routes, room, |socket| {
            // Answers are small and urgent; a socket that refuses this option still works.
            let _ = socket.set_nodelay(true);
            let client = ClientShare(listen::user_over_tcp(socket));
            (AccessWay::Tcp, client, PeerPid(None))
        }));
    }
    let (shared, routes_of_read, room) = spawn(1);
    tokio::spawn(listen::accept(
        read,
        shared,
        routes_of_read,
        room,
        |socket| {
            let client = ClientShare(listen::user_over_unix(socket));
            (AccessWay::ReadSocket, client, listen::pid_over_unix(socket))
        },
    ));
    let (shared, routes_of_control, room) = spawn(2);
    let our_uid = rustix::process::getuid().as_raw();
    tokio::spawn(listen::accept(
        controlling,
        shared,
        routes_of_control,
        room,
        move |socket| {
            let peer_uid = listen::user_over_unix(socket);
            let way = AccessWay::of_control_peer(peer_uid, our_uid);
            (way, ClientShare(peer_uid), listen::pid_over_unix(socket))
        },
    ));
}

fn start_threads(limits: &ServerLimits) -> Result<Runtime, ServerError> {
    Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .max_blocking_threads(
            // Two rooms, guests' and control's. Watchers' turns are added to them.
            2 * (limits.large_answers_max
                + SMALL_ANSWERS_MAX
                + STATEMENTS_MAX
                + FIRES_MAX
                + PLANS_MAX
                + INGESTS_MAX)
                + TURNS_MAX,
        )
        .thread_name("baro-server")
        .enable_io()
        .enable_time()
        .build()
        .map_err(|source| ServerError::Threads { source })
}

/// A path with its methods.
type PathMethods = (&'static str, MethodRouter<Arc<App>>);

/// The files of the page.
fn page() -> Vec<PathMethods> {
    let site = Site::EMBEDDED;
    let script = "text/javascript; charset=utf-8";
    let files = [
        ("/", site.index_html, "text/html; charset=utf-8"),
        ("/app.js", site.app_js, script),
        ("/app.css", site.app_css, "text/css; charset=utf-8"),
        ("/later.js", site.later_js, script),
    ];
    let answer = |(path, bytes, content_type)| {
        let asset = Asset::new(bytes, content_type);
        let method = get(async move |headers: HeaderMap| asset.answer(&headers));
        (path, method)
    };
    files.into_iter().map(answer).collect()
}

/// All paths but those of the page and of controllers, with their methods.
fn table() -> Vec<PathMethods> {
    let rules = || get(declared::rules).post(execute::rule);
    vec![
        ("/healthz", get(api::healthz)),
        ("/metrics", get(prometheus::metrics)),
        ("/api/v1/status", get(api::status)),
        ("/api/v1/streams", get(api::streams)),
        ("/api/v1/latest", get(api::latest)),
        ("/api/v1/history", get(history::history)),
        ("/api/v1/watch", get(api::watch)),
        ("/api/v1/events", get(events::events)),
        ("/api/v1/demand", get(demand::demand)),
        ("/api/v1/sources", get(api::sources)),
        (
            "/api/v1/insights",
            get(api::insights).post(execute::insight),
        ),
        ("/api/v1/statements", post(execute::any)),
        ("/api/v1/reload", post(execute::reload)),
        ("/api/v1/insights/test", post(api::test_insight)),
        ("/api/v1/rules", rules()),
        // The older name.
        ("/api/v1/triggers", rules()),
        (
            "/api/v1/policies",
            get(declared::policies).post(execute::policy),
        ),
        (
            "/api/v1/archive/seal",
            post(async |app, way, request| {
                api::archive(app, way, request, ArchiveVerb::Seal).await
            }),
        ),
        (
            "/api/v1/archive/compact",
            post(async |app, way, request| {
                api::archive(app, way, request, ArchiveVerb::Compact).await
            }),
        ),
        ("/api/v1/actions", post(actions::action)),
        (FIRE_PATH, post(fire::fire)),
        ("/api/v1/sql", post(api::sql)),
        ("/api/v1/nodes/sql", post(api::nodes_sql)),
        ("/api/v1/query", both(prometheus::query)),
        ("/api/v1/query_range", both(prometheus::query_range)),
        ("/api/v1/series", both(prometheus::series)),
        ("/api/v1/labels", both(prometheus::labels)),
        ("/api/v1/label/{name}/values", get(prometheus::label_values)),
        ("/api/v1/metadata", get(prometheus::metadata)),
        ("/api/v1/status/buildinfo", get(prometheus::buildinfo)),
        ("/v1/metrics", post(ingest::otlp_metrics)),
        ("/write", post(ingest::line_protocol)),
        ("/api/v2/write", post(ingest::line_protocol)),
        ("/ping", get(ingest::ping)),
        ("/health", get(ingest::health)),
    ]
}

/// The paths of controllers.
fn control_table() -> Vec<PathMethods> {
    vec![
        ("/api/v1/control/plan", post(planning::plan)),
        ("/api/v1/control/advise", post(planning::advise)),
        ("/api/v1/control/report", post(planning::report)),
        ("/api/v1/control/decisions", post(planning::decisions)),
        ("/api/v1/control/phases", post(planning::phases)),
        ("/api/v1/control/maps", post(planning::maps)),
        ("/api/v1/control/list", controllers(ControllerVerb::List)),
        (
            "/api/v1/control/explain",
            controllers(ControllerVerb::Explain),
        ),
        ("/api/v1/control/pause", controllers(ControllerVerb::Pause)),
        (
            "/api/v1/control/resume",
            controllers(ControllerVerb::Resume),
        ),
        (
            "/api/v1/control/dry-run",
            controllers(ControllerVerb::DryRun),
        ),
        (
            "/api/v1/control/revert",
            controllers(ControllerVerb::Revert),
        ),
    ]
}

/// Requests about the controllers of the agent.
fn controllers(verb: ControllerVerb) -> MethodRouter<Arc<App>> {
    post(async move |app, way, client, pid, request| {
        planning::controllers(verb, app, way, client, pid, request).await
    })
}

/// Prometheus' clients send forms by GET or POST.
fn both<H: Handler<T, Arc<App>> + Clone, T: 'static>(handler: H) -> MethodRouter<Arc<App>> {
    get(handler.clone()).post(handler)
}

fn routes(app: &Arc<App>) -> Router {
    let all = page().into_iter().chain(table()).chain(control_table());
    let table: Vec<PathMethods> = all.collect();
    let paths: Arc<[&'static str]> = table.iter().map(|(path, _)| *path).collect();
    let mut router = Router::new();
    for (path, methods) in table {
        router = router.route(path, methods);
    }
    router
        .fallback(async move |uri: Uri| unknown_path(uri.path(), &paths))
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(app.limits.body_bytes_max))
        .layer(from_fn_with_state(Arc::clone(app), guard))
        .with_state(Arc::clone(app))
}

/// Applies the rules of every request: who may ask, how long it may take, and what the browser may
/// do with the answer.
async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    app.counters.requests.fetch_add(1, Ordering::Relaxed);
    let way = request
        .extensions()
        .get::<AccessWay>()
        .copied()
        .unwrap_or(AccessWay::Stranger);
    let time_max = match request.uri().path() {
        path if path.starts_with(api::ARCHIVE_PATH) => api::ARCHIVE_TIME_MAX,
        FIRE_PATH => app.limits.request_time_max + FIRE_WAIT_MAX,
        _ => app.limits.request_time_max,
    };
    let mut response = match check_asker(way, request.uri(), request.headers()) {
        Err(fault) => fault.into_response(),
        Ok(()) => match tokio::time::timeout(time_max, next.run(request)).await {
            Ok(response) => response,
            Err(_) => Fault::limit(format!("the request took longer than {time_max:?}"))
                .with_status(StatusCode::REQUEST_TIMEOUT)
                .into_response(),
        },
    };
    let headers = response.headers_mut();
    let fixed = [
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert(
        "cross-origin-resource-policy",
        HeaderValue::from_static("same-origin"),
    );
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    response
}

async fn wrong_method(method: Method, uri: Uri) -> Fault {
    Fault::usage(format!("{} does not take {method}", uri.path()))
        .with_status(StatusCode::METHOD_NOT_ALLOWED)
}

fn unknown_path(path: &str, paths: &[&str]) -> Fault {
    let hint = match near(path, paths.iter().copied()) {
        near if near.is_empty() => paths.join(", "),
        near => near.join(", "),
    };
    Fault::unknown(format!("there is nothing at this path; there is: {hint}"))
}
