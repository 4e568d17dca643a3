//! Which addresses are on this machine, and which are reached without encryption: the one rule by
//! which every part decides whether something secret may be sent there.

use core::net::IpAddr;

/// The scheme of addresses that are reached without encryption.
const HTTP: &str = "http:";

/// Whether a host is this machine: `localhost` or a loopback address, IPv6 with or without
/// brackets.
pub fn is_loopback(host: &str) -> bool {
    let bare = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(host);
    bare.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Whether an address is reached without encryption: its scheme is `http`.
pub fn is_http(url: &str) -> bool {
    without_scheme(url).is_some()
}

/// Whether an address is `http://` on this machine. An address with a user or a password is none:
/// `http://localhost:80@example.org` is on another machine.
pub fn is_local_http(url: &str) -> bool {
    let Some(place) = without_scheme(url).and_then(|rest| rest.strip_prefix("//")) else {
        return false;
    };
    let authority = place.split(['/', '?', '#']).next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(v6) => match v6.split_once(']') {
            Some((host, port)) if port.is_empty() || port.starts_with(':') => host,
            _ => return false,
        },
        None => authority.split(':').next().unwrap_or_default(),
    };
    !authority.contains('@') && is_loopback(host)
}

fn without_scheme(url: &str) -> Option<&str> {
    let (scheme, rest) = url.split_at_checked(HTTP.len())?;
    scheme.eq_ignore_ascii_case(HTTP).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_local() {
        for local in [
            "http://127.0.0.1:9000",
            "http://localhost/x",
            "HTTP://LocalHost",
            "http://[::1]:9000",
            "http://127.9.9.9",
            "http://localhost?x=@y",
        ] {
            assert!(is_http(local) && is_local_http(local), "{local}");
        }
        for other in [
            "http://10.0.0.1:9000",
            "http://localhost.example.org",
            "http://127.0.0.1.example.org",
            "http://[::2]",
            "http://[::1]x",
            "http://[::1",
            "http://localhost:80@example.org",
            "http://",
            "http:/localhost",
            "http:",
        ] {
            assert!(is_http(other) && !is_local_http(other), "{other}");
        }
        for encrypted in ["https://127.0.0.1:9000", "s3://b", "", "httpä://localhost"] {
            assert!(!is_http(encrypted) && !is_local_http(encrypted));
        }
    }

    #[test]
    fn hosts() {
        for host in ["localhost", "LOCALHOST", "127.0.0.1", "::1", "[::1]"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["", "[", "[::1", "::1]", "10.0.0.1", "localhost."] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
