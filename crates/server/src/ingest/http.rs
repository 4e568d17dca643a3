//! Handlers of writes, and their answers in the format of each protocol.

use std::sync::Arc;

use axum::Extension;
use axum::body::{Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use barograph_bridge::messages::{
    ExportMetricsPartialSuccess, ExportMetricsServiceResponse, RpcStatus,
};
use barograph_bridge::{
    Ingest, IngestFault, IngestRequest, IngestResult, ParsedRequest, PointRefusal, REFUSALS_MAX,
    TimePrecision, read_line_protocol, read_otlp_json, read_otlp_protobuf,
};
use barograph_stream::ingest::PublicationReaders;
use hyper::body::Body as _;
use prost::Message as _;
use serde_json::json;

use crate::app::{App, JSON, SharedApp};
use crate::blocking;
use crate::fault::Fault;
use crate::ingest::body::{Packing, too_large, unpacked};
use crate::params::Params;
use crate::request_body::claim_for_body;
use crate::rights::AccessWay;
use crate::share::ClientShare;

/// Bytes of memory that a write takes per byte of its body: the body, the unpacked body, and the
/// parsed points.
const INGEST_HOLDS: usize = 4;

const PROTOBUF: &str = "application/x-protobuf";
/// Header that names who may read the written values, if the parameter `readers` is not given.
const READERS_HEADER: &str = "x-barograph-readers";
const READERS: &str = "readers";
const PRECISION: &str = "precision";
/// Parameters that InfluxDB's clients send and that are ignored here.
const PASSED_OVER: [&str; 8] = [
    "bucket",
    "consistency",
    "db",
    "org",
    "orgID",
    "p",
    "rp",
    "u",
];
/// Seconds after which a client that was refused as busy may try again.
const RETRY_AFTER: &str = "1";

/// `POST /write` and `POST /api/v2/write`
pub(crate) async fn line_protocol(
    State(app): SharedApp,
    Extension(way): Extension<AccessWay>,
    Extension(client): Extension<ClientShare>,
    request: Request,
) -> Response {
    let known: Vec<&str> = PASSED_OVER
        .into_iter()
        .chain([READERS, PRECISION])
        .collect();
    let read = |params: &Params| {
        let name = params.one(PRECISION)?.unwrap_or_default();
        let precision = TimePrecision::parse(name).ok_or_else(|| {
            Fault::usage(format!("precision={name} is not ns, us, ms, s, m or h"))
        })?;
        Ok(move |body: &[u8]| {
            let text = std::str::from_utf8(body);
            let text = text.map_err(|e| format!("the body is not UTF-8: {e}"))?;
            Ok(read_line_protocol(text, precision))
        })
    };
    let asked = (way, client, request);
    match take(&app, asked, &known, read).await {
        Ok(ingested) if ingested.refused == 0 => StatusCode::NO_CONTENT.into_response(),
        Ok(ingested) => partly_written(&ingested),
        Err(fault) => line_fault(&fault),
    }
}

/// Answers a partial write. The reason is in two fields: clients of one version read `error`, those
/// of the other `message`.
fn partly_written(ingested: &IngestResult) -> Response {
    let told = ingested.refusals.iter();
    let told = told.map(|refusal| format!("line {}: {}", refusal.place, refusal.reason));
    let reasons = told.collect::<Vec<_>>().join("; ");
    let (taken, dropped) = (ingested.taken, ingested.refused);
    let message =
        format!("partial write: {reasons}; values taken={taken}, lines dropped={dropped}");
    let line = ingested.refusals.first().map(|refusal| refusal.place);
    let body = json!({
        "code": "invalid",
        "message": message,
        "error": message,
        "line": line,
    });
    (StatusCode::BAD_REQUEST, axum::Json(body)).into_response()
}

fn line_fault(fault: &Fault) -> Response {
    let code = match fault.status {
        StatusCode::FORBIDDEN => "forbidden",
        StatusCode::PAYLOAD_TOO_LARGE => "request too large",
        StatusCode::SERVICE_UNAVAILABLE => "unavailable",
        status if status.is_client_error() => "invalid",
        _ => "internal error",
    };
    let message = &fault.message;
    let body = json!({ "code": code, "message": message, "error": message });
    retried((fault.status, axum::Json(body)).into_response())
}

/// `POST /v1/metrics`
pub(crate) async fn otlp_metrics(
    State(app): SharedApp,
    Extension(way): Extension<AccessWay>,
    Extension(client): Extension<ClientShare>,
    request: Request,
) -> Response {
    let Some(form) = Form::of(request.headers()) else {
        return Fault::usage(format!("content-type is not {PROTOBUF} or {JSON}"))
            .with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE)
            .into_response();
    };
    let read = |_: &Params| {
        Ok(move |body: &[u8]| match form {
            Form::Protobuf => read_otlp_protobuf(body),
            Form::Json => read_otlp_json(body),
        })
    };
    let asked = (way, client, request);
    match take(&app, asked, &[READERS], read).await {
        Ok(ingested) => form.taken(&ingested),
        Err(fault) => form.fault(&fault),
    }
}

