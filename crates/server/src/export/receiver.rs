//! The receivers of exports, and the checks of their configuration before anything is sent.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use barograph_model::{Selector, is_loopback};
use ureq::http::{HeaderName, HeaderValue, Uri};

use crate::ServerError;
use crate::view::ServedView;

/// Most bytes of a file of headers or certificates.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Most headers of one receiver.
const HEADERS_MAX: usize = 64;

/// The receivers of exports; if there are none of either kind, nothing is sent.
#[derive(Clone, Debug, Default)]
pub struct ExportConfig {
    /// OTLP metrics over HTTP.
    pub otlp: Option<ExportReceiver>,
    /// Prometheus remote write 1.0.
    pub remote_write: Option<ExportReceiver>,
}

/// A receiver of exports.
#[derive(Clone, Debug)]
pub struct ExportReceiver {
    /// The URL to post to; without a path, the usual path of the protocol is used.
    pub url: String,
    /// Time between two exports, in ns.
    pub every_ns: i64,
    /// The streams that are sent.
    pub selection: ExportSelection,
    /// Headers of each request, such as `Authorization`.
    pub headers: ExportHeaders,
    /// File of certificates (PEM) that are trusted instead of the public ones.
    pub ca_file: Option<PathBuf>,
    /// Longest time of one request.
    pub timeout: Duration,
    /// Whether `http://` to another machine is allowed.
    pub insecure: bool,
}

/// The selection of streams that are sent.
#[derive(Clone, Debug)]
pub struct ExportSelection {
    /// Streams that match any of these are sent…
    pub select: Vec<Selector>,
    /// …unless they match any of these.
    pub leave_out: Vec<Selector>,
}

impl ExportSelection {
    /// Indices of the selected streams, in the order of the view.
    pub(super) fn of(&self, view: &ServedView) -> Vec<usize> {
        let mut selected = view.select(&self.select);
        selected.retain(|&at| {
            let descriptor = &view.streams[at].entry.descriptor;
            let (name, labels) = (descriptor.name.as_str(), &descriptor.labels);
            !self.leave_out.iter().any(|s| s.matches(name, labels))
        });
        selected
    }
}

/// Headers of requests. Their values are secrets, so `Debug` does not show them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ExportHeaders(Vec<(HeaderName, HeaderValue)>);

impl ExportHeaders {
    /// Makes headers from names and values, after checking both.
    pub fn new(pairs: &BTreeMap<String, String>) -> Result<Self, ServerError> {
        let mut headers = Self::default();
        for (name, value) in pairs {
            headers.add(name, value)?;
        }
        Ok(headers)
    }

    /// Adds the headers of a file: lines `Name: value`; empty lines and lines with `#` are ignored.
    /// A file that others may read is refused.
    pub fn read(mut self, path: &Path) -> Result<Self, ServerError> {
        let text = read_file("headers_file", path, true)?;
        for line in text.lines().map(str::trim) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, value) = line.split_once(':').ok_or_else(|| ServerError::Export {
                what: format!("headers_file {}", path.display()),
                reason: "a line is not `Name: value`".into(),
            })?;
            self.add(name.trim(), value.trim())?;
        }
        Ok(self)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &(HeaderName, HeaderValue)> {
        self.0.iter()
    }

    fn add(&mut self, name: &str, value: &str) -> Result<(), ServerError> {
        let refuse = |reason: &str| ServerError::Export {
            what: format!("header {name:?}"),
            reason: reason.into(),
        };
        let header = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| refuse("it is no name of a header"))?;
        let mut value =
            HeaderValue::from_str(value).map_err(|_| refuse("its value has control characters"))?;
        value.set_sensitive(true);
        let ours = ["content-type", "content-encoding", "content-length", "host"];
        if ours.contains(&header.as_str()) {
            return Err(refuse("it is set by barograph"));
        }
        if self.0.len() == HEADERS_MAX {
            return Err(refuse("more than 64 headers"));
        }
        self.0.push((header, value));
        Ok(())
    }
}

impl fmt::Debug for ExportHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|h| &h.0)).finish()
    }
}

/// A checked address of a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReceiverAddress {
    /// The whole URL.
    pub url: String,
    /// The URL without its query, for logs: a query may hold a key.
    pub shown: String,
    /// Whether the address is a loopback address.
    pub is_local: bool,
}

