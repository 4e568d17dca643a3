//! Posts the body of an action to a receiver, and tells what its answer means for the action.

use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;
use ureq::http::header::RETRY_AFTER;
use ureq::http::{HeaderMap, StatusCode, Uri};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Proxy};

use crate::queue::{ActionFailure, ActionOutcome, AttemptReach, RepeatWish};

/// Most bytes of an address.
const URL_BYTES_MAX: usize = 8 << 10;

/// Where webhooks may go, and their bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookConfig {
    /// Hosts to which requests may go, as `host`, which allows each port, or `host:port`. If there
    /// is none, no request is made.
    pub hosts: Vec<String>,
    /// Longest time of a request, from the look-up of the name to the end of the answer.
    pub time_max: Duration,
    /// Longest time until a connection is made.
    pub connect_time_max: Duration,
    /// Most bytes of an answer that are read; its end is kept with the action.
    pub answer_bytes_max: u64,
    /// Longest wait that a receiver can ask for.
    pub asked_wait_max: Duration,
    /// Certificates by which receivers are known (PEM), in place of the usual ones.
    pub ca_file: Option<PathBuf>,
    /// Address of a proxy.
    pub proxy: Option<String>,
}

impl Default for WebhookConfig {
    fn default() -> Self {
        Self {
            hosts: Vec::new(),
            time_max: Duration::from_secs(30),
            connect_time_max: Duration::from_secs(10),
            answer_bytes_max: 16 << 10,
            asked_wait_max: Duration::from_secs(3_600),
            ca_file: None,
            proxy: None,
        }
    }
}

impl WebhookConfig {
    /// Checks whether a request may go to an address.
    ///
    /// # Errors
    ///
    /// It may not, for this reason.
    pub fn check(&self, url: &str) -> Result<(), String> {
        if url.len() > URL_BYTES_MAX {
            return Err(format!(
                "the address has {} bytes, of at most {URL_BYTES_MAX}",
                url.len()
            ));
        }
        let uri: Uri = url
            .parse()
            .map_err(|_| "the address is not valid".to_owned())?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            return Err("the address is neither http nor https".to_owned());
        }
        let authority = uri.authority().map(|it| it.as_str().to_lowercase());
        let authority = authority.unwrap_or_default();
        if authority.contains('@') {
            return Err("the address has a user name, which is not sent".to_owned());
        }
        let host = uri.host().unwrap_or_default().to_lowercase();
        let is_one = |allowed: &str| {
            [&host, &authority]
                .iter()
                .any(|it| it.eq_ignore_ascii_case(allowed))
        };
        match self.hosts.iter().any(|it| is_one(it)) {
            true => Ok(()),
            false => Err(format!("{authority} is not among the allowed hosts")),
        }
    }
}

/// The reason why webhooks cannot be set up.
#[derive(Debug, Error)]
pub enum WebhookFault {
    /// The certificates cannot be read.
    #[error("ca_file {path}: {reason}")]
    Certificates {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The address of the proxy is none.
    #[error("proxy {0}: not an address")]
    Proxy(String),
}

/// Posts webhooks.
pub struct WebhookSender {
    agent: Agent,
    config: WebhookConfig,
}

impl WebhookSender {
    /// A sender with these bounds. No connection is made yet.
    ///
    /// # Errors
    ///
    /// Certificates cannot be read, or the address of the proxy is none.
    pub fn new(config: &WebhookConfig) -> Result<Self, WebhookFault> {
        let proxy = config.proxy.as_ref();
        let proxy =
            proxy.map(|text| Proxy::new(text).map_err(|_| WebhookFault::Proxy(text.clone())));
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            // An answer cannot lead to a host that is not allowed.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_global(Some(config.time_max))
            .timeout_connect(Some(config.connect_time_max))
            .user_agent(concat!("barograph/", env!("CARGO_PKG_VERSION")))
            .tls_config(TlsConfig::builder().root_certs(roots(config)?).build())
            .proxy(proxy.transpose()?)
            .build()
            .new_agent();
        Ok(Self {
            agent,
            config: config.clone(),
        })
    }

