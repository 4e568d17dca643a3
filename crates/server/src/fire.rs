//! `POST /api/v1/fire`: calls handlers and sets knobs of running programs. It stands alone for its
//! access rights: a client with the right to control may call any program, and a client of
//! `read.sock` the programs of its own user.

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::IntoResponse as _;

use crate::app::{HandlerAnswer, SharedApp};
use crate::blocking;
use crate::fault::Fault;
use crate::params::Params;
use crate::request_body::body_of;
use crate::rights::{AccessWay, PeerPid};
use crate::sender::sender;
use crate::share::ClientShare;

/// Most bytes of a body: twenty times the longest payload. As JSON in memory it takes many times as
/// much.
const BODY_BYTES_MAX: usize = 64 << 10;

/// `POST /api/v1/fire`
pub(crate) async fn fire(
    State(app): SharedApp,
    Extension(way): Extension<AccessWay>,
    Extension(client): Extension<ClientShare>,
    Extension(pid): Extension<PeerPid>,
    request: Request,
) -> HandlerAnswer {
    // On `read.sock` the client's user decides which programs it may call.
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
    let place = app.room(way).fires.take(client, "calls into programs")?;
    let work = move || {
        let _place = place;
        Ok::<_, Fault>(app.control.fire(&body, &asker)?)
    };
    Ok(axum::Json(blocking::wait(work).await?).into_response())
}
