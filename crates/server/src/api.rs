//! The handlers of the HTTP API, as specified in `docs/design/0001-one-node.md`.

use std::borrow::Cow;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::{RawQuery, Request, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse as _;
use barograph_model::{ArchiveVerb, BigIntegers, ResultFormat, SqlRequest};
use barograph_stream::{ARCHIVE_DOCUMENT, INSIGHTS_DOCUMENT, SOURCES_DOCUMENT, SourcesRow};
use serde::Serialize;
use tokio::sync::mpsc;

use crate::app::{HandlerAnswer, JSON, RequestOrigin, SharedApp};
use crate::blocking;
use crate::deliver::{CancelOnDrop, Delivery, deliver};
use crate::fault::Fault;
use crate::followed::FollowedNode;
use crate::json::{LatestJson, StreamJson};
use crate::params::Params;
use crate::request_body::statement;
use crate::rights::{AccessWay, check_control};
use crate::watch::{
    self, EVERY_MS_DEFAULT, EVERY_MS_MAX, EVERY_MS_MIN, MessageBody, QUEUED_MAX, Watcher,
};

/// Path prefix of the requests that work on the archive.
pub(crate) const ARCHIVE_PATH: &str = "/api/v1/archive/";
/// Longest time that a request below [`ARCHIVE_PATH`] may take.
pub(crate) const ARCHIVE_TIME_MAX: Duration = Duration::from_secs(3600);

const ARROW: &str = "application/vnd.apache.arrow.stream";

pub(crate) fn to_json<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, Fault> {
    serde_json::to_vec(value).map_err(|e| Fault::internal(format!("cannot write JSON: {e}")))
}

/// `GET /healthz`
pub(crate) async fn healthz(State(app): SharedApp) -> HandlerAnswer {
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

/// `GET /api/v1/status`
pub(crate) async fn status(
    State(app): SharedApp,
    asking: RequestOrigin,
    RawQuery(query): RawQuery,
) -> HandlerAnswer {
    Params::parse(query.as_deref(), &[])?;
    app.render(asking, JSON, |app, view| {
        let segment = view.segment();
        let sources: Vec<SourcesRow> =
            serde_json::from_slice(&app.list_document(SOURCES_DOCUMENT)?).map_err(|e| {
                Fault::internal(format!("{SOURCES_DOCUMENT} is not as it should be: {e}"))
            })?;
        let document = app.views.run_dir().document(ARCHIVE_DOCUMENT)?;
        let parsed = document.map(|text| serde_json::from_slice(&text));
        let archive = parsed.transpose().map_err(|e| {
            Fault::internal(format!("{ARCHIVE_DOCUMENT} is not as it should be: {e}"))
        })?;
        let sources: Vec<_> = sources.into_iter().filter(|s| s.state != "off").collect();
        let up = |s: &&SourcesRow| s.state == "ok" || s.state == "partial";
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

/// `GET /api/v1/streams?match=P&node=NAME`
pub(crate) async fn streams(
    State(app): SharedApp,
    asking: RequestOrigin,
    RawQuery(query): RawQuery,
) -> HandlerAnswer {
    let params = Params::parse(query.as_deref(), &["match", "node"])?;
    let selectors = params.selectors()?;
    app.render_of(params.node()?, asking, JSON, move |_, view| {
        let meant = view.select(&selectors).into_iter();
        let list: Vec<_> = meant
            .map(|at| StreamJson::of(&view.streams[at], None))
            .collect();
        to_json(&list)
    })
    .await
}

/// `GET /api/v1/latest?match=P&allow_predicted=true&node=NAME`
pub(crate) async fn latest(
    State(app): SharedApp,
    asking: RequestOrigin,
    RawQuery(query): RawQuery,
) -> HandlerAnswer {
    let params = Params::parse(query.as_deref(), &["match", "allow_predicted", "node"])?;
    let allow_predicted = params.flag("allow_predicted")?;
    let selectors = params.selectors()?;
    app.render_of(params.node()?, asking, JSON, move |app, view| {
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

/// `GET /api/v1/watch?match=P&every_ms=1000&node=NAME&demand=0`: with 0, what is mirrored anyway.
pub(crate) async fn watch(
    State(app): SharedApp,
    asking: RequestOrigin,
    RawQuery(query): RawQuery,
) -> HandlerAnswer {
    let params = Params::parse(query.as_deref(), &["match", "every_ms", "node", "demand"])?;
    let every_ms = params
        .integer("every_ms", "milliseconds")?
        .unwrap_or(EVERY_MS_DEFAULT);
    if !(EVERY_MS_MIN..=EVERY_MS_MAX).contains(&every_ms) {
        return Err(Fault::usage(format!(
            "every_ms={every_ms} is not between {EVERY_MS_MIN} and {EVERY_MS_MAX}"
        )));
    }
    let every = Duration::from_millis(every_ms.unsigned_abs());
    let (selectors, node) = (params.selectors()?, params.node()?);
    let demands = params.integer("demand", "0 or 1")? != Some(0);
    let place = app.watcher_place(asking)?;
    let of = Arc::clone(&app);
    let made = move || {
        let streams_max = of.limits.watch_streams_max;
        let followed = match demands {
            true => of.follow_node(node.as_deref(), &selectors, asking)?,
            false => FollowedNode::mirrored(of.views_of(node.as_deref())?),
        };
        Watcher::new(selectors, streams_max, followed)
    };
    let watcher = blocking::wait(made).await?;
    let (to, messages) = mpsc::channel(QUEUED_MAX);
    let memory = Arc::clone(&app.memory);
    let RequestOrigin(way, client) = asking;
    let claims = move || memory.claim(client.number(way));
    tokio::spawn(watch::serve(app, watcher, (every, claims), to));
    let body = Body::new(MessageBody::new(messages, place));
    Ok(([(header::CONTENT_TYPE, "text/event-stream")], body).into_response())
}

/// `GET /api/v1/sources`
pub(crate) async fn sources(
    State(app): SharedApp,
    asking: RequestOrigin,
    RawQuery(query): RawQuery,
) -> HandlerAnswer {
    Params::parse(query.as_deref(), &[])?;
    app.render(asking, JSON, |app, _| app.list_document(SOURCES_DOCUMENT))
        .await
}

/// `GET /api/v1/insights`
pub(crate) async fn insights(
    State(app): SharedApp,
    asking: RequestOrigin,
    RawQuery(query): RawQuery,
) -> HandlerAnswer {
    Params::parse(query.as_deref(), &[])?;
    app.render(asking, JSON, |app, _| app.list_document(INSIGHTS_DOCUMENT))
        .await
}

/// `POST /api/v1/archive/seal` and `/compact`: need the right to control.
pub(crate) async fn archive(
    State(app): SharedApp,
    Extension(way): Extension<AccessWay>,
    request: Request,
    verb: ArchiveVerb,
) -> HandlerAnswer {
    check_control(way, &app.token, request.headers())?;
    Params::parse(request.uri().query(), &[])?;
    let place = app.statement_place(way)?;
    let work = move || {
        let _place = place;
        Ok::<_, Fault>(app.control.archive(verb)?)
    };
    Ok(axum::Json(blocking::wait(work).await?).into_response())
}

/// `POST /api/v1/insights/test`: changes nothing, but runs any computation that it is sent. Over
/// TCP, where web pages and forwarded ports come from, it needs the right to control; on the
/// sockets each user has a share of the tests.
pub(crate) async fn test_insight(
    State(app): SharedApp,
    RequestOrigin(way, client): RequestOrigin,
    request: Request,
) -> HandlerAnswer {
    if way == AccessWay::Tcp {
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

/// `POST /api/v1/nodes/sql[?nodes=NAME,NAME][&combine=1]`: the rows of a statement on each of these
/// nodes, or on all, or of one SELECT over the rows of all.
pub(crate) async fn nodes_sql(
    State(app): SharedApp,
    RequestOrigin(way, client): RequestOrigin,
    request: Request,
) -> HandlerAnswer {
    let params = Params::parse(request.uri().query(), &["nodes", "combine"])?;
    let is_combined = params.flag("combine")?;
    let names = params.one("nodes")?.unwrap_or_default().split(',');
    let names: Vec<String> = names
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect();
    let sql = statement(request, &app).await?;
    let delivery = Delivery {
        is_large: false,
        ..app.large((way, client), JSON).await?
    };
    deliver(delivery, move |mut pieces| {
        pieces.json(&app.control.ask_nodes(&sql, &names, is_combined)?)?;
        pieces.finish()
    })
    .await
}

/// `POST /api/v1/sql?format=rows|table|arrow`
pub(crate) async fn sql(
    State(app): SharedApp,
    RequestOrigin(way, client): RequestOrigin,
    request: Request,
) -> HandlerAnswer {
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
