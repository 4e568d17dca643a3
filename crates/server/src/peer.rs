//! Whose the other end of a loopback connection is, as the kernel lists it.
//!
//! It stands alone because it reads `/proc/net/tcp` (`Documentation/networking/proc_net_tcp.rst`). A unix socket tells its peer's credentials;
//! over TCP the user of a local socket is in its row of that table.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Most bytes of a table that are searched: 6,900 rows. On a machine with more, who asks may stay unknown.
const TABLE_BYTES_MAX: u64 = 1 << 20;
const TABLES: [&str; 2] = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
/// Columns of a row.
const LOCAL: usize = 1;
const REMOTE: usize = 2;
const UID: usize = 7;

/// The user whose socket has this address and is connected to `ours`; none where it cannot be told.
pub fn user(peer: SocketAddr, ours: SocketAddr) -> Option<u32> {
    TABLES.into_iter().find_map(|table| {
        let file = File::open(table).ok()?;
        let (local, remote) = if table.ends_with('6') {
            (hex6(peer), hex6(ours))
        } else {
            (hex4(peer)?, hex4(ours)?)
        };
        let rows = BufReader::new(file.take(TABLE_BYTES_MAX)).lines();
        rows.map_while(Result::ok)
            .find_map(|row| of_row(&row, &local, &remote))
    })
}

fn of_row(row: &str, local: &str, remote: &str) -> Option<u32> {
    let mut fields = row.split_ascii_whitespace();
    let is_it = fields.nth(LOCAL)? == local && fields.next()? == remote;
    is_it
        .then(|| fields.nth(UID - REMOTE - 1)?.parse().ok())
        .flatten()
}

/// As `tcp` writes an address: words as they lie in memory, the port as a number.
fn hex4(address: SocketAddr) -> Option<String> {
    match address.ip() {
        IpAddr::V4(ip) => Some(hex(&ip.octets(), address.port())),
        IpAddr::V6(_) => None,
    }
}

/// As `tcp6` writes it; a socket for both families has the mapped form of an IPv4 address.
fn hex6(address: SocketAddr) -> String {
    let ip = match address.ip() {
        IpAddr::V4(ip) => Ipv4Addr::to_ipv6_mapped(&ip),
        IpAddr::V6(ip) => ip,
    };
    hex(&ip.octets(), address.port())
}

fn hex(octets: &[u8], port: u16) -> String {
    let mut text = String::new();
    for word in octets.chunks_exact(4) {
        let word = u32::from_ne_bytes(word.try_into().expect("four bytes"));
        // Writing to a String cannot fail.
        let _ = write!(text, "{word:08X}");
    }
    let _ = write!(text, ":{port:04X}");
    text
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn our_own_connection_is_ours() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                continue;
            };
            let ours = listener.local_addr().unwrap();
            let _client = TcpStream::connect(ours).unwrap();
            let (_served, peer) = listener.accept().unwrap();
            let uid = rustix::process::getuid().as_raw();
            assert_eq!(user(peer, ours), Some(uid), "{address}");
            assert_eq!(user(ours, ours), None, "{address}");
        }
    }

    #[test]
    fn rows() {
        let check = |row: &str, expect| {
            let found = of_row(row, "0100007F:A2C4", "0100007F:1B9E");
            assert_eq!(found, expect, "{row}");
        };
        let row = "   5: 0100007F:A2C4 0100007F:1B9E 01 00000000:00000000 00:00000000 00000000  1000        0 9021 1";
        check(row, Some(1000));
        check("  sl  local_address rem_address   st", None);
        check("", None);
        check("5: 0100007F:A2C4 0100007F:1B9E 01", None);
        check("5: 0100007F:A2C4 0100007F:1B9E 01 a b c x", None);
        check("5: 0100007F:A2C5 0100007F:1B9E 01 a b c 7", None);
    }
}