/// The encoding of an OTLP request; the answer has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Protobuf,
    Json,
}

impl Form {
    fn of(headers: &HeaderMap) -> Option<Self> {
        let content_type = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
        let plain = content_type.split(';').next().unwrap_or_default().trim();
        if plain.eq_ignore_ascii_case(PROTOBUF) {
            Some(Self::Protobuf)
        } else {
            plain.eq_ignore_ascii_case(JSON).then_some(Self::Json)
        }
    }

    fn taken(self, ingested: &IngestResult) -> Response {
        let told = ingested.refusals.iter().map(|refusal| &*refusal.reason);
        let reasons = told.collect::<Vec<_>>().join("; ");
        let refused = i64::try_from(ingested.refused).unwrap_or(i64::MAX);
        match self {
            Self::Protobuf => {
                let partial = ExportMetricsPartialSuccess {
                    rejected_data_points: refused,
                    error_message: reasons,
                };
                let answer = ExportMetricsServiceResponse {
                    partial_success: (refused > 0).then_some(partial),
                };
                protobuf(StatusCode::OK, answer.encode_to_vec())
            }
            Self::Json if refused == 0 => axum::Json(json!({})).into_response(),
            Self::Json => axum::Json(json!({
                "partialSuccess": {
                    // JSON of protobuf has 64-bit numbers as strings.
                    "rejectedDataPoints": refused.to_string(),
                    "errorMessage": reasons,
                }
            }))
            .into_response(),
        }
    }

    /// The error as a `google.rpc.RpcStatus`, which the OTLP specification demands.
    fn fault(self, fault: &Fault) -> Response {
        const INVALID_ARGUMENT: i32 = 3;
        const PERMISSION_DENIED: i32 = 7;
        const INTERNAL: i32 = 13;
        const UNAVAILABLE: i32 = 14;
        let code = match fault.status {
            StatusCode::FORBIDDEN => PERMISSION_DENIED,
            StatusCode::SERVICE_UNAVAILABLE => UNAVAILABLE,
            status if status.is_client_error() => INVALID_ARGUMENT,
            _ => INTERNAL,
        };
        let message = fault.message.clone();
        retried(match self {
            Self::Protobuf => protobuf(fault.status, RpcStatus { code, message }.encode_to_vec()),
            Self::Json => {
                let body = json!({ "code": code, "message": message });
                (fault.status, axum::Json(body)).into_response()
            }
        })
    }
}

fn protobuf(status: StatusCode, body: Vec<u8>) -> Response {
    (status, [(header::CONTENT_TYPE, PROTOBUF)], body).into_response()
}

/// Adds the time after which a client that was refused as busy may try again.
fn retried(mut response: Response) -> Response {
    if response.status() == StatusCode::SERVICE_UNAVAILABLE {
        let headers = response.headers_mut();
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER));
    }
    response
}

