//! Ways in which a node takes part in a cluster, and the configuration of zenoh that follows from
//! it, as text.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use barograph_model::NS_PER_MS;
use serde_json::{Value as Json, json};
use thiserror::Error;

use super::roster::HELLOS_MAX;
use super::{Hello, HelloFault};
use crate::frame::FRAME_BYTES_MAX;
use crate::security::{AUTHORITY_CERTIFICATE, Credentials, CredentialsFault, NODE_CERTIFICATE};

/// Batches of 64 KiB that may wait for one link, the most that zenoh allows.
const QUEUE_BATCHES: usize = 16;
/// Kinds of zenoh's messages that a node whose certificate was revoked may neither send nor get.
const MESSAGES: [&str; 6] = [
    "put",
    "delete",
    "declare_subscriber",
    "liveliness_token",
    "declare_liveliness_subscriber",
    "liveliness_query",
];

/// Configuration of a node's connection to its cluster.
#[derive(Clone, Debug)]
pub struct ZenohConfig {
    /// Facts that the node tells of itself.
    pub hello: Hello,
    /// Addresses, such as `127.0.0.1:7447`, at which other nodes reach this one.
    pub listen: Vec<String>,
    /// Addresses of nodes or of zenoh routers. Those that do not answer are tried again for ever.
    pub peers: Vec<String>,
    /// Time without a sign of life after which a node counts as gone, in ns.
    pub death_ns: i64,
    /// The node's certificates. Without them nothing is encrypted, and all addresses must be of
    /// this machine.
    pub credentials: Option<Arc<Credentials>>,
    /// The newest list of revoked certificates that the node has, so that it counts from the
    /// beginning.
    pub revocation_list: Option<Vec<u8>>,
}

/// The reason why a node cannot take part in a cluster.
#[derive(Debug, Error)]
pub enum ZenohFault {
    /// A name breaks the rules of names.
    #[error(transparent)]
    Name(#[from] HelloFault),
    /// An address is not allowed without certificates.
    #[error(
        "{address} is no address of this machine, like 127.0.0.1:7447, and this node has no \
         certificate: `baro cluster init` on one node and `baro cluster join` on the others make \
         them, and then messages between nodes are encrypted and may leave the machine"
    )]
    Address {
        /// The address.
        address: String,
    },
    /// An address is none.
    #[error("{address} is no address of a node, like login1:7447 or 10.0.0.1:7447")]
    NoAddress {
        /// The address.
        address: String,
    },
    /// The certificates cannot be used.
    #[error(transparent)]
    Credentials(#[from] CredentialsFault),
    /// The system has no random numbers.
    #[error("the system gives no random numbers")]
    Random,
    /// Zenoh refused.
    #[error("the fabric cannot be opened: {0}")]
    Zenoh(String),
}

/// The configuration of a session. Links to nodes with these certificates carry nothing.
pub(super) fn network_of(config: &ZenohConfig, revoked: &[String]) -> Result<String, ZenohFault> {
    let dir = config.credentials.as_ref().map(|found| found.dir.as_path());
    let lease_ms = (config.death_ns / NS_PER_MS).max(100);
    let protocol = if dir.is_some() { "tls" } else { "tcp" };
    let mut link = json!({
        "protocols": [protocol],
        "tx": {
            "lease": lease_ms,
            "keep_alive": 4,
            "queue": {"size": {"data": QUEUE_BATCHES}},
        },
        "rx": {"max_message_size": 2 * FRAME_BYTES_MAX},
    });
    if let Some(dir) = dir {
        link["tls"] = tls(dir);
    }
    let mut network = json!({
        "mode": "peer",
        "listen": {
            "endpoints": endpoints(&config.listen, dir.is_some())?,
            "exit_on_failure": true,
            "timeout_ms": 0,
        },
        "connect": {
            "endpoints": endpoints(&config.peers, dir.is_some())?,
            "exit_on_failure": false,
            "timeout_ms": -1,
            "retry": {"period_init_ms": 500, "period_max_ms": 4_000, "period_increase_factor": 2},
        },
        "scouting": {
            "multicast": {"enabled": false},
            "gossip": {"enabled": true},
        },
        "adminspace": {"enabled": false},
        "transport": {"unicast": {"max_sessions": HELLOS_MAX}, "link": link},
    });
    if !revoked.is_empty() {
        network["access_control"] = without(revoked);
    }
    Ok(network.to_string())
}

