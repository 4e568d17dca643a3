//! `/api/v1/control/…`: readers of arrays ask how much they should read, report what they got, and
//! see what was decided; middleware asks where blocks go; others see who may do I/O. It stands
//! alone for its access rights: a client with the right to control sees everything, and a client of
//! `read.sock` plans, reports and sees for its own user.

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use barograph_model::{ControlFault, ControllerVerb, RequestSender};
use serde_json::Value as Json;

use crate::app::{HandlerAnswer, SharedApp};
use crate::blocking;
use crate::control::Control;
use crate::fault::Fault;
use crate::params::Params;
use crate::request_body::body_of;
use crate::rights::{AccessWay, PeerPid, check_control};
use crate::sender::sender;
use crate::share::ClientShare;

/// Most bytes of a body: those of a plan with the most buckets.
const BODY_BYTES_MAX: usize = 768 << 10;

/// What is asked of the controllers.
type Ask = fn(&dyn Control, &Json, &RequestSender) -> Result<Json, ControlFault>;

/// `POST /api/v1/control/plan`
pub(crate) async fn plan(
    app: SharedApp,
    way: Extension<AccessWay>,
    client: Extension<ClientShare>,
    pid: Extension<PeerPid>,
    request: Request,
) -> HandlerAnswer {
    let ask: Ask = |control, body, asker| control.plan(body, asker);
    answer(app, (way.0, client.0, pid.0), request, ask).await
}

/// `POST /api/v1/control/advise`
pub(crate) async fn advise(
    app: SharedApp,
    way: Extension<AccessWay>,
    client: Extension<ClientShare>,
    pid: Extension<PeerPid>,
    request: Request,
) -> HandlerAnswer {
    let ask: Ask = |control, body, asker| control.advise(body, asker);
    answer(app, (way.0, client.0, pid.0), request, ask).await
}

/// `POST /api/v1/control/report`
pub(crate) async fn report(
    app: SharedApp,
    way: Extension<AccessWay>,
    client: Extension<ClientShare>,
    pid: Extension<PeerPid>,
    request: Request,
) -> HandlerAnswer {
    let ask: Ask = |control, body, asker| control.report(body, asker);
    answer(app, (way.0, client.0, pid.0), request, ask).await
}

/// `POST /api/v1/control/decisions`: the decisions of the asker's user; all, for a client with the
/// right to control. It is a POST since it needs the token over TCP.
pub(crate) async fn decisions(
    app: SharedApp,
    way: Extension<AccessWay>,
    client: Extension<ClientShare>,
    pid: Extension<PeerPid>,
    request: Request,
) -> HandlerAnswer {
    let ask: Ask = |control, body, asker| control.decisions(body, asker);
    answer(app, (way.0, client.0, pid.0), request, ask).await
}

/// `POST /api/v1/control/phases`: the phases of I/O of the asker's user on scheduled volumes; all,
/// for a client with the right to control. It is a POST for the same reason.
pub(crate) async fn phases(
    app: SharedApp,
    way: Extension<AccessWay>,
    client: Extension<ClientShare>,
    pid: Extension<PeerPid>,
    request: Request,
) -> HandlerAnswer {
    let ask: Ask = |control, body, asker| control.phases(body, asker);
    answer(app, (way.0, client.0, pid.0), request, ask).await
}

/// `POST /api/v1/control/maps`: the maps of servers of the asker's user, and a change of one; of
/// all users, for a client with the right to control.
pub(crate) async fn maps(
    app: SharedApp,
    way: Extension<AccessWay>,
    client: Extension<ClientShare>,
    pid: Extension<PeerPid>,
    request: Request,
) -> HandlerAnswer {
    let ask: Ask = |control, body, asker| control.maps(body, asker);
    answer(app, (way.0, client.0, pid.0), request, ask).await
}

/// `POST /api/v1/control/list`, `explain`, `pause`, `resume`, `dry-run` and `revert`: the
/// controllers of this agent. Those that change a controller need the right to control.
pub(crate) async fn controllers(
    verb: ControllerVerb,
    app: SharedApp,
    way: Extension<AccessWay>,
    client: Extension<ClientShare>,
    pid: Extension<PeerPid>,
    request: Request,
) -> HandlerAnswer {
    use ControllerVerb::{DryRun, Pause, Resume};
    if matches!(verb, Pause | Resume | DryRun) {
        check_control(way.0, &app.token, request.headers())?;
    }
    let ask = move |control: &dyn Control, body: &Json, asker: &RequestSender| {
        control.controllers(verb, body, asker)
    };
    answer(app, (way.0, client.0, pid.0), request, ask).await
}

async fn answer(
    State(app): SharedApp,
    (way, client, pid): (AccessWay, ClientShare, PeerPid),
    request: Request,
    ask: impl FnOnce(&dyn Control, &Json, &RequestSender) -> Result<Json, ControlFault> + Send + 'static,
) -> HandlerAnswer {
    let asker = sender((way, client, pid), &app.token, request.headers())?;
    Params::parse(request.uri().query(), &[])?;
    let (bytes, claim) = body_of(request, &app).await?;
    if bytes.len() > BODY_BYTES_MAX {
        let fault = Fault::limit(format!("the body is larger than {BODY_BYTES_MAX} bytes"));
        return Err(fault.with_status(StatusCode::PAYLOAD_TOO_LARGE));
    }
    let body = serde_json::from_slice(&bytes)
        .map_err(|e| Fault::usage(format!("the body is no JSON object: {e}")))?;
    drop((bytes, claim));
    let place = app.room(way).plans.take(client, "plans and reports")?;
    let work = move || {
        let _place = place;
        Ok::<_, Fault>(ask(&*app.control, &body, &asker)?)
    };
    Ok(axum::Json(blocking::wait(work).await?).into_response())
}
