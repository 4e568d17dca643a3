//! Demands for streams of other nodes: the agent has them mirrored for as long as a demand is held.
//!
//! They stand alone because the memory of this node does not have such streams yet: only the agent
//! can fetch them, so this is a request to it that stays open.

use std::io::{self, ErrorKind, Read as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use barograph_model::Selector;
use barograph_stream::AgentSocket;
use serde_json::Value as Json;
use thiserror::Error;

use crate::{Observer, http};

/// Longest wait for the agent's answer.
const ANSWER_WAIT: Duration = Duration::from_secs(5);

/// The reason why streams of another node are not demanded.
#[derive(Debug, Error)]
pub enum DemandError {
    /// The agent could not be reached, or its answer makes no sense.
    #[error("the agent does not answer: {0}")]
    Unreachable(#[source] io::Error),
    /// The agent refused it.
    #[error("{0}")]
    Refused(String),
}

/// A demand for streams of another node. Dropping it ends it.
#[derive(Debug)]
pub struct HeldDemand {
    stream: UnixStream,
}

impl Observer {
    /// Has the agent of this node mirror the streams of another node that match, until the result
    /// is dropped, beside those that `cluster.mirror` chooses. They come into memory within
    /// seconds.
    ///
    /// One user has at most eight such selectors at a time.
    pub fn demand(&self, node: &str, selector: &Selector) -> Result<HeldDemand, DemandError> {
        let path = format!(
            "/api/v1/demand?node={}&match={}",
            encoded(node),
            encoded(&selector.to_string())
        );
        let run_dir = self.home().run_dir();
        let opened = http::open(run_dir, AgentSocket::Read, &path, ANSWER_WAIT);
        let (stream, answer) = opened.map_err(DemandError::Unreachable)?;
        let body = String::from_utf8_lossy(&answer.body);
        let data = body.lines().find_map(|line| line.strip_prefix("data: "));
        let told: Json = serde_json::from_str(data.unwrap_or(&body)).unwrap_or_default();
        let refused = match answer.status {
            200 if told["held"] == true => return Ok(HeldDemand { stream }),
            200 => told["reason"].as_str(),
            _ => told["error"]["message"].as_str(),
        };
        let refused = refused.unwrap_or("the agent's answer makes no sense");
        Err(DemandError::Refused(refused.to_owned()))
    }
}

impl HeldDemand {
    /// Whether the agent still holds it. Ask every now and then: what the agent sends to keep the
    /// connection open is taken in here.
    pub fn is_held(&mut self) -> bool {
        let mut piece = [0; 4_096];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return e.kind() == ErrorKind::WouldBlock,
            }
        }
    }
}

/// A part of a query string, in which all but letters, digits and a few marks is encoded.
fn encoded(text: &str) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._".contains(byte);
    let encode = |byte: u8| match is_plain(&byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_encoded() {
        assert_eq!(encoded("disk.*{a=é}"), "disk.%2A%7Ba%3D%C3%A9%7D");
    }
}