/// TLS with certificates of both ends. The name of the other end is not checked: an address says
/// nothing about a node, and who it is, it proves in its hello.
fn tls(dir: &Path) -> Json {
    let file = |name: &str| json!(dir.join(name).to_string_lossy());
    json!({
        "root_ca_certificate": file(AUTHORITY_CERTIFICATE),
        "enable_mtls": true,
        "listen_private_key": file(NODE_CERTIFICATE),
        "listen_certificate": file(NODE_CERTIFICATE),
        "connect_private_key": file(NODE_CERTIFICATE),
        "connect_certificate": file(NODE_CERTIFICATE),
        "verify_name_on_connect": false,
        "close_link_on_expiration": true,
    })
}

/// Access control that lets nothing through from or to certificates of these common names, which
/// are their serial numbers, but questions for the list of revoked certificates and the answers:
/// nothing else is asked for over zenoh.
fn without(revoked: &[String]) -> Json {
    let rule = |id: &str, flows: &[&str], messages: &[&str]| {
        json!({
            "id": id,
            "permission": "deny",
            "flows": flows,
            "messages": messages,
            "key_exprs": ["**"],
        })
    };
    json!({
        "enabled": true,
        "default_permission": "allow",
        "rules": [
            rule("nothing", &["ingress", "egress"], &MESSAGES),
            rule("no answers", &["ingress"], &["declare_queryable", "reply"]),
            rule("no questions", &["egress"], &["query"]),
        ],
        "subjects": [{"id": "revoked", "cert_common_names": revoked}],
        "policies": [{
            "rules": ["nothing", "no answers", "no questions"],
            "subjects": ["revoked"],
        }],
    })
}

/// Zenoh's names of these addresses. Without certificates they must be of this machine.
fn endpoints(addresses: &[String], has_certificates: bool) -> Result<Vec<String>, ZenohFault> {
    let endpoint = |address: &String| {
        let text = || address.escape_debug().take(128).collect();
        if has_certificates {
            let is_address = is_host_and_port(address);
            let fault = || ZenohFault::NoAddress { address: text() };
            return is_address
                .then(|| format!("tls/{address}"))
                .ok_or_else(fault);
        }
        let parsed = address.parse::<SocketAddr>();
        let is_here = parsed.is_ok_and(|parsed| parsed.ip().is_loopback());
        let fault = || ZenohFault::Address { address: text() };
        is_here.then(|| format!("tcp/{address}")).ok_or_else(fault)
    };
    addresses.iter().map(endpoint).collect()
}

/// Whether this is an address like `login1:7447`, `10.0.0.1:7447` or `[fd00::1]:7447`.
fn is_host_and_port(address: &str) -> bool {
    if address.parse::<SocketAddr>().is_ok() {
        return true;
    }
    let Some((host, port)) = address.rsplit_once(':') else {
        return false;
    };
    let is_of_host = |letter: char| letter.is_ascii_alphanumeric() || ".-_".contains(letter);
    !host.is_empty() && host.chars().all(is_of_host) && port.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_other_machines_need_certificates() {
        let check = |address: &str, open: Option<&str>, sealed: Option<&str>| {
            for (has_certificates, expect) in [(false, open), (true, sealed)] {
                let found = endpoints(&[address.to_owned()], has_certificates).ok();
                let expect = expect.map(|endpoint| vec![endpoint.to_owned()]);
                assert_eq!(found, expect, "{address}");
            }
        };
        let here = (Some("tcp/127.0.0.1:7447"), Some("tls/127.0.0.1:7447"));
        check("127.0.0.1:7447", here.0, here.1);
        check("[::1]:0", Some("tcp/[::1]:0"), Some("tls/[::1]:0"));
        check("0.0.0.0:7447", None, Some("tls/0.0.0.0:7447"));
        check("192.168.0.1:7447", None, Some("tls/192.168.0.1:7447"));
        check("login-1.site:7447", None, Some("tls/login-1.site:7447"));
        check("node", None, None);
        check("node:", None, None);
        check(":7447", None, None);
        check("node:70000", None, None);
        check("127.0.0.1:7447#iface=eth0", None, None);
        check("node/x:7447", None, None);
    }
}
