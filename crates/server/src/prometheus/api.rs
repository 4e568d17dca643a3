//! Prometheus' HTTP query API: who asks is answered as by Prometheus, from streams and their history.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse as _, Response};
use barograph_model::{Descriptor, NS_PER_S, PastSeries, Span};
use serde::Serialize;

use super::answer::{DataJson, LabelsJson, success};
use super::exposition::{self, Format};
use super::names;
use super::promql::{Context, FaultKind, Grid, LabelSet, PromFault, Query, identities};
use super::request::Form;
use crate::api::{App, CancelOnDrop};
use crate::blocking::{self, HeldBody};
use crate::fault::Fault;

/// Most points that one query holds at once: 64 MB.
const POINTS_MAX: usize = 4_000_000;
/// Series, labels and values are of this stretch where none is asked for.
const RECENT_NS: i64 = 3_600 * NS_PER_S;
/// The version of Prometheus whose API this is like: clients look for what a version can do.
const LIKE_VERSION: &str = "2.42.0";

type Shared = State<Arc<App>>;
type Answer = Result<Response, PromFault>;

/// `GET /metrics`
pub async fn metrics(State(app): Shared, headers: HeaderMap) -> Result<Response, Fault> {
    let accept = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok());
    let format = Format::of(accept);
    app.render(format.content_type(), move |app, view| {
        let counts = app.counters.now();
        Ok(exposition::exposition(view, app.clock.now_ns(), counts, format).into_bytes())
    })
    .await
}

/// `GET|POST /api/v1/query?query=&time=&timeout=`
pub async fn query(State(app): Shared, request: Request) -> Answer {
    let form = Form::of(request).await?;
    let query = form.query()?.to_owned();
    let at = form.time("time")?.unwrap_or_else(|| now(&app));
    answer(app, &form, query, Grid::instant(at), false).await
}

/// `GET|POST /api/v1/query_range?query=&start=&end=&step=&timeout=`
pub async fn query_range(State(app): Shared, request: Request) -> Answer {
    let form = Form::of(request).await?;
    let grid = form.grid()?;
    let query = form.query()?.to_owned();
    answer(app, &form, query, grid, true).await
}

async fn answer(app: Arc<App>, form: &Form, query: String, grid: Grid, of_range: bool) -> Answer {
    run(app, form, move |context| {
        let answer = Query::parse(&query)?.answer(context, grid)?;
        if of_range && matches!(answer, super::promql::Answer::Text(_)) {
            return Err(PromFault::bad(
                "invalid expression type \"string\" for range query, must be Scalar or instant Vector",
            ));
        }
        success(&DataJson {
            answer: &answer,
            grid,
            of_range,
        })
    })
    .await
}

/// `GET|POST /api/v1/series?match[]=`
pub async fn series(State(app): Shared, request: Request) -> Answer {
    let form = Form::of(request).await?;
    if !form.has_matches() {
        return Err(PromFault::bad("no match[] parameter provided"));
    }
    about(app, form, |found, limit| {
        let sets: BTreeSet<LabelSet> = found.into_iter().map(|(labels, _)| labels).collect();
        let sets: Vec<LabelsJson<'_>> = sets.iter().take(limit).map(LabelsJson).collect();
        success(&sets)
    })
    .await
}

/// `GET|POST /api/v1/labels`
pub async fn labels(State(app): Shared, request: Request) -> Answer {
    let form = Form::of(request).await?;
    about(app, form, |found, limit| {
        let names = found.iter().flat_map(|(labels, _)| labels.iter());
        let names: BTreeSet<&str> = names.map(|(name, _)| name).collect();
        success(&names.into_iter().take(limit).collect::<Vec<_>>())
    })
    .await
}

/// `GET /api/v1/label/<name>/values`
pub async fn label_values(
    State(app): Shared,
    Path(name): Path<String>,
    request: Request,
) -> Answer {
    let form = Form::of(request).await?;
    about(app, form, move |found, limit| {
        let values = found.iter().filter_map(|(labels, _)| labels.get(&name));
        let values: BTreeSet<&str> = values.collect();
        success(&values.into_iter().take(limit).collect::<Vec<_>>())
    })
    .await
}

#[derive(Serialize)]
struct MetadataJson {
    r#type: &'static str,
    help: String,
    unit: &'static str,
}