    /// Posts a body of JSON. `key` is the idempotency key of the action, which the receiver gets as
    /// the header `Idempotency-Key`.
    pub fn post(&self, url: &str, key: &str, body: &[u8]) -> ActionOutcome {
        if let Err(reason) = self.config.check(url) {
            return failed(
                reason,
                Vec::new(),
                RepeatWish::Never,
                AttemptReach::NotBegun,
            );
        }
        let request = self
            .agent
            .post(url)
            .header("Content-Type", "application/json");
        let sent = request.header("Idempotency-Key", key).send(body);
        let mut response = match sent {
            Ok(response) => response,
            Err(error) => {
                let repeat = match error {
                    ureq::Error::BadUri(_) | ureq::Error::Http(_) => RepeatWish::Never,
                    _ => RepeatWish::Later,
                };
                let reach = reach(&error);
                return failed(error.to_string(), Vec::new(), repeat, reach);
            }
        };
        // An answer that is too long or broken does not change what the status says.
        let body = response
            .body_mut()
            .with_config()
            .limit(self.config.answer_bytes_max);
        let answer = body.read_to_vec().unwrap_or_default();
        let status = response.status();
        let repeat = match status {
            _ if status.is_success() => return ActionOutcome::Done { output: answer },
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS => {
                self.later(response.headers())
            }
            _ if status.is_server_error() => self.later(response.headers()),
            _ => RepeatWish::Never,
        };
        let reason = match status.is_redirection() {
            true => format!("the receiver answered {status}, and redirections are not followed"),
            false => format!("the receiver answered {status}"),
        };
        failed(reason, answer, repeat, AttemptReach::Begun)
    }

    /// The wait that the receiver asks for, in seconds. A date in its place is rare, and the usual
    /// wait does for it.
    fn later(&self, headers: &HeaderMap) -> RepeatWish {
        let asked = headers
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok());
        let asked = asked.and_then(|text| text.trim().parse().ok());
        match asked.map(|seconds| Duration::from_secs(seconds).min(self.config.asked_wait_max)) {
            Some(wait) => RepeatWish::NotBefore(i64::try_from(wait.as_nanos()).unwrap_or(i64::MAX)),
            None => RepeatWish::Later,
        }
    }
}

/// Whether the receiver may have acted on a request that has failed.
fn reach(error: &ureq::Error) -> AttemptReach {
    match error {
        ureq::Error::HostNotFound | ureq::Error::ConnectionFailed | ureq::Error::BadUri(_) => {
            AttemptReach::NotBegun
        }
        ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve) => {
            AttemptReach::NotBegun
        }
        ureq::Error::Io(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
            AttemptReach::NotBegun
        }
        _ => AttemptReach::Begun,
    }
}

fn failed(
    reason: String,
    output: Vec<u8>,
    repeat: RepeatWish,
    reach: AttemptReach,
) -> ActionOutcome {
    ActionOutcome::Failed(ActionFailure {
        reason,
        output,
        repeat,
        reach,
    })
}

fn roots(config: &WebhookConfig) -> Result<RootCerts, WebhookFault> {
    let Some(path) = &config.ca_file else {
        return Ok(RootCerts::WebPki);
    };
    let fault = |reason: String| WebhookFault::Certificates {
        path: path.clone(),
        reason,
    };
    let pem = std::fs::read(path).map_err(|error| fault(error.to_string()))?;
    let items = parse_pem(&pem).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    });
    let certificates: Vec<Certificate<'static>> = items.collect();
    match certificates.is_empty() {
        true => Err(fault("it holds no certificate (PEM)".to_owned())),
        false => Ok(RootCerts::new_with_certs(&certificates)),
    }
}
