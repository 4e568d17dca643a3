//! Sends one request to a receiver and classifies the outcome; decides how long to wait after a
//! failure.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use ureq::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Proxy};

use crate::ServerError;
use crate::export::receiver::{ExportReceiver, ReceiverAddress, read_file};

/// Most bytes of an answer that are read.
const ANSWER_BYTES_MAX: u64 = 64 << 10;
/// Most characters of a receiver's error message that are passed on.
const COMPLAINT_CHARS_MAX: usize = 200;
/// Longest idle time of a connection that is used again: after a longer time the other side may
/// just close it.
const IDLE_MAX: Duration = Duration::from_secs(5);
/// The wait after the first failure; it doubles with each further one.
const WAIT_MIN: Duration = Duration::from_secs(1);
/// The longest wait after failures in a row.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// The longest wait that a receiver can ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);

/// The connection to one receiver.
pub(super) struct Sender {
    agent: Agent,
    address: ReceiverAddress,
    headers: Vec<(HeaderName, HeaderValue)>,
    /// Whether a status is an error that may pass by itself.
    passes: fn(StatusCode) -> bool,
}

/// The outcome of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SendOutcome {
    /// The receiver has taken it; with the body of its answer.
    Delivered(Vec<u8>),
    /// The receiver will never take it.
    Refused(String),
    /// The receiver refuses it because of its content; a part of it may be taken.
    Unfit(String),
    /// The request is to be tried again, not before the time that the receiver asked for.
    Later(SendFailure),
}

/// The reason why a request is to be tried again.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SendFailure {
    pub reason: String,
    /// The wait that the receiver asked for.
    pub asked: Option<Duration>,
    /// Whether the receiver may have taken the request although no answer arrived.
    pub may_be_there: bool,
}

/// The properties of a protocol that its requests need.
pub(super) struct ExportProtocol {
    /// The path for a URL that has none.
    pub path: &'static str,
    /// Headers of every request.
    pub headers: &'static [(&'static str, &'static str)],
    /// Whether a status is an error that may pass by itself.
    pub passes: fn(StatusCode) -> bool,
}

impl Sender {
    /// Checks the receiver's configuration; no connection is made yet.
    pub(super) fn new(
        receiver: &ExportReceiver,
        protocol: &ExportProtocol,
    ) -> Result<Self, ServerError> {
        let address = ReceiverAddress::parse(&receiver.url, protocol.path, receiver.insecure)?;
        let roots = match &receiver.ca_file {
            None => RootCerts::WebPki,
            Some(path) => {
                let pem = read_file("ca_file", path, false)?;
                let certificates = certificates(pem.as_bytes());
                if certificates.is_empty() {
                    return Err(ServerError::Export {
                        what: format!("ca_file {}", path.display()),
                        reason: "it holds no certificate (PEM)".into(),
                    });
                }
                RootCerts::new_with_certs(&certificates)
            }
        };
        // Requests to this machine use no proxy.
        let proxy = (!address.is_local).then(Proxy::try_from_env).flatten();
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_global(Some(receiver.timeout))
            .max_idle_age(IDLE_MAX)
            .user_agent(concat!("barograph/", env!("CARGO_PKG_VERSION")))
            .tls_config(TlsConfig::builder().root_certs(roots).build())
            .proxy(proxy)
            .build()
            .new_agent();
        let fixed = protocol.headers.iter().map(|(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        });
        Ok(Self {
            agent,
            address,
            headers: fixed.chain(receiver.headers.iter().cloned()).collect(),
            passes: protocol.passes,
        })
    }

    /// The address without its secret parts.
    pub(super) fn shown(&self) -> &str {
        &self.address.shown
    }

