//! Addresses of servers and maps of them as people and programs write them.

use std::net::SocketAddr;
use std::path::Path;
use std::str::FromStr;

use super::config::{ServerAddress, StagingMap};
use crate::error::StagingError;

/// What is said of an address that is none.
const EXPECTED: &str = "give the absolute path of a unix socket, or an address and a port of TCP, \
                        as 10.0.0.3:7400";

impl FromStr for ServerAddress {
    type Err = StagingError;

    /// The absolute path of a unix socket, or the number and port of an address of TCP.
    fn from_str(text: &str) -> Result<Self, StagingError> {
        if Path::new(text).is_absolute() && !text.contains('\0') {
            return Ok(Self::Unix(text.into()));
        }
        let address = SocketAddr::from_str(text);
        let wrong = |_| StagingError::Config(format!("{text:?} is no address: {EXPECTED}"));
        address.map(Self::Tcp).map_err(wrong)
    }
}

impl StagingMap {
    /// The map of an epoch from texts: an address, whose server has the number of its place in the
    /// list (from 0 on), or `NUMBER=ADDRESS`. All clients have to give a server the same number,
    /// since blocks are placed by it.
    ///
    /// # Errors
    ///
    /// A text is no address, two servers have one number, or there is no server.
    pub fn parse<'a>(
        epoch: u64,
        servers: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, StagingError> {
        let mut map = Self {
            epoch,
            ..Self::default()
        };
        for (place, text) in servers.into_iter().enumerate() {
            let numbered = text.split_once('=').and_then(|(number, address)| {
                let number: u64 = number.parse().ok()?;
                Some((number, address))
            });
            let (number, address) = numbered.unwrap_or((place as u64, text));
            if map.servers.insert(number, address.parse()?).is_some() {
                let text = format!("two servers have the number {number}: give each its own");
                return Err(StagingError::Config(text));
            }
        }
        match map.servers.is_empty() {
            true => Err(StagingError::Config("there are no servers".into())),
            false => Ok(map),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_have_the_numbers_that_are_given_or_that_of_their_place() {
        let unix = |path: &str| ServerAddress::Unix(path.into());
        let tcp = |text: &str| ServerAddress::Tcp(text.parse().expect("an address"));
        for (texts, expect) in [
            (
                &["/a", "10.0.0.3:7400"][..],
                Ok(vec![(0, unix("/a")), (1, tcp("10.0.0.3:7400"))]),
            ),
            (
                &["3=/a=b", "[::1]:1"],
                Ok(vec![(1, tcp("[::1]:1")), (3, unix("/a=b"))]),
            ),
            (&["/a=b"], Ok(vec![(0, unix("/a=b"))])),
            (&["1=/a", "/b"], Err("the number 1")),
            (&[], Err("no servers")),
            (&["a"], Err("no address")),
            (&[""], Err("no address")),
            (&["/a\0b"], Err("no address")),
            (&["-1=/a"], Err("no address")),
            (&["host:7400"], Err("no address")),
        ] {
            let map = StagingMap::parse(7, texts.iter().copied());
            match (map, expect) {
                (Ok(map), Ok(servers)) => {
                    assert_eq!(map.servers.into_iter().collect::<Vec<_>>(), servers);
                }
                (Err(error), Err(text)) => assert!(error.to_string().contains(text), "{error}"),
                (map, expect) => panic!("{texts:?}: {map:?}, not {expect:?}"),
            }
        }
    }
}
