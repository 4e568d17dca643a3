//! Prometheus' HTTP query API, answered from streams and their history.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse as _, Response};
use barograph_model::{Descriptor, NS_PER_S, PastSeries, Span};
use serde::Serialize;

use super::answer::{DataJson, LabelsJson, success};
use super::exposition::{self, Format};
use super::names;
use super::promql::{FaultKind, Grid, LabelSet, PromFault, PromQuery, QueryContext, identities};
use super::request::Form;
use crate::app::{App, RequestOrigin, SharedApp};
use crate::deliver::{AnswerPieces, deliver};
use crate::fault::Fault;

/// Most points that one query holds at once: 64 MB.
const POINTS_MAX: usize = 4_000_000;
/// The time before `end` that series, labels and values cover if `start` is not given.
const RECENT_NS: i64 = 3_600 * NS_PER_S;
/// The version of Prometheus that this API resembles: clients derive features from it.
const LIKE_VERSION: &str = "2.42.0";

type PromAnswer = Result<Response, PromFault>;

/// `GET /metrics`
pub(crate) async fn metrics(
    State(app): SharedApp,
    asker: RequestOrigin,
    headers: HeaderMap,
) -> Result<Response, Fault> {
    let accept = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok());
    let format = Format::of(accept);
    app.render(asker, format.content_type(), move |app, view| {
        let counts = app.counters.now();
        Ok(exposition::exposition(view, app.clock.now_ns(), counts, format).into_bytes())
    })
    .await
}

/// `GET|POST /api/v1/query?query=&time=&timeout=`
pub(crate) async fn query(State(app): SharedApp, request: Request) -> PromAnswer {
    let form = Form::of(request, &app).await?;
    let query = form.query()?.to_owned();
    let at = form.time("time")?.unwrap_or_else(|| now(&app));
    answer(app, &form, query, Grid::instant(at), false).await
}

/// `GET|POST /api/v1/query_range?query=&start=&end=&step=&timeout=`
pub(crate) async fn query_range(State(app): SharedApp, request: Request) -> PromAnswer {
    let form = Form::of(request, &app).await?;
    let grid = form.grid()?;
    let query = form.query()?.to_owned();
    answer(app, &form, query, grid, true).await
}

async fn answer(
    app: Arc<App>,
    form: &Form,
    query: String,
    grid: Grid,
    of_range: bool,
) -> PromAnswer {
    run(app, form, move |context, into| {
        let answer = PromQuery::parse(&query)?.answer(context, grid)?;
        if of_range && matches!(answer, super::promql::QueryAnswer::Text(_)) {
            return Err(PromFault::bad(
                "invalid expression type \"string\" for range query, must be Scalar or instant Vector",
            ));
        }
        let data = DataJson {
            answer: &answer,
            grid,
            of_range,
        };
        success(into, &data)
    })
    .await
}

/// `GET|POST /api/v1/series?match[]=`
pub(crate) async fn series(State(app): SharedApp, request: Request) -> PromAnswer {
    let form = Form::of(request, &app).await?;
    if !form.has_matches() {
        return Err(PromFault::bad("no match[] parameter provided"));
    }
    about(app, form, |found, limit, into| {
        let sets: BTreeSet<LabelSet> = found.into_iter().map(|(labels, _)| labels).collect();
        let sets: Vec<LabelsJson<'_>> = sets.iter().take(limit).map(LabelsJson).collect();
        success(into, &sets)
    })
    .await
}

/// `GET|POST /api/v1/labels`
pub(crate) async fn labels(State(app): SharedApp, request: Request) -> PromAnswer {
    let form = Form::of(request, &app).await?;
    about(app, form, |found, limit, into| {
        let names = found.iter().flat_map(|(labels, _)| labels.iter());
        let names: BTreeSet<&str> = names.map(|(name, _)| name).collect();
        success(into, &names.into_iter().take(limit).collect::<Vec<_>>())
    })
    .await
}

