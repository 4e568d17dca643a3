//! The web page, embedded in the program, and the header that keeps it from loading anything else.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use barograph_model::fnv1a;
/// The content security policy: the page may load only its own files.
pub(crate) const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; \
     style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'";

/// The files of the page as they were built.
#[derive(Clone, Copy, Debug)]
pub struct Site {
    /// The file at `/`.
    pub index_html: &'static [u8],
    /// The file at `/app.js`.
    pub app_js: &'static [u8],
    /// The file at `/app.css`.
    pub app_css: &'static [u8],
    /// The file at `/later.js`: views that the page loads when they are opened.
    pub later_js: &'static [u8],
}

impl Site {
    /// The page that this program was built with.
    pub const EMBEDDED: Self = Self {
        index_html: include_bytes!("../../../web/dist/index.html"),
        app_js: include_bytes!("../../../web/dist/app.js"),
        app_css: include_bytes!("../../../web/dist/app.css"),
        later_js: include_bytes!("../../../web/dist/later.js"),
    };
}

/// One file with its content type and entity tag.
#[derive(Clone, Debug)]
pub(crate) struct Asset {
    bytes: &'static [u8],
    content_type: &'static str,
    etag: HeaderValue,
}

impl Asset {
    /// Makes an asset; its tag is a hash of its bytes.
    pub(crate) fn new(bytes: &'static [u8], content_type: &'static str) -> Self {
        let tag = format!("\"{:016x}-{}\"", fnv1a(bytes), bytes.len());
        let etag = HeaderValue::from_str(&tag).expect("hex is a header value");
        Self {
            bytes,
            content_type,
            etag,
        }
    }

    /// Answers with the file, or with 304 if the client has it.
    pub(crate) fn answer(&self, headers: &HeaderMap) -> Response {
        let common = [
            (header::ETAG, self.etag.clone()),
            (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        ];
        if self.is_held(headers) {
            return (StatusCode::NOT_MODIFIED, common).into_response();
        }
        let content_type = [(header::CONTENT_TYPE, self.content_type)];
        (common, content_type, self.bytes).into_response()
    }

    fn is_held(&self, headers: &HeaderMap) -> bool {
        let held = headers
            .get_all(header::IF_NONE_MATCH)
            .iter()
            .filter_map(|v| v.to_str().ok());
        held.flat_map(|list| list.split(','))
            .map(|tag| tag.trim().trim_start_matches("W/"))
            .any(|tag| tag == "*" || self.etag == tag)
    }
}
