//! Invitations: each admits one node, once, until it ends.

use std::collections::BTreeMap;

use barograph_fabric::transport::check_name;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use serde::{Deserialize, Serialize};

use crate::fault::MembershipFault;

/// Beginning of a token, with the version of its format.
const PREFIX: &str = "baro1.";
/// Most bytes of a token.
const TOKEN_BYTES_MAX: usize = 8 << 10;
const SECRET_BYTES: usize = 24;

/// Token that an invited node needs to join. Its text is secret until it was used.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Token {
    /// Name of the cluster.
    pub cluster: String,
    /// Name that the invited node will have.
    pub node: String,
    /// Address at which the invitation is answered.
    pub address: String,
    /// The authority's certificate (PEM), which the invited node believes from then on.
    pub(crate) authority: String,
    /// The secret of the invitation.
    pub(crate) secret: String,
    /// Time at which the invitation ends, ns since the epoch.
    pub expires_ts: i64,
}

impl Token {
    /// The token as text.
    pub fn text(&self) -> String {
        let json = serde_json::to_vec(self).unwrap_or_default();
        format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(json))
    }

    /// Reads the text of a token.
    pub fn read(text: &str) -> Result<Self, MembershipFault> {
        let text = text.trim();
        let encoded = text.strip_prefix(PREFIX);
        let encoded = encoded.filter(|_| text.len() <= TOKEN_BYTES_MAX);
        let json = encoded.and_then(|encoded| URL_SAFE_NO_PAD.decode(encoded).ok());
        let token = json.and_then(|json| serde_json::from_slice::<Self>(&json).ok());
        let token = token.ok_or(MembershipFault::Token)?;
        check_name(&token.cluster)?;
        check_name(&token.node)?;
        Ok(token)
    }
}

/// The invitations that are open.
#[derive(Debug, Default)]
pub struct Invitations {
    /// By the hash of the secret, so that looking one up tells nothing by the time that it takes.
    open: BTreeMap<Vec<u8>, Invitation>,
}

#[derive(Debug)]
struct Invitation {
    node: String,
    expires_ns: i64,
}

impl Invitations {
    /// Opens an invitation, and returns its secret.
    pub(crate) fn open(&mut self, node: &str, expires_ns: i64) -> Result<String, MembershipFault> {
        check_name(node)?;
        let mut secret = [0; SECRET_BYTES];
        let filled = SystemRandom::new().fill(&mut secret);
        filled.map_err(|_| MembershipFault::Random)?;
        let secret = URL_SAFE_NO_PAD.encode(secret);
        let node = node.to_owned();
        self.open
            .insert(hash(&secret), Invitation { node, expires_ns });
        Ok(secret)
    }

    /// Uses an invitation up. Returns the name of the node that it admits.
    pub(crate) fn redeem(&mut self, secret: &str, now_ns: i64) -> Option<String> {
        let invitation = self.open.remove(&hash(secret))?;
        (now_ns < invitation.expires_ns).then_some(invitation.node)
    }

    /// Removes the invitations that have ended by `now_ns`, and returns how many are left.
    pub(crate) fn left(&mut self, now_ns: i64) -> usize {
        self.open.retain(|_, one| now_ns < one.expires_ns);
        self.open.len()
    }
}

fn hash(secret: &str) -> Vec<u8> {
    digest(&SHA256, secret.as_bytes()).as_ref().to_vec()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_invitation_admits_once_and_ends() {
        let mut invitations = Invitations::default();
        let secret = invitations.open("b", 100).unwrap();
        let late = invitations.open("c", 50).unwrap();
        assert_eq!(invitations.redeem("guess", 10), None);
        assert_eq!(invitations.redeem(&secret, 99).as_deref(), Some("b"));
        assert_eq!(invitations.redeem(&secret, 99), None, "it was used");
        assert_eq!(invitations.redeem(&late, 50), None, "it has ended");
        assert_eq!(invitations.left(50), 0);
        assert!(invitations.open("../b", 100).is_err());
    }

    #[test]
    fn a_token_is_read_as_it_was_written_and_nothing_else_is() {
        let token = Token {
            cluster: "rack".into(),
            node: "b".into(),
            address: "10.0.0.1:7448".into(),
            authority: "pem".into(),
            secret: "secret".into(),
            expires_ts: 7,
        };
        let text = token.text();
        assert_eq!(Token::read(&format!(" {text}\n")).unwrap(), token);
        for wrong in [
            "",
            "baro1.",
            "baro1.e30",
            &text[1..],
            &text[..text.len() - 9],
        ] {
            assert!(Token::read(wrong).is_err(), "{wrong}");
        }
        let node = "../b".into();
        assert!(Token::read(&Token { node, ..token }.text()).is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(
            words in prop::collection::vec("[ -~]{0,20}|\\{|\\}|\"(cluster|node|secret)\"|:|,|7|null", 0..12),
        ) {
            let json = words.concat();
            let _ = Token::read(&json);
            let _ = Token::read(&format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(json)));
        }
    }
}
