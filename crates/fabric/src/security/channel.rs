//! A channel between two nodes: messages that only the other node can read, and that only it can
//! have written.
//!
//! Both nodes derive the same two keys, one for each direction, from their key agreement (X25519,
//! HKDF-SHA256). A message is sealed by ChaCha20-Poly1305 with a number that is never used twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Prk, Salt};

/// Bytes of the number before a sealed message.
const NUMBER_BYTES: usize = 8;
/// Bytes by which a sealed message is longer than its contents.
pub(crate) const SEAL_BYTES: usize = NUMBER_BYTES + 16;
const CONTEXT: &[u8] = b"barograph fabric 1";

/// The keys of one pair of nodes, for one life of each.
pub(crate) struct Channel {
    send: LessSafeKey,
    receive: LessSafeKey,
    /// Number of the next message of this life of this node, to whichever node: a node that comes
    /// back gets the same keys, and no number may be used twice with a key.
    next: Arc<AtomicU64>,
}

impl Channel {
    /// Derives the keys from the secret that the two nodes agreed on. `ours` and `theirs` are the
    /// public keys of the two. All channels of one life of a node have one count of messages.
    pub(crate) fn new(
        agreed: &[u8; 32],
        (ours, theirs): (&[u8; 32], &[u8; 32]),
        next: &Arc<AtomicU64>,
    ) -> Option<Self> {
        let secret = Salt::new(HKDF_SHA256, CONTEXT).extract(agreed);
        Some(Self {
            send: key(&secret, ours, theirs)?,
            receive: key(&secret, theirs, ours)?,
            next: Arc::clone(next),
        })
    }

    /// Seals a message. `kind` is a word that the receiver must expect.
    pub(crate) fn seal(&self, kind: &str, message: &[u8]) -> Option<Vec<u8>> {
        let number = self.next.fetch_add(1, Ordering::Relaxed).to_le_bytes();
        let mut bytes = Vec::with_capacity(message.len() + SEAL_BYTES);
        bytes.extend_from_slice(&number);
        bytes.extend_from_slice(message);
        let contents = bytes.get_mut(NUMBER_BYTES..)?;
        let aad = Aad::from(kind.as_bytes());
        let tag = self
            .send
            .seal_in_place_separate_tag(nonce(number), aad, contents)
            .ok()?;
        bytes.extend_from_slice(tag.as_ref());
        Some(bytes)
    }

    /// Opens a message; `None` if it is not what the other node sealed.
    pub(crate) fn open(&self, kind: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        let (number, contents) = sealed.split_first_chunk()?;
        let mut bytes = contents.to_vec();
        let aad = Aad::from(kind.as_bytes());
        let opened = self.receive.open_in_place(nonce(*number), aad, &mut bytes);
        let length = opened.ok()?.len();
        bytes.truncate(length);
        Some(bytes)
    }
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Channel")
    }
}

/// The key for messages from the node of one public key to that of the other.
fn key(secret: &Prk, from: &[u8; 32], to: &[u8; 32]) -> Option<LessSafeKey> {
    let parts = [from.as_slice(), to.as_slice()];
    let output = secret.expand(&parts, &CHACHA20_POLY1305).ok()?;
    Some(LessSafeKey::new(UnboundKey::from(output)))
}

fn nonce(number: [u8; NUMBER_BYTES]) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&number);
    Nonce::assume_unique_for_key(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_other_node_opens_what_was_sealed() {
        let (agreed, a, b) = ([7; 32], [1; 32], [2; 32]);
        let next = Arc::default();
        let ours = Channel::new(&agreed, (&a, &b), &next).unwrap();
        let theirs = Channel::new(&agreed, (&b, &a), &Arc::default()).unwrap();
        for message in [b"".as_slice(), b"frame", &[9; 70_000]] {
            let sealed = ours.seal("data", message).unwrap();
            assert_eq!(sealed.len(), message.len() + SEAL_BYTES);
            assert_eq!(theirs.open("data", &sealed).as_deref(), Some(message));
            assert_eq!(theirs.open("ping", &sealed), None);
            assert_eq!(ours.open("data", &sealed), None, "it was not sent to us");
            for at in (0..sealed.len()).step_by(sealed.len().div_ceil(64)) {
                let mut changed = sealed.clone();
                changed[at] ^= 1;
                assert_eq!(theirs.open("data", &changed), None);
                assert_eq!(theirs.open("data", &sealed[..at]), None);
            }
        }
        let other = Channel::new(&[8; 32], (&b, &a), &Arc::default()).unwrap();
        assert_eq!(other.open("data", &ours.seal("data", b"x").unwrap()), None);
        // The node goes and comes back: the keys are the same, and the numbers go on.
        let again = Channel::new(&agreed, (&a, &b), &next).unwrap();
        let sealed = [&ours, &again, &ours].map(|channel| channel.seal("data", b"same").unwrap());
        for (at, one) in sealed.iter().enumerate() {
            assert_eq!(
                theirs.open("data", one).as_deref(),
                Some(b"same".as_slice())
            );
            let number = |sealed: &Vec<u8>| sealed[..NUMBER_BYTES].to_vec();
            let same = sealed.iter().filter(|other| number(other) == number(one));
            assert_eq!(same.count(), 1, "message {at}");
        }
    }
}
