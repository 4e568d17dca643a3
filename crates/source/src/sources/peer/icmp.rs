//! Echo requests and replies of both versions of ICMP: a header of eight bytes and a cookie by
//! which the replies to this process are recognized.

use std::net::SocketAddr;

/// Length of a request or a reply.
pub(super) const ECHO_BYTES: usize = 8 + COOKIE_BYTES;
const COOKIE_BYTES: usize = 16;
const ECHO_REQUEST: u8 = 8;
const ECHO_REPLY: u8 = 0;
const ECHO_REQUEST_V6: u8 = 128;
const ECHO_REPLY_V6: u8 = 129;

/// The request that was sent, by which its reply is recognized.
#[derive(Clone, Copy, Debug)]
pub(super) struct Echo {
    is_v6: bool,
    /// Whether replies include their IP header, as they do on raw sockets of version 4.
    is_raw: bool,
    sequence: u16,
    cookie: [u8; COOKIE_BYTES],
}

impl Echo {
    pub(super) fn new(address: &SocketAddr, is_raw: bool, sequence: u16, cookie: u128) -> Self {
        Self {
            is_v6: address.is_ipv6(),
            is_raw,
            sequence,
            cookie: cookie.to_be_bytes(),
        }
    }

    /// The bytes of the request. The kernel replaces the identifier and checksum if the socket is
    /// not raw, and always the checksum of version 6.
    pub(super) fn request(&self) -> [u8; ECHO_BYTES] {
        let mut packet = [0; ECHO_BYTES];
        packet[0] = match self.is_v6 {
            true => ECHO_REQUEST_V6,
            false => ECHO_REQUEST,
        };
        packet[4..6].copy_from_slice(&self.cookie[..2]);
        packet[6..8].copy_from_slice(&self.sequence.to_be_bytes());
        packet[8..].copy_from_slice(&self.cookie);
        if !self.is_v6 {
            let sum = checksum(&packet);
            packet[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        packet
    }

    /// Whether these bytes are the reply to this request.
    pub(super) fn is_answered_by(&self, bytes: &[u8]) -> bool {
        let packet = match self.is_raw && !self.is_v6 {
            // The length of an IP header, in words, is the low half of its first byte.
            true => {
                let header = bytes.first().map_or(0, |b| usize::from(b & 0x0f) * 4);
                bytes.get(header.max(20)..).unwrap_or_default()
            }
            false => bytes,
        };
        let kind = match self.is_v6 {
            true => ECHO_REPLY_V6,
            false => ECHO_REPLY,
        };
        packet.len() >= ECHO_BYTES
            && packet[..2] == [kind, 0]
            && packet[6..8] == self.sequence.to_be_bytes()
            && packet[8..ECHO_BYTES] == self.cookie
    }
}

/// The checksum of RFC 1071.
fn checksum(packet: &[u8]) -> u16 {
    let words = packet.chunks(2);
    let words = words.map(|w| u32::from(w[0]) << 8 | u32::from(w.get(1).copied().unwrap_or(0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_of_a_packet_with_its_checksum_is_nought() {
        let address = "10.0.0.1:0".parse().unwrap();
        let packet = Echo::new(&address, true, 7, 0x0123_4567_89ab_cdef).request();
        assert_eq!(checksum(&packet), 0);
        // The example of RFC 1071, section 3, complemented.
        assert_eq!(
            checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]),
            !0xddf2
        );
    }

    #[test]
    fn only_the_own_reply_is_one() {
        for (address, raw) in [
            ("10.0.0.1:0", true),
            ("10.0.0.1:0", false),
            ("[::1]:0", true),
        ] {
            let address: SocketAddr = address.parse().unwrap();
            let echo = Echo::new(&address, raw, 7, 42);
            let header = match raw && address.is_ipv4() {
                true => vec![0x45; 20],
                false => Vec::new(),
            };
            let request = echo.request();
            let mut reply = request;
            reply[0] = if address.is_ipv6() { 129 } else { 0 };
            let whole = |packet: &[u8]| [&header[..], packet].concat();
            assert!(echo.is_answered_by(&whole(&reply)));
            assert!(!echo.is_answered_by(&whole(&request)), "its own request");
            for at in [0, 1, 6, 7, 8, ECHO_BYTES - 1] {
                let mut other = reply;
                other[at] ^= 1;
                assert!(!echo.is_answered_by(&whole(&other)), "byte {at}");
            }
            let whole = whole(&reply);
            for end in 0..whole.len() {
                assert!(!echo.is_answered_by(&whole[..end]), "cut at {end}");
            }
        }
    }
}
