//! Errors that the server answers with: `{"error":{"kind","message"}}` under a fitting status.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use barograph_model::{
    ControlFault, ControlFaultKind, FAULT_BYTES_MAX, ModelError, SqlFault, SqlFaultKind, cut,
};
use barograph_stream::StreamError;

/// An error for the client.
#[derive(Debug, Clone)]
pub struct Fault {
    pub status: StatusCode,
    pub kind: &'static str,
    pub message: String,
}

impl Fault {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            kind,
            message: cut(message.into(), FAULT_BYTES_MAX),
        }
    }

    /// 400: the request is malformed.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "usage", message)
    }

    /// 404: the requested thing does not exist.
    pub fn unknown(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "unknown", message)
    }

    /// 403: the client has no right to it.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "refused", message)
    }

    /// 401: the client has not shown that it has the right.
    pub fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "refused", message)
    }

    /// 422: a bound was reached.
    pub fn limit(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "limit", message)
    }

    /// 503: too many requests at once.
    pub fn busy(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", message)
    }

    /// 500: the server failed.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
    }

    /// Replaces the status of the error.
    pub fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    /// The JSON object of the error, as the API specifies it.
    pub fn body(&self) -> serde_json::Value {
        serde_json::json!({ "error": { "kind": self.kind, "message": self.message } })
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let mut response = (self.status, axum::Json(self.body())).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}

impl From<ModelError> for Fault {
    fn from(error: ModelError) -> Self {
        Self::usage(error.to_string())
    }
}

impl From<StreamError> for Fault {
    fn from(error: StreamError) -> Self {
        Self::internal(error.to_string()).with_status(StatusCode::SERVICE_UNAVAILABLE)
    }
}

impl From<SqlFault> for Fault {
    fn from(fault: SqlFault) -> Self {
        let (status, kind) = match fault.kind {
            SqlFaultKind::Statement => (StatusCode::BAD_REQUEST, "statement"),
            SqlFaultKind::Refused => (StatusCode::FORBIDDEN, "refused"),
            SqlFaultKind::Limit | SqlFaultKind::Cancelled => {
                (StatusCode::UNPROCESSABLE_ENTITY, "limit")
            }
            SqlFaultKind::Busy => (StatusCode::SERVICE_UNAVAILABLE, "busy"),
            SqlFaultKind::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
        };
        Self::new(status, kind, fault.message)
    }
}

impl From<ControlFault> for Fault {
    fn from(fault: ControlFault) -> Self {
        match fault.kind {
            ControlFaultKind::Statement => {
                Self::new(StatusCode::BAD_REQUEST, "statement", fault.message)
            }
            ControlFaultKind::Unknown => Self::unknown(fault.message),
            ControlFaultKind::Refused => Self::refused(fault.message),
            ControlFaultKind::Busy => Self::busy(fault.message),
            ControlFaultKind::Internal => Self::internal(fault.message),
        }
    }
}
