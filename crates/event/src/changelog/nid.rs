//! The network identifiers (NIDs) of Lustre, which tell the client that caused an event.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Bytes of a NID in a record.
pub(crate) const NID_BYTES: usize = 24;
/// Bytes of those that are used of a NID with a large address.
const LARGE_BYTES: usize = 20;

/// Networks by number, with their names, and whether addresses are those of IP.
const NETWORKS: &[(u16, &str, bool)] = &[
    (2, "tcp", true),
    (5, "o2ib", true),
    (9, "lo", false),
    (10, "ra", true),
    (13, "gni", false),
    (14, "gip", true),
    (15, "ptlf", false),
    (16, "kfi", false),
];

/// The network identifier of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nid {
    /// The form of one number: network type and number, and an address of 32 bits.
    Small(u64),
    /// The form with room for an address of IPv6 (`struct lnet_nid`, flag `CLFE_NID_BE`).
    Large([u8; LARGE_BYTES]),
}

impl Nid {
    /// Reads the extension of a record.
    pub(crate) fn from_bytes(bytes: &[u8; NID_BYTES], is_large: bool) -> Self {
        let [a, b, c, d, e, f, g, h, ..] = *bytes;
        if !is_large {
            return Self::Small(u64::from_ne_bytes([a, b, c, d, e, f, g, h]));
        }
        let mut large = [0; LARGE_BYTES];
        large.copy_from_slice(&bytes[..LARGE_BYTES]);
        Self::Large(large)
    }

    /// The extension of a record.
    pub(crate) fn to_bytes(self) -> [u8; NID_BYTES] {
        let mut bytes = [0; NID_BYTES];
        match self {
            Self::Small(number) => bytes[..8].copy_from_slice(&number.to_ne_bytes()),
            Self::Large(large) => bytes[..LARGE_BYTES].copy_from_slice(&large),
        }
        bytes
    }

    /// Reads the text `10.128.11.159@tcp` or `0@<0:0>` that `lfs changelog` prints.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, network) = text.rsplit_once('@')?;
        if let Some(numbers) = network.strip_prefix('<').and_then(|n| n.strip_suffix('>')) {
            let (kind, number) = numbers.split_once(':')?;
            let address = u32::from_str_radix(address, 16).ok()?;
            return Some(small(kind.parse().ok()?, number.parse().ok()?, address));
        }
        let mut known = NETWORKS.iter().filter_map(|(kind, name, is_ip)| {
            let number = network.strip_prefix(name)?;
            let number = if number.is_empty() {
                Some(0)
            } else {
                number.parse().ok()
            };
            Some((*kind, number?, *is_ip))
        });
        let (kind, number, is_ip) = known.next_back()?;
        if !is_ip {
            return Some(small(kind, number, address.parse().ok()?));
        }
        if let Ok(address) = address.parse::<Ipv4Addr>() {
            return Some(small(kind, number, address.into()));
        }
        let address: Ipv6Addr = address.parse().ok()?;
        let mut large = [0; LARGE_BYTES];
        large[0] = 12;
        large[1] = u8::try_from(kind).ok()?;
        large[2..4].copy_from_slice(&number.to_be_bytes());
        large[4..].copy_from_slice(&address.octets());
        Some(Self::Large(large))
    }
}

fn small(kind: u16, number: u16, address: u32) -> Nid {
    Nid::Small(u64::from(kind) << 48 | u64::from(number) << 32 | u64::from(address))
}

impl fmt::Display for Nid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, number, address) = match *self {
            Self::Small(nid) => ((nid >> 48) as u16, (nid >> 32) as u16, nid as u32),
            Self::Large([extra, kind, number0, number1, a, b, c, d, rest @ ..]) => {
                let number = u16::from_be_bytes([number0, number1]);
                if extra != 0 {
                    let mut octets = [0; 16];
                    octets[..4].copy_from_slice(&[a, b, c, d]);
                    octets[4..].copy_from_slice(&rest);
                    write!(f, "{}", Ipv6Addr::from(octets))?;
                    return network(f, kind.into(), number);
                }
                (kind.into(), number, u32::from_be_bytes([a, b, c, d]))
            }
        };
        match NETWORKS.iter().find(|(of, ..)| *of == kind) {
            Some((.., true)) => write!(f, "{}", Ipv4Addr::from(address))?,
            Some(_) => write!(f, "{address}")?,
            None => write!(f, "{address:x}")?,
        }
        network(f, kind, number)
    }
}

fn network(f: &mut fmt::Formatter<'_>, kind: u16, number: u16) -> fmt::Result {
    match NETWORKS.iter().find(|(of, ..)| *of == kind) {
        Some((_, name, _)) if number == 0 => write!(f, "@{name}"),
        Some((_, name, _)) => write!(f, "@{name}{number}"),
        None => write!(f, "@<{kind}:{number}>"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts_of_nids() {
        for text in [
            "10.128.11.159@tcp",
            "172.31.39.56@tcp1",
            "10.0.0.1@o2ib",
            "10.0.0.1@o2ib3",
            "0@lo",
            "77@gni4",
            "0@<0:0>",
            "a0b@<99:7>",
            "fe80::1@tcp2",
        ] {
            let nid = Nid::parse(text).unwrap();
            assert_eq!(nid.to_string(), text);
            let is_large = matches!(nid, Nid::Large(_));
            assert_eq!(Nid::from_bytes(&nid.to_bytes(), is_large), nid);
        }
        for text in ["", "@", "10.0.0.1", "10.0.0.1@", "x@tcp", "1@tcpx", "1@<1>"] {
            assert_eq!(Nid::parse(text), None, "{text}");
        }
        let large = Nid::from_bytes(
            &[
                0, 2, 0, 1, 10, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
            ],
            true,
        );
        assert_eq!(large.to_string(), "10.0.0.9@tcp1");
    }

    proptest! {
        #[test]
        fn any_nid_has_a_text(bytes: [u8; NID_BYTES], is_large: bool) {
            let text = Nid::from_bytes(&bytes, is_large).to_string();
            prop_assert!(text.contains('@'));
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,40}") {
            let nid = Nid::parse(&text);
            if let Some(nid) = nid {
                prop_assert!(nid.to_string().contains('@'));
            }
        }
    }
}
