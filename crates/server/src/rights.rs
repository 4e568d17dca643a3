//! Access rights of requests: the way a request came in, the control token, and the checks that
//! keep out web pages of other sites.

use std::fs::File;
use std::io::Read as _;

use axum::http::{HeaderMap, Uri, header};
use barograph_stream::RunDir;

use crate::ServerError;
use crate::fault::Fault;

/// Random bytes in a token.
const TOKEN_BYTES: usize = 32;
/// Only the agent's user can read the token.
const TOKEN_MODE: u32 = 0o600;

/// The way on which a request came in, which decides its rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessWay {
    /// Loopback TCP: may read, and may control with the token.
    Tcp,
    /// `read.sock`: may read.
    ReadSocket,
    /// `control.sock`, used by the agent's user or root: may read and control.
    ControlSocket,
    /// `control.sock`, used by another user: may do nothing.
    Stranger,
}

/// The process at the other end of a unix socket; none over TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeerPid(pub Option<u32>);

impl AccessWay {
    /// The way of a client of `control.sock`.
    pub(crate) fn of_control_peer(peer_uid: Option<u32>, our_uid: u32) -> Self {
        match peer_uid {
            Some(uid) if uid == our_uid || uid == 0 => Self::ControlSocket,
            _ => Self::Stranger,
        }
    }
}

/// The secret that a client on TCP sends in order to control; a new one is made at each start.
#[derive(Clone)]
pub(crate) struct Token(String);

impl Token {
    /// Makes a token and writes it to the run directory.
    pub(crate) fn publish(run_dir: &RunDir) -> Result<Self, ServerError> {
        let mut bytes = [0u8; TOKEN_BYTES];
        File::open("/dev/urandom")
            .and_then(|mut file| file.read_exact(&mut bytes))
            .map_err(|source| ServerError::Random { source })?;
        let text: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        let path = run_dir.control_token();
        let name = path
            .file_name()
            .and_then(|n| n.to_str())
            .expect("a plain file name");
        run_dir.publish(name, text.as_bytes(), TOKEN_MODE)?;
        Ok(Self(text))
    }

    fn is(&self, shown: &[u8]) -> bool {
        let ours = self.0.as_bytes();
        // The length is no secret, but the time must not tell how many bytes are right.
        let differing = ours
            .iter()
            .zip(shown)
            .fold(0, |acc, (a, b)| std::hint::black_box(acc | (a ^ b)));
        ours.len() == shown.len() && differing == 0
    }
}

/// Refuses a client that may not ask at all.
pub(crate) fn check_asker(way: AccessWay, uri: &Uri, headers: &HeaderMap) -> Result<(), Fault> {
    match way {
        AccessWay::Stranger => Err(Fault::refused(
            "control.sock serves the agent's user and root: use read.sock to read",
        )),
        AccessWay::ReadSocket | AccessWay::ControlSocket => Ok(()),
        AccessWay::Tcp => {
            let host = check_host(uri, headers)?;
            check_same_origin(uri, headers, host)
        }
    }
}

/// Refuses a client that may not control.
pub(crate) fn check_control(
    way: AccessWay,
    token: &Token,
    headers: &HeaderMap,
) -> Result<(), Fault> {
    match way {
        AccessWay::ControlSocket => Ok(()),
        AccessWay::ReadSocket => Err(Fault::unauthorized(
            "read.sock only reads: use control.sock",
        )),
        AccessWay::Stranger => Err(Fault::refused(
            "control.sock serves the agent's user and root",
        )),
        AccessWay::Tcp => {
            let shown = headers.get(header::AUTHORIZATION).map(|v| v.as_bytes());
            let bearer = shown.and_then(|v| {
                let (scheme, token) = v.split_at_checked(b"Bearer ".len())?;
                scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token)
            });
            match bearer {
                Some(shown) if token.is(shown.trim_ascii()) => Ok(()),
                Some(_) => Err(Fault::unauthorized(
                    "the control token is wrong (it changes at each start): read control.token \
                     in the run directory again",
                )),
                None => Err(Fault::unauthorized(
                    "this changes the agent: send Authorization: Bearer with the text of \
                     control.token in the run directory, or use control.sock",
                )),
            }
        }
    }
}

/// Refuses hosts other than loopback. A page of another site can make a browser send requests here
/// under a name that it has pointed at 127.0.0.1 (DNS rebinding), but the browser then sends that
/// name as Host.
fn check_host<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Result<&'a str, Fault> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return Err(Fault::usage("the request needs one Host header"));
    };
    let host = host
        .to_str()
        .map_err(|_| Fault::usage("the Host header is not ASCII"))?;
    let asked = [Some(host), uri.authority().map(|a| a.as_str())];
    if !asked.into_iter().flatten().all(is_loopback) {
        return Err(Fault::refused(
            "the Host header does not name loopback: ask for localhost, 127.0.0.1 or [::1]",
        ));
    }
    Ok(host)
}

fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    ["localhost", "127.0.0.1", "[::1]"]
        .iter()
        .any(|n| n.eq_ignore_ascii_case(name))
}

/// Refuses pages of other origins: they can neither read answers (there is no CORS) nor cause work.
fn check_same_origin(uri: &Uri, headers: &HeaderMap, host: &str) -> Result<(), Fault> {
    let foreign_origin = headers.get(header::ORIGIN).is_some_and(|origin| {
        let ours = origin.to_str().ok().and_then(|o| o.strip_prefix("http://"));
        !ours.is_some_and(|o| o.eq_ignore_ascii_case(host))
    });
    // A link on another site may lead to the page, but not to the API.
    let foreign_fetch = uri.path().starts_with("/api/")
        && headers
            .get("sec-fetch-site")
            .is_some_and(|site| site != "same-origin" && site != "none");
    if foreign_origin || foreign_fetch {
        return Err(Fault::refused("requests of other sites' pages are refused"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts() {
        let check = |host: &str, expect: bool| assert_eq!(is_loopback(host), expect, "{host}");
        for good in [
            "localhost",
            "LocalHost:7070",
            "127.0.0.1",
            "127.0.0.1:1",
            "[::1]",
            "[::1]:7070",
        ] {
            check(good, true);
        }
        for bad in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil",
            "::1",
            "[::1",
            "localhost:x",
            "evil:7070",
            "10.0.0.1",
        ] {
            check(bad, false);
        }
    }

    #[test]
    fn peers_of_the_control_socket() {
        let check = |peer, ours, expect| assert_eq!(AccessWay::of_control_peer(peer, ours), expect);
        check(Some(1000), 1000, AccessWay::ControlSocket);
        check(Some(0), 1000, AccessWay::ControlSocket);
        check(Some(0), 0, AccessWay::ControlSocket);
        check(Some(1001), 1000, AccessWay::Stranger);
        check(Some(1000), 0, AccessWay::Stranger);
        check(None, 1000, AccessWay::Stranger);
    }

    #[test]
    fn tokens_compare_whole() {
        let token = Token("ab01".into());
        for (shown, expect) in [
            ("ab01", true),
            ("ab0", false),
            ("ab011", false),
            ("", false),
            ("bb01", false),
        ] {
            assert_eq!(token.is(shown.as_bytes()), expect, "{shown}");
        }
    }
}