/// Handles a write: checks the client, reads the body, and passes the points to the agent. `read`
/// turns the parameters into the function that parses the body.
async fn take<R>(
    app: &Arc<App>,
    (way, client, request): (AccessWay, ClientShare, Request),
    known: &[&str],
    read: impl FnOnce(&Params) -> Result<R, Fault>,
) -> Result<IngestResult, Fault>
where
    R: FnOnce(&[u8]) -> Result<ParsedRequest, String> + Send + 'static,
{
    let (to, uid) = writer(app, way, client, request.headers())?;
    let params = Params::parse(request.uri().query(), known)?;
    let readers = readers(&params, request.headers())?;
    let packing = Packing::of(request.headers())?;
    let read = read(&params)?;
    let bytes_max = app.limits.ingest_bytes_max;
    // The place is taken before the body is read, which bounds the bodies in memory. It is given
    // back after the agent has answered.
    let place = app.room(way).ingest.take(client, "writes")?;
    // Memory for the body, the unpacked body, and the parsed points.
    let claim = claim_for_body(app, &request, (INGEST_HOLDS, bytes_max))?;
    let body = body(request, bytes_max).await?;
    let work = move || {
        let _held = (place, claim);
        let body = unpacked(body, packing, bytes_max)?;
        let parsed = read(&body).map_err(Fault::usage)?;
        ingest(&*to, uid, readers, parsed)
    };
    // Parsing is bounded; the rest of the work is waiting.
    blocking::wait(work).await
}

/// The receiver of writes and the user id of the writer, if this client may write.
pub(super) fn writer(
    app: &App,
    way: AccessWay,
    client: ClientShare,
    headers: &HeaderMap,
) -> Result<(Arc<dyn Ingest>, u32), Fault> {
    let Some(ingest) = &app.ingest else {
        return Err(Fault::refused(
            "nothing of applications is taken in: [applications] enabled = false",
        ));
    };
    if way == AccessWay::Tcp {
        if !ingest.over_tcp {
            return Err(Fault::refused(
                "writing over TCP is off: write to read.sock in the run directory, or have \
                 [applications] http_ingest = true",
            ));
        }
        // Web pages may not write, not even our own.
        if headers.contains_key(header::ORIGIN) || headers.contains_key("sec-fetch-site") {
            return Err(Fault::refused("pages do not write"));
        }
    }
    match client {
        ClientShare(Some(uid)) => Ok((Arc::clone(&ingest.to), uid)),
        ClientShare(None) => Err(Fault::refused(
            "whose connection this is cannot be told: write to read.sock in the run directory",
        )),
    }
}

fn readers(params: &Params, headers: &HeaderMap) -> Result<PublicationReaders, Fault> {
    let header = headers.get(READERS_HEADER);
    let header = header.map(|value| value.to_str().unwrap_or("?"));
    match params.one(READERS)?.or(header) {
        None | Some("owner") => Ok(PublicationReaders::Owner),
        Some("all") => Ok(PublicationReaders::All),
        Some(other) => Err(Fault::usage(format!(
            "{READERS}={other} is not owner or all"
        ))),
    }
}

async fn body(request: Request, bytes_max: usize) -> Result<Bytes, Fault> {
    // A body whose announced size is too large is refused before it is read.
    if request.body().size_hint().lower() > bytes_max as u64 {
        return Err(too_large(bytes_max));
    }
    let body = to_bytes(request.into_body(), bytes_max).await;
    // The body was cut off or is too large; the error does not tell which.
    body.map_err(|e| {
        Fault::usage(format!(
            "the body cannot be read, or is larger than {bytes_max} bytes: {e}"
        ))
    })
}

/// Passes the parsed points to the agent, and adds the refusals of the parser to those of the
/// agent.
fn ingest(
    to: &dyn Ingest,
    uid: u32,
    readers: PublicationReaders,
    parsed: ParsedRequest,
) -> Result<IngestResult, Fault> {
    let (refused, mut refusals) = (parsed.refused_count(), parsed.refusals);
    if parsed.points.is_empty() && refused == 0 {
        return Ok(IngestResult::default());
    }
    let request = IngestRequest {
        uid,
        readers,
        points: parsed.points,
        refused: parsed.refused,
    };
    let ingested = to.ingest(request).map_err(|fault| match fault {
        IngestFault::Refused(message) => Fault::refused(message),
        IngestFault::Busy(message) => Fault::busy(message),
    })?;
    refusals.extend(ingested.refusals);
    refusals.sort_by_key(|refusal: &PointRefusal| refusal.place);
    refusals.truncate(REFUSALS_MAX);
    Ok(IngestResult {
        taken: ingested.taken,
        refusals,
        refused: refused + ingested.refused,
    })
}
