//! The address of a peer: a host, and a port if TCP is to be used.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

/// Longest name of a host, in bytes: RFC 1035.
const HOST_BYTES_MAX: usize = 253;

/// A host and an optional port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PeerAddress {
    pub(super) host: Host,
    pub(super) port: Option<u16>,
}

/// The host of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Host {
    /// An address, with the interface if it is link-local; the port is unused.
    Ip(SocketAddr),
    /// A name that is to be looked up.
    Name(String),
}

impl PeerAddress {
    /// Parses an address: `10.0.0.2:22`, `10.0.0.2`, `[fd00::2]:22`, `fd00::2`, `[fe80::1%2]:22`,
    /// `node2:22`, `node2`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if let Ok(ip) = text.parse::<IpAddr>() {
            let host = Host::Ip(SocketAddr::new(ip, 0));
            return Ok(Self { host, port: None });
        }
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (inside, port) = rest.split_once(']').ok_or("has a [ and no ]")?;
                let with_port = format!("[{inside}]:0");
                let ip: SocketAddrV6 = with_port
                    .parse()
                    .map_err(|_| "has no IPv6 address between [ and ]")?;
                let port = match port {
                    "" => None,
                    port => Some(port.strip_prefix(':').ok_or("has no : behind ]")?),
                };
                (Host::Ip(ip.into()), port)
            }
            None => {
                let (host, port) = match text.split_once(':') {
                    Some((host, port)) => (host, Some(port)),
                    None => (text, None),
                };
                let host = match host.parse::<IpAddr>() {
                    Ok(ip) => Host::Ip(SocketAddr::new(ip, 0)),
                    Err(_) => Host::Name(name(host)?),
                };
                (host, port)
            }
        };
        let port = match port {
            Some(port) => {
                let number = port.parse::<u16>().ok().filter(|port| *port > 0);
                Some(number.ok_or("has no port from 1 to 65535 behind its last :")?)
            }
            None => None,
        };
        Ok(Self { host, port })
    }
}

/// Checks a host name: letters, digits, hyphens, dots and underscores, with at least one letter,
/// since a number is meant as an address.
fn name(host: &str) -> Result<String, String> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    let is_name = (1..=HOST_BYTES_MAX).contains(&host.len())
        && host.bytes().all(allowed)
        && !host.starts_with(['-', '.'])
        && host.bytes().any(|b| b.is_ascii_alphabetic());
    match is_name {
        true => Ok(host.to_owned()),
        false => Err("is no address and no name of a host".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_an_address() {
        let check = |text: &str, host: &str, port: Option<u16>| {
            let address = PeerAddress::parse(text).unwrap();
            let got = match &address.host {
                Host::Ip(ip) => ip.to_string(),
                Host::Name(name) => name.clone(),
            };
            assert_eq!((got.as_str(), address.port), (host, port), "{text}");
        };
        check("10.0.0.2:22", "10.0.0.2:0", Some(22));
        check("10.0.0.2", "10.0.0.2:0", None);
        check("[fd00::2]:22", "[fd00::2]:0", Some(22));
        check("[fd00::2]", "[fd00::2]:0", None);
        check("fd00::2", "[fd00::2]:0", None);
        check("[fe80::1%2]:22", "[fe80::1%2]:0", Some(22));
        check("node2.cluster:22", "node2.cluster", Some(22));
        check("node_2", "node_2", None);
    }

    #[test]
    fn what_is_none() {
        for text in [
            "",
            ":22",
            "node2:",
            "node2:0",
            "node2:65536",
            "node2:ssh",
            "node2:22:23",
            "[fd00::2",
            "[fd00::2]22",
            "[10.0.0.2]:22",
            "[node2]:22",
            "10.0.0.256",
            "10.0.0",
            "http://node2",
            "node 2",
            "-node",
            ".node",
            "knöten",
        ] {
            assert!(PeerAddress::parse(text).is_err(), "{text:?}");
        }
        assert!(PeerAddress::parse(&"n".repeat(254)).is_err());
    }
}
