//! The keys of messages and of hellos. Any peer may have made a key, so each is checked.

use barograph_stream::Incarnation;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::{Hello, check_name};
use crate::security::PROOF_BYTES_MAX;

/// First word of all keys.
pub(super) const ROOT: &str = "barograph";

impl Hello {
    /// The key of the liveliness token of the node, with its proof if it has one.
    pub fn key(&self, proof: Option<&[u8]>) -> String {
        let Self {
            version,
            incarnation,
            start_ns,
            cluster,
            node,
        } = self;
        let key = format!("{ROOT}/node/{version}/{cluster}/{node}/{incarnation}/{start_ns}");
        match proof {
            Some(proof) => format!("{key}/{}", URL_SAFE_NO_PAD.encode(proof)),
            None => key,
        }
    }

    /// Reads the key of a liveliness token, which anybody may have made: the hello and its proof.
    /// `None` if [`Self::key`] would not have written it so.
    pub fn of_key(key: &str) -> Option<(Self, Option<Vec<u8>>)> {
        let rest = key.strip_prefix(ROOT)?.strip_prefix("/node/")?;
        let words: Vec<&str> = rest.splitn(7, '/').collect();
        let (words, proof) = words.split_at_checked(5)?;
        let [version, cluster, node, incarnation, start_ns] = *words else {
            return None;
        };
        let proof = match *proof {
            [] => None,
            [text] if text.len() <= 2 * PROOF_BYTES_MAX => Some(URL_SAFE_NO_PAD.decode(text).ok()?),
            _ => return None,
        };
        check_name(cluster).ok()?;
        check_name(node).ok()?;
        let number = u128::from_str_radix(incarnation, 16).ok()?;
        let hello = Self {
            version: version.parse().ok()?,
            incarnation: Incarnation(number.to_be_bytes()),
            start_ns: start_ns.parse().ok()?,
            cluster: cluster.into(),
            node: node.into(),
        };
        (hello.key(proof.as_deref()) == key).then_some((hello, proof))
    }
}

/// The key of a message to a node.
pub(super) fn message_key(own: &Hello, to: &str, kind: &str) -> String {
    let Hello {
        cluster,
        node,
        incarnation,
        ..
    } = own;
    format!("{ROOT}/to/{cluster}/{to}/{kind}/{node}/{incarnation}")
}

/// The key at which a node answers with the newest list of revoked certificates; of all nodes of
/// the cluster if `node` is `*`.
pub(super) fn list_key(cluster: &str, node: &str) -> String {
    format!("{ROOT}/revoked/{cluster}/{node}")
}

/// The kind of a message, its sender, and the sender's incarnation.
pub(super) fn words_of(key: &str) -> (&str, &str, &str) {
    let mut words = key.rsplit('/');
    let mut word = || words.next().unwrap_or_default();
    let (incarnation, from, kind) = (word(), word(), word());
    (kind, from, incarnation)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_read_of_a_key_is_what_it_says(
            words in prop::collection::vec("[ -~]{0,20}|rack|a|1|0a{31}|[0-9a-f]{32}|AAAA", 0..8),
        ) {
            let tail = words.join("/");
            for key in [tail.clone(), format!("barograph/node/1/rack/a/{tail}")] {
                if let Some((hello, proof)) = Hello::of_key(&key) {
                    prop_assert_eq!(hello.key(proof.as_deref()), key);
                }
            }
        }
    }

    #[test]
    fn keys_say_what_hellos_say() {
        let hello = Hello {
            version: 1,
            incarnation: Incarnation([0x0a; 16]),
            start_ns: -7,
            cluster: "rack.1".into(),
            node: "n_1-b".into(),
        };
        let proven = hello.key(Some(&[0xfe; 100]));
        assert_eq!(
            Hello::of_key(&proven),
            Some((hello.clone(), Some(vec![0xfe; 100])))
        );
        let key = hello.key(None);
        assert_eq!(Hello::of_key(&key), Some((hello.clone(), None)));
        let check = |from: &str, to: &str| assert_eq!(Hello::of_key(&key.replace(from, to)), None);
        check("node/1", "node/300");
        check("node/1", "node/01");
        check("0a0a", "0A0A");
        check("/-7", "");
        check("/-7", "/-7/8");
        check("/-7", "/-7/AAA/AAA");
        check("n_1-b", "-b");
        check("barograph", "barometer");
        let key = message_key(&hello, "b", "data");
        let incarnation = hello.incarnation.to_string();
        assert_eq!(words_of(&key), ("data", "n_1-b", &*incarnation));
    }
}