impl ReceiverAddress {
    /// Parses a URL; a URL without a path gets `path`.
    pub(super) fn parse(url: &str, path: &str, insecure: bool) -> Result<Self, ServerError> {
        let refuse = |reason: &str| ServerError::Export {
            // The message shows the URL only up to its query or password, which are secret.
            what: format!("url {:?}", url.split(['?', '@']).next().unwrap_or_default()),
            reason: reason.into(),
        };
        let uri: Uri = url
            .parse()
            .map_err(|_| refuse("it must be like https://host:port/path"))?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(refuse("it must be like https://host:port/path"));
        };
        if authority.as_str().contains('@') {
            return Err(ServerError::Export {
                what: format!("url of {}", authority.host()),
                reason: "it holds a password: put it into headers_file as Authorization".into(),
            });
        }
        let is_local = is_loopback(authority.host());
        match scheme {
            "https" => {}
            "http" if is_local || insecure => {}
            "http" => {
                return Err(refuse(
                    "it would leave this machine unencrypted: use https://, or say insecure = true",
                ));
            }
            _ => return Err(refuse("it must begin with https:// or http://")),
        }
        let place = match (uri.path(), uri.query()) {
            ("" | "/", None) => path,
            (given, _) => given,
        };
        let shown = format!("{scheme}://{authority}{place}");
        let url = match uri.query() {
            Some(query) => format!("{shown}?{query}"),
            None => shown.clone(),
        };
        Ok(Self {
            url,
            shown,
            is_local,
        })
    }
}

/// Reads a small file that the configuration names.
pub(super) fn read_file(
    what: &'static str,
    path: &Path,
    is_secret: bool,
) -> Result<String, ServerError> {
    let refuse = |reason: String| ServerError::Export {
        what: format!("{what} {}", path.display()),
        reason,
    };
    let shape = fs::metadata(path).map_err(|e| refuse(e.to_string()))?;
    if !shape.is_file() || shape.len() > FILE_BYTES_MAX {
        return Err(refuse("it must be a file of at most 1 MiB".into()));
    }
    if is_secret && shape.permissions().mode() & 0o007 != 0 {
        return Err(refuse("others may read it: chmod o= it".into()));
    }
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text))
        .map_err(|e| refuse(e.to_string()))?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let check = |url: &str, expect: Result<&str, &str>| {
            let found = ReceiverAddress::parse(url, "/v1/metrics", false);
            match (&found, expect) {
                (Ok(address), Ok(url)) => assert_eq!(address.url, url),
                (Err(error), Err(reason)) => {
                    assert!(error.to_string().contains(reason), "{url}: {error}");
                    assert!(!error.to_string().contains("hunter2"), "{error}");
                }
                _ => panic!("{url}: {found:?}"),
            }
        };
        check(
            "http://127.0.0.1:4318",
            Ok("http://127.0.0.1:4318/v1/metrics"),
        );
        check("http://[::1]:4318/", Ok("http://[::1]:4318/v1/metrics"));
        check("http://localhost:1/a/b", Ok("http://localhost:1/a/b"));
        check("https://o.example/x?key=1", Ok("https://o.example/x?key=1"));
        check("http://o.example/x?key=hunter2", Err("insecure = true"));
        check("http://127.0.0.1.o.example/", Err("insecure = true"));
        check("https://me:hunter2@o.example/", Err("headers_file"));
        check("ftp://o.example/", Err("https:// or http://"));
        check("o.example", Err("https://host:port/path"));
        check("", Err("https://host:port/path"));
        assert!(ReceiverAddress::parse("http://o.example/", "/", true).is_ok());
        let shown = ReceiverAddress::parse("https://o.example/x?key=1", "/", false);
        assert_eq!(shown.unwrap().shown, "https://o.example/x");
    }

    #[test]
    fn headers_are_checked_and_hidden() {
        let headers = |name: &str, value: &str| {
            ExportHeaders::new(&BTreeMap::from([(name.to_owned(), value.to_owned())]))
        };
        let good = headers("Authorization", "Bearer hunter2").unwrap();
        assert_eq!(format!("{good:?}"), r#"["authorization"]"#);
        for (name, value) in [
            ("a b", "x"),
            ("a", "x\ny"),
            ("Content-Type", "x"),
            ("", "x"),
        ] {
            assert!(headers(name, value).is_err(), "{name}");
        }
    }

    #[test]
    fn a_file_of_headers_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("headers");
        fs::write(
            &path,
            "# token\n\nAuthorization: Basic a:b\nX-Scope-OrgID: 1\n",
        )
        .unwrap();
        let read = |mode: u32| {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            ExportHeaders::default().read(&path)
        };
        let names: Vec<String> = read(0o640)
            .unwrap()
            .iter()
            .map(|(name, value)| format!("{name}={}", value.to_str().unwrap()))
            .collect();
        assert_eq!(names, ["authorization=Basic a:b", "x-scope-orgid=1"]);
        assert!(read(0o644).unwrap_err().to_string().contains("chmod"));
        fs::write(&path, "no colon").unwrap();
        assert!(read(0o600).unwrap_err().to_string().contains("Name: value"));
    }
}
