//! The requests that InfluxDB's clients send before they write, to find the server and its version.
//!
//! They are apart from the writes since they take in nothing: `GET` and `HEAD` of `/ping` and
//! `/health`, as InfluxDB 1.8 and 2 answer them.
//! <https://docs.influxdata.com/influxdb/v2/api/#operation/GetHealth>

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use serde_json::json;

use crate::app::SharedApp;
use crate::ingest::http::writer;
use crate::rights::AccessWay;
use crate::share::ClientShare;

/// The version of InfluxDB that accepts writes at the same paths, by which clients decide; our
/// version follows as build metadata, which semantic versioning tells them to ignore.
const VERSION: &str = concat!("1.8.10+barograph.", env!("CARGO_PKG_VERSION"));

/// `GET /ping`: an answer without a body, even if writes are not allowed.
pub(crate) async fn ping() -> Response {
    let headers = [
        ("x-influxdb-version", VERSION),
        ("x-influxdb-build", "barograph"),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}

/// `GET /health`: whether the client may write, or why not.
pub(crate) async fn health(
    State(app): SharedApp,
    Extension(way): Extension<AccessWay>,
    Extension(client): Extension<ClientShare>,
    headers: HeaderMap,
) -> Response {
    let (code, status, message) = match writer(&app, way, client, &headers) {
        Ok(_) => (StatusCode::OK, "pass", "ready for writes".to_owned()),
        Err(fault) => (StatusCode::SERVICE_UNAVAILABLE, "fail", fault.message),
    };
    let body = json!({
        "name": "barograph",
        "message": message,
        "status": status,
        "checks": [],
        "version": VERSION,
    });
    (code, axum::Json(body)).into_response()
}