    /// Posts `body`; takes at most the receiver's timeout.
    pub(super) fn post(&self, body: &[u8]) -> SendOutcome {
        let mut request = self.agent.post(&self.address.url);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let mut response = match request.send(body) {
            Ok(response) => response,
            Err(ureq::Error::BadUri(reason)) => return SendOutcome::Refused(reason),
            Err(error) => {
                return SendOutcome::Later(SendFailure {
                    reason: error.to_string(),
                    asked: None,
                    may_be_there: may_have_arrived(&error),
                });
            }
        };
        let answer = response
            .body_mut()
            .with_config()
            .limit(ANSWER_BYTES_MAX)
            .read_to_vec()
            .unwrap_or_default();
        let status = response.status();
        if status.is_success() {
            return SendOutcome::Delivered(answer);
        }
        let reason = match complaint(&answer) {
            said if said.is_empty() => status.to_string(),
            said => format!("{status}: {said}"),
        };
        if (self.passes)(status) {
            SendOutcome::Later(SendFailure {
                reason,
                asked: retry_after(response.headers()),
                may_be_there: status == StatusCode::GATEWAY_TIMEOUT,
            })
        } else if matches!(status, StatusCode::BAD_REQUEST | StatusCode::CONFLICT) {
            // Thanos answers 409 to samples that are out of order.
            SendOutcome::Unfit(reason)
        } else {
            SendOutcome::Refused(reason)
        }
    }
}

/// Whether the receiver may have taken a request that failed with this error.
fn may_have_arrived(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::Timeout(_) => true,
        ureq::Error::Io(error) => error.kind() != std::io::ErrorKind::ConnectionRefused,
        _ => false,
    }
}

/// The first line of an answer, shortened and without control characters, for a log.
fn complaint(answer: &[u8]) -> String {
    let text = String::from_utf8_lossy(answer);
    let line = text.lines().next().unwrap_or_default();
    line.chars()
        .filter(|c| !c.is_control() && *c != char::REPLACEMENT_CHARACTER)
        .take(COMPLAINT_CHARS_MAX)
        .collect()
}

/// Reads `retry-after` in seconds; its form with a date is rare, and the usual wait does for it.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get("retry-after")?.to_str().ok()?;
    let wait = Duration::from_secs(seconds.trim().parse().ok()?);
    Some(wait.min(RETRY_AFTER_MAX))
}

fn certificates(pem: &[u8]) -> Vec<Certificate<'static>> {
    parse_pem(pem)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect()
}

/// The waits after failures in a row.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Begins anew after a success.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }

    /// The wait after one more failure: doubled, shortened by a random part, and never less than
    /// the receiver asked for.
    pub(super) fn next(&mut self, asked: Option<Duration>, random: f64) -> Duration {
        let doubled = WAIT_MIN.saturating_mul(1 << self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        let wait = doubled.min(WAIT_MAX).mul_f64(0.5 + random / 2.0);
        wait.max(asked.unwrap_or_default())
    }
}

/// A random number in 0..1, so that nodes that failed together do not try again together.
pub(super) fn random() -> f64 {
    // A hash of nothing under new random keys.
    (RandomState::new().hash_one(()) >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_and_end() {
        let mut backoff = Backoff::default();
        let waits: Vec<u128> = (0..8)
            .map(|_| backoff.next(None, 1.0).as_millis())
            .collect();
        assert_eq!(
            waits,
            [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]
        );
        backoff.reset();
        assert_eq!(backoff.next(None, 0.0), Duration::from_millis(500));
        let asked = Duration::from_secs(7);
        assert_eq!(backoff.next(Some(asked), 0.0), asked);
        for _ in 0..100 {
            assert!((0.0..1.0).contains(&random()));
        }
    }

    #[test]
    fn what_is_asked_for_is_bounded() {
        let check = |text: &'static str, expect: Option<u64>| {
            let headers = HeaderMap::from_iter([(
                HeaderName::from_static("retry-after"),
                HeaderValue::from_static(text),
            )]);
            assert_eq!(
                retry_after(&headers),
                expect.map(Duration::from_secs),
                "{text}"
            );
        };
        check("7", Some(7));
        check(" 7 ", Some(7));
        check("999999999", Some(300));
        check("-1", None);
        check("Wed, 21 Oct 2015 07:28:00 GMT", None);
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }

    #[test]
    fn a_complaint_is_one_short_line() {
        assert_eq!(complaint(b"out of order\x1b[31m\nmore"), "out of order[31m");
        assert_eq!(complaint(&[b'x'; 1000]).len(), COMPLAINT_CHARS_MAX);
        assert_eq!(complaint(b""), "");
    }
}
