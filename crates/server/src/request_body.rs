//! Bodies of requests, read within the server's memory: their bytes, and statements in them.

use axum::body::Bytes;
use axum::extract::{FromRequest as _, Request};
use axum::http::{HeaderMap, StatusCode, header};
use barograph_model::MemoryClaim;
use hyper::body::Body as _;
use serde::Deserialize;

use crate::app::{App, JSON};
use crate::fault::Fault;
use crate::rights::AccessWay;
use crate::share::ClientShare;

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
        request.extensions().get::<AccessWay>().copied(),
        request.extensions().get::<ClientShare>().copied(),
    );
    let client = client.unwrap_or(ClientShare(None));
    let mut claim = app
        .memory
        .claim(client.number(way.unwrap_or(AccessWay::Stranger)));
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