/// `GET /api/v1/label/<name>/values`
pub(crate) async fn label_values(
    State(app): SharedApp,
    Path(name): Path<String>,
    request: Request,
) -> PromAnswer {
    let form = Form::of(request, &app).await?;
    about(app, form, move |found, limit, into| {
        let values = found.iter().filter_map(|(labels, _)| labels.get(&name));
        let values: BTreeSet<&str> = values.collect();
        success(into, &values.into_iter().take(limit).collect::<Vec<_>>())
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
pub(crate) async fn metadata(State(app): SharedApp, request: Request) -> PromAnswer {
    let form = Form::of(request, &app).await?;
    let metric = form.get("metric").map(str::to_owned);
    about(app, form, move |found, limit, into| {
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
        success(
            into,
            &metrics.into_iter().take(limit).collect::<BTreeMap<_, _>>(),
        )
    })
    .await
}

/// `GET /api/v1/status/buildinfo`
pub(crate) async fn buildinfo(State(app): SharedApp) -> PromAnswer {
    let about = serde_json::json!({
        "status": "success",
        "data": {
            "application": "barograph",
            "applicationVersion": app.info.version,
            "version": LIKE_VERSION,
            "revision": "", "branch": "", "buildUser": "", "buildDate": "", "goVersion": "",
        },
    });
    Ok(axum::Json(about).into_response())
}

/// Answers a request about the series that match `match[]` between `start` and `end`.
async fn about(
    app: Arc<App>,
    form: Form,
    make: impl FnOnce(Vec<(LabelSet, PastSeries)>, usize, &mut AnswerPieces) -> Result<(), PromFault>
    + Send
    + 'static,
) -> PromAnswer {
    let limit = form.limit()?.unwrap_or(usize::MAX);
    let to = form.time("end")?.unwrap_or_else(|| now(&app));
    let from = form.time("start")?.unwrap_or(to.saturating_sub(RECENT_NS));
    let span = Span { from, to };
    let time = form.clone();
    run(app, &time, move |context, into| {
        let wanted = form.matches(context)?;
        let found = identities(context, &wanted, span)?;
        make(found, limit, into)
    })
    .await
}

/// Runs `work` on a thread that may wait, within the bounds of a large answer.
async fn run(
    app: Arc<App>,
    form: &Form,
    work: impl FnOnce(&QueryContext<'_>, &mut AnswerPieces) -> Result<(), PromFault> + Send + 'static,
) -> PromAnswer {
    let longest_ns = app.limits.sql.time_ns_max;
    let time_ns = form
        .duration("timeout")?
        .unwrap_or(longest_ns)
        .clamp(0, longest_ns);
    let delivery = app
        .large((form.way, form.client), "application/json")
        .await?;
    let cancel = Arc::clone(&delivery.asked.cancel);
    let until_ns = app.clock.monotonic_ns().saturating_add(time_ns);
    let to_cancel = Arc::clone(&cancel);
    let work = move |mut pieces: AnswerPieces| {
        let held = pieces.shared_claim();
        let holds = |bytes: usize| held.reach(bytes);
        let context = QueryContext {
            past: &*app.past,
            clock: &*app.clock,
            cancel: &cancel,
            samples_max: app.limits.history_samples_max,
            points_max: POINTS_MAX,
            until_ns,
            holds: &holds,
        };
        work(&context, &mut pieces)?;
        pieces.finish().map_err(PromFault::from)
    };
    // A read checks only `cancel`, so the end of the time sets it too.
    let mut work = pin!(deliver(delivery, work));
    let time = Duration::from_nanos(time_ns.unsigned_abs());
    let (done, is_late) = match tokio::time::timeout(time, work.as_mut()).await {
        Ok(done) => (done, false),
        Err(_) => {
            to_cancel.store(true, Ordering::Relaxed);
            (work.await, true)
        }
    };
    done.map_err(|fault| match fault.kind {
        FaultKind::Canceled if is_late => PromFault::timeout(),
        _ => fault,
    })
}

fn now(app: &App) -> i64 {
    app.clock.now_ns()
}