/// `GET /api/v1/metadata?metric=&limit=`
pub async fn metadata(State(app): Shared, request: Request) -> Answer {
    let form = Form::of(request).await?;
    let metric = form.get("metric").map(str::to_owned);
    about(app, form, move |found, limit| {
        let mut metrics: BTreeMap<String, [MetadataJson; 1]> = BTreeMap::new();
        let has_place = |of: &Descriptor| names::has_place(of.value_type);
        for (_, series) in found.into_iter().filter(|(_, s)| has_place(&s.descriptor)) {
            let exposed = names::exposed(&series.node, &series.descriptor);
            if metric.as_ref().is_none_or(|m| *m == exposed.name) {
                metrics.entry(exposed.name).or_insert_with(|| {
                    let help = series.descriptor.help.clone();
                    let r#type = exposed.kind.as_str("unknown");
                    [MetadataJson {
                        r#type,
                        help,
                        unit: "",
                    }]
                });
            }
        }
        success(&metrics.into_iter().take(limit).collect::<BTreeMap<_, _>>())
    })
    .await
}

/// `GET /api/v1/status/buildinfo`
pub async fn buildinfo(State(app): Shared) -> Answer {
    let body = success(&serde_json::json!({
        "application": "barograph",
        "applicationVersion": app.info.version,
        "version": LIKE_VERSION,
        "revision": "", "branch": "", "buildUser": "", "buildDate": "", "goVersion": "",
    }))?;
    Ok(json(Body::from(body)))
}

/// What is known of the series of `match[]` between `start` and `end`.
async fn about(
    app: Arc<App>,
    form: Form,
    make: impl FnOnce(Vec<(LabelSet, PastSeries)>, usize) -> Result<Vec<u8>, PromFault> + Send + 'static,
) -> Answer {
    let limit = form.limit()?.unwrap_or(usize::MAX);
    let to = form.time("end")?.unwrap_or_else(|| now(&app));
    let from = form.time("start")?.unwrap_or(to.saturating_sub(RECENT_NS));
    let span = Span { from, to };
    let time = form.clone();
    run(app, &time, move |context| {
        let wanted = form.matches(context)?;
        let found = identities(context, &wanted, span)?;
        make(found, limit)
    })
    .await
}

/// Runs on a thread that may wait, within the bounds of a large answer.
async fn run(
    app: Arc<App>,
    form: &Form,
    work: impl FnOnce(&Context<'_>) -> Result<Vec<u8>, PromFault> + Send + 'static,
) -> Answer {
    let longest_ns = app.limits.sql.time_ns_max;
    let time_ns = form
        .duration("timeout")?
        .unwrap_or(longest_ns)
        .clamp(0, longest_ns);
    let permit = app.room.large.take(form.client, "queries and histories")?;
    let cancel = Arc::new(AtomicBool::new(false));
    // This future is dropped when the client goes away or the time is up.
    let cancelled_with_us = CancelOnDrop(Arc::clone(&cancel));
    let until_ns = app.clock.monotonic_ns().saturating_add(time_ns);
    let work = move || {
        let context = Context {
            past: &*app.past,
            clock: &*app.clock,
            cancel: &cancel,
            samples_max: app.limits.history_samples_max,
            points_max: POINTS_MAX,
            until_ns,
        };
        let body = work(&context);
        let bytes_max = app.limits.sql.bytes_max;
        Ok(body.and_then(|body| match body.len() {
            length if length <= bytes_max => Ok(body),
            length => Err(PromFault::execution(format!(
                "the answer has {length} bytes, at most {bytes_max}: ask for less"
            ))),
        }))
    };
    // A read looks at `cancel` alone: so the end of the time sets it too.
    let mut work = pin!(blocking::run(permit, work));
    let time = Duration::from_nanos(time_ns.unsigned_abs());
    let (done, is_late) = match tokio::time::timeout(time, work.as_mut()).await {
        Ok(done) => (done, false),
        Err(_) => {
            cancelled_with_us.0.store(true, Ordering::Relaxed);
            (work.await, true)
        }
    };
    let (body, permit) = done?;
    let body = body.map_err(|fault| match fault.kind {
        FaultKind::Canceled if is_late => PromFault::timeout(),
        _ => fault,
    });
    Ok(json(Body::new(HeldBody::new(body?, permit))))
}

fn now(app: &App) -> i64 {
    app.clock.now_ns()
}

fn json(body: Body) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}
