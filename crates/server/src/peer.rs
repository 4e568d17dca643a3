//! The user at the other end of a loopback TCP connection, as the kernel knows it.
//!
//! It stands alone because it uses netlink (`sock_diag(7)`): one message asks for the one socket at
//! the other end, so other users' sockets change neither the answer nor its cost. A unix socket has
//! its peer's credentials itself.

use std::io;
use std::net::{IpAddr, SocketAddr};

use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};

/// `SOCK_DIAG_BY_FAMILY`
const BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST`
const REQUEST: u16 = 1;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IPPROTO_TCP: u8 = 6;
/// `INET_DIAG_NOCOOKIE`: any socket with these addresses.
const NO_COOKIE: [u8; 8] = [0xff; 8];
/// States of a socket of a living program, as bits: established, or one side has closed. Listening
/// sockets and closed ones have no user.
const STATES: u32 = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 8;
/// Bytes of `struct nlmsghdr`.
const HEAD: usize = 16;
/// Bytes of `struct inet_diag_req_v2`.
const QUESTION: usize = 56;
/// Offsets in `struct inet_diag_msg` of the state, the user and the inode.
const STATE_AT: usize = HEAD + 1;
const UID_AT: usize = HEAD + 64;
const INODE_AT: usize = HEAD + 68;
const ANSWER: usize = HEAD + 72;

/// The user whose socket has the address `peer` and is connected to `ours`; none if it is unknown.
/// A socket that its program has closed belongs to nobody: the kernel then has no user for it and
/// returns 0.
pub(crate) fn user(peer: SocketAddr, ours: SocketAddr) -> Option<u32> {
    ask(peer, ours).ok().flatten()
}

fn ask(peer: SocketAddr, ours: SocketAddr) -> io::Result<Option<u32>> {
    let kind = SocketType::DGRAM;
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::NETLINK, kind, flags, Some(SOCK_DIAG))?;
    let kernel = SocketAddrNetlink::new(0, 0);
    for family in families(peer) {
        let question = question(family, peer, ours);
        sendto(&socket, &question, SendFlags::empty(), &kernel)?;
        let mut answer = [0_u8; 512];
        // The kernel has answered before `sendto` returns.
        let (bytes, _) = recv(&socket, &mut answer, RecvFlags::DONTWAIT)?;
        if let Some(uid) = answer.get(..bytes).and_then(read) {
            return Ok(Some(uid));
        }
    }
    Ok(None)
}

/// An IPv4 address may belong to a socket of either family.
fn families(peer: SocketAddr) -> &'static [u8] {
    match peer.ip() {
        IpAddr::V4(_) => &[AF_INET, AF_INET6],
        IpAddr::V6(_) => &[AF_INET6],
    }
}

/// Builds `struct nlmsghdr` and `struct inet_diag_req_v2` that ask for the socket with the peer's
/// address.
fn question(family: &u8, peer: SocketAddr, ours: SocketAddr) -> [u8; HEAD + QUESTION] {
    let mut bytes = [0_u8; HEAD + QUESTION];
    let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
    put(0, &((HEAD + QUESTION) as u32).to_ne_bytes());
    put(4, &BY_FAMILY.to_ne_bytes());
    put(6, &REQUEST.to_ne_bytes());
    put(HEAD, &[*family, IPPROTO_TCP]);
    put(HEAD + 4, &STATES.to_ne_bytes());
    put(HEAD + 8, &peer.port().to_be_bytes());
    put(HEAD + 10, &ours.port().to_be_bytes());
    put(HEAD + 12, &address(*family, peer.ip()));
    put(HEAD + 28, &address(*family, ours.ip()));
    put(HEAD + 48, &NO_COOKIE);
    bytes
}

/// An address in the form that a socket of the family has.
fn address(family: u8, ip: IpAddr) -> [u8; 16] {
    match (family, ip) {
        (AF_INET, IpAddr::V4(ip)) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&ip.octets());
            bytes
        }
        (_, IpAddr::V4(ip)) => ip.to_ipv6_mapped().octets(),
        (_, IpAddr::V6(ip)) => ip.octets(),
    }
}

/// The user in an answer; none if the answer is an error or its socket belongs to no program.
fn read(answer: &[u8]) -> Option<u32> {
    let number = |at: usize| {
        let bytes = answer.get(at..at + 4)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    };
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    if kind != BY_FAMILY || answer.len() < ANSWER {
        return None;
    }
    let state = u32::from(*answer.get(STATE_AT)?);
    let is_open = 1_u32.checked_shl(state).unwrap_or(0) & STATES != 0;
    (is_open && number(INODE_AT)? != 0)
        .then(|| number(UID_AT))
        .flatten()
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
            let client = TcpStream::connect(ours).unwrap();
            let (_served, peer) = listener.accept().unwrap();
            let uid = rustix::process::getuid().as_raw();
            assert_eq!(user(peer, ours), Some(uid), "{address}");
            assert_eq!(user(ours, ours), None, "{address}");
            // A client that has shut down writing still reads.
            client.shutdown(std::net::Shutdown::Write).unwrap();
            assert_eq!(user(peer, ours), Some(uid), "{address}");
        }
    }

    #[test]
    fn a_connection_that_was_closed_is_nobodys() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = listener.local_addr().unwrap();
        drop(TcpStream::connect(ours).unwrap());
        let (served, peer) = listener.accept().unwrap();
        assert_eq!(user(peer, ours), None, "its program has closed it");
        drop(served);
        // The socket now waits for stray packets, and the kernel's table lists it as root's.
        let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
        let port = format!(":{:04X} ", peer.port());
        assert!(table.contains(&port), "the kernel still knows it");
        assert_eq!(user(peer, ours), None);
    }

    #[test]
    fn answers() {
        let answer = |state: u8, uid: u32, inode: u32| {
            let mut bytes = [0_u8; ANSWER];
            bytes[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
            bytes[STATE_AT] = state;
            bytes[UID_AT..UID_AT + 4].copy_from_slice(&uid.to_ne_bytes());
            bytes[INODE_AT..INODE_AT + 4].copy_from_slice(&inode.to_ne_bytes());
            bytes
        };
        assert_eq!(read(&answer(1, 1000, 7)), Some(1000));
        assert_eq!(read(&answer(1, 0, 7)), Some(0));
        assert_eq!(read(&answer(1, 0, 0)), None, "no program has it");
        assert_eq!(read(&answer(6, 0, 7)), None, "it waits for stray packets");
        assert_eq!(read(&answer(10, 0, 7)), None, "it listens");
        assert_eq!(read(&answer(255, 0, 7)), None);
        assert_eq!(read(&answer(1, 1000, 7)[..ANSWER - 1]), None);
        assert_eq!(read(&[]), None);
    }
}
