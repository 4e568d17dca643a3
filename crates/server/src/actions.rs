//! `POST /api/v1/actions`: shows, retries and drops actions of rules on events. Each of them needs
//! the right to control, since the output of a program may tell anything.

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::IntoResponse as _;

use crate::app::{HandlerAnswer, SharedApp};
use crate::blocking;
use crate::fault::Fault;
use crate::params::Params;
use crate::request_body::body_of;
use crate::rights::{AccessWay, check_control};

/// `POST /api/v1/actions`
pub(crate) async fn action(
    State(app): SharedApp,
    Extension(way): Extension<AccessWay>,
    request: Request,
) -> HandlerAnswer {
    check_control(way, &app.token, request.headers())?;
    Params::parse(request.uri().query(), &[])?;
    let (bytes, claim) = body_of(request, &app).await?;
    let body = serde_json::from_slice(&bytes)
        .map_err(|e| Fault::usage(format!("the body is no JSON object: {e}")))?;
    drop((bytes, claim));
    let place = app.statement_place(way)?;
    let work = move || {
        let _place = place;
        Ok::<_, Fault>(app.control.action(&body)?)
    };
    Ok(axum::Json(blocking::wait(work).await?).into_response())
}
