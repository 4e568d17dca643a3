//! Whether anybody answers at the addresses of `cluster.peers`.
//!
//! The agent does not know: zenoh tells the addresses at which links ended, and not those at which
//! they began, and of two nodes that name each other only one opens the link. So `baro doctor`
//! connects.

use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use serde_json::Value as Json;

/// Most addresses that are asked.
const ADDRESSES_MAX: usize = 16;
/// Longest wait for a connection.
const PATIENCE: Duration = Duration::from_secs(2);

/// An address of `cluster.peers`, and what has come of a connection to it.
pub(super) struct PeerAddress {
    pub(super) address: String,
    /// The reason why there is no connection; `None` if there was one.
    pub(super) fault: Option<String>,
}

/// Connects to the addresses that the document of the cluster names, to all at the same time.
pub(super) fn ask(status: &Json) -> Vec<PeerAddress> {
    let addresses = status["peer_addresses"].as_array().into_iter().flatten();
    let addresses = addresses.filter_map(Json::as_str).take(ADDRESSES_MAX);
    let addresses: Vec<String> = addresses.map(str::to_owned).collect();
    std::thread::scope(|threads| {
        let asked: Vec<_> = addresses
            .into_iter()
            .map(|address| {
                threads.spawn(move || PeerAddress {
                    fault: connect(&address).err().map(|error| error.to_string()),
                    address,
                })
            })
            .collect();
        asked
            .into_iter()
            .filter_map(|one| one.join().ok())
            .collect()
    })
}

/// Connects to the first address of a name that answers.
fn connect(address: &str) -> std::io::Result<()> {
    let mut outcome = Err(std::io::Error::other("the name has no address"));
    for address in address.to_socket_addrs()? {
        outcome = TcpStream::connect_timeout(&address, PATIENCE).map(drop);
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use serde_json::json;

    use super::*;

    #[test]
    fn who_answers_and_who_does_not() {
        let here = TcpListener::bind("127.0.0.1:0").unwrap();
        let gone = TcpListener::bind("127.0.0.1:0").unwrap();
        let [here_address, gone_address] =
            [&here, &gone].map(|listener| listener.local_addr().unwrap().to_string());
        drop(gone);
        let none = "name.invalid:7447";
        let status = json!({"peer_addresses": [here_address, gone_address, none]});
        let asked = ask(&status);
        let answers = asked.iter().map(|one| (&*one.address, one.fault.is_none()));
        let answers: Vec<_> = answers.collect();
        let expect = [
            (&*here_address, true),
            (&*gone_address, false),
            (none, false),
        ];
        assert_eq!(answers, expect);
        let many = vec![here_address; 2 * ADDRESSES_MAX];
        assert_eq!(ask(&json!({"peer_addresses": many})).len(), ADDRESSES_MAX);
        assert!(ask(&json!({})).is_empty());
    }
}
