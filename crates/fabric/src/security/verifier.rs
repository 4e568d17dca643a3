//! Proofs of who a node is: how a node makes its own, and how it checks those of others.
//!
//! A proof is the node's public key for the key agreement, a signature by the key of its
//! certificate over its hello and that key, and the certificate.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use barograph_model::NS_PER_S;
use ring::signature::KeyPair as _;
use rustls_pki_types::{CertificateDer, TrustAnchor, UnixTime};
use webpki::{
    EndEntityCert, KeyUsage, RevocationCheckDepth, RevocationOptionsBuilder, UnknownStatusPolicy,
};
use x509_parser::prelude::{FromDer as _, X509Certificate};
use x25519_dalek::{PublicKey, StaticSecret};

use super::PROOF_BYTES_MAX;
use super::channel::Channel;
use super::credentials::{Credentials, name_of};
use super::fault::{CredentialsFault, ProofFault};
use super::revocation::{RevocationList, hex};

/// Beginning of everything that is signed, so that the signature counts for nothing else.
const SIGNED: &[u8] = b"barograph hello 1\0";

/// Identity of this node, for one life of it.
pub(crate) struct Identity {
    secret: StaticSecret,
    /// The proof that goes with this node's hello.
    pub(crate) proof: Arc<[u8]>,
    public: [u8; 32],
    /// Number of the next sealed message.
    next: Arc<AtomicU64>,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Identity")
    }
}

impl Identity {
    /// Makes the proof for a hello, as it is written. `random` must be secret, and new for each
    /// life of the node.
    pub(crate) fn new(credentials: &Credentials, hello: &[u8], random: [u8; 32]) -> Self {
        let secret = StaticSecret::from(random);
        let public = PublicKey::from(&secret).to_bytes();
        let signature = credentials.key.sign(&signed(hello, &public));
        let proof = [&public, signature.as_ref(), &credentials.certificate].concat();
        Self {
            secret,
            proof: proof.into(),
            public,
            next: Arc::default(),
        }
    }

    /// The channel to the node with this public key.
    pub(crate) fn channel(&self, theirs: &[u8; 32]) -> Option<Channel> {
        let agreed = self.secret.diffie_hellman(&PublicKey::from(*theirs));
        agreed.was_contributory().then_some(())?;
        Channel::new(agreed.as_bytes(), (&self.public, theirs), &self.next)
    }
}

/// A proof that holds.
#[derive(Debug)]
pub(crate) struct Proven {
    /// Public key of the node for the key agreement.
    pub(crate) public: [u8; 32],
    /// Serial number of its certificate, in lower-case hexadecimal.
    pub(crate) serial: String,
    /// Time at which its certificate expires, ns since the epoch.
    pub(crate) expires_ns: i64,
}

/// The check of other nodes' proofs.
#[derive(Debug)]
pub(crate) struct Verifier {
    anchor: TrustAnchor<'static>,
    own: CertificateDer<'static>,
    revoked: Option<RevocationList>,
}

impl Verifier {
    /// The check by the authority of these credentials. It fails if they do not hold themselves.
    pub(crate) fn new(credentials: &Credentials, now_ns: i64) -> Result<Self, CredentialsFault> {
        let fault = |fault| CredentialsFault::Proof {
            dir: credentials.dir.clone(),
            fault,
        };
        let anchor = webpki::anchor_from_trusted_cert(&credentials.authority)
            .map_err(|_| fault(ProofFault::Authority))?;
        let verifier = Self {
            anchor: anchor.to_owned(),
            own: credentials.certificate.clone(),
            revoked: None,
        };
        let check = || {
            let certificate = EndEntityCert::try_from(&credentials.certificate);
            let certificate = certificate.map_err(|_| ProofFault::Foreign)?;
            verifier.check(&certificate, now_ns)?;
            let own_key = credentials.key.public_key().as_ref();
            let has_key = key_of(&credentials.certificate).as_deref() == Some(own_key);
            has_key.then_some(()).ok_or(ProofFault::Signature)
        };
        check().map_err(fault)?;
        Ok(verifier)
    }

    /// Checks the proof that came with a hello, as it is written, of the node with this name in
    /// certificates.
    pub(crate) fn verify(
        &self,
        (hello, name): (&[u8], &str),
        proof: &[u8],
        now_ns: i64,
    ) -> Result<Proven, ProofFault> {
        if proof.len() > PROOF_BYTES_MAX {
            return Err(ProofFault::Foreign);
        }
        let (public, rest) = proof.split_first_chunk().ok_or(ProofFault::Foreign)?;
        let (signature, der) = rest.split_first_chunk::<64>().ok_or(ProofFault::Foreign)?;
        let der = CertificateDer::from(der);
        let certificate = EndEntityCert::try_from(&der).map_err(|_| ProofFault::Foreign)?;
        self.check(&certificate, now_ns)?;
        if name_of(&der).as_deref() != Some(name) {
            return Err(ProofFault::Name);
        }
        certificate
            .verify_signature(webpki::ring::ED25519, &signed(hello, public), signature)
            .map_err(|_| ProofFault::Signature)?;
        let (_, parsed) = X509Certificate::from_der(&der).map_err(|_| ProofFault::Foreign)?;
        Ok(Proven {
            public: *public,
            serial: hex(parsed.raw_serial()),
            expires_ns: expires_ns(&der).ok_or(ProofFault::Foreign)?,
        })
    }

    /// Takes a newer list of revoked certificates, if it is the authority's. Returns whether it was
    /// taken.
    pub(crate) fn revoke(&mut self, bytes: &[u8], now_ns: i64) -> bool {
        let Some(list) = RevocationList::read(bytes) else {
            return false;
        };
        if self.revocation_number() >= Some(list.number) {
            return false;
        }
        let before = self.revoked.replace(list);
        // The check of a certificate that holds checks the signature of the list, too.
        let own = self.own.clone();
        let outcome = EndEntityCert::try_from(&own).map(|own| self.check(&own, now_ns));
        let is_signed = matches!(outcome, Ok(Ok(()) | Err(ProofFault::Revoked)));
        if !is_signed {
            self.revoked = before;
        }
        is_signed
    }

    /// The reason why this node's own certificate does not hold; `None` if it does.
    pub(crate) fn own_fault(&self, now_ns: i64) -> Option<ProofFault> {
        let certificate = EndEntityCert::try_from(&self.own);
        certificate
            .ok()
            .and_then(|own| self.check(&own, now_ns).err())
    }

    /// Time at which this node's own certificate expires, ns since the epoch.
    pub(crate) fn own_expires_ns(&self) -> Option<i64> {
        expires_ns(&self.own)
    }

    /// The number of the newest list of revoked certificates.
    pub(crate) fn revocation_number(&self) -> Option<u64> {
        self.revoked.as_ref().map(|list| list.number)
    }

    /// The newest list of revoked certificates, as the authority signed it.
    pub(crate) fn revocation_list(&self) -> Option<Arc<[u8]>> {
        self.revoked.as_ref().map(|list| Arc::clone(&list.bytes))
    }

    /// Serial numbers of the revoked certificates, in lower-case hexadecimal.
    pub(crate) fn revoked_serials(&self) -> &[String] {
        self.revoked.as_ref().map_or(&[], |list| &list.serials)
    }

    fn check(&self, certificate: &EndEntityCert<'_>, now_ns: i64) -> Result<(), ProofFault> {
        let seconds = u64::try_from(now_ns / NS_PER_S).unwrap_or_default();
        let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let lists: Vec<_> = self.revoked.iter().map(|list| &list.list).collect();
        let revocation = RevocationOptionsBuilder::new(&lists).ok().map(|options| {
            let options = options.with_depth(RevocationCheckDepth::EndEntity);
            let options = options.with_status_policy(UnknownStatusPolicy::Allow);
            options.build()
        });
        certificate
            .verify_for_usage(
                &[webpki::ring::ED25519],
                std::slice::from_ref(&self.anchor),
                &[],
                time,
                KeyUsage::client_auth(),
                revocation,
                None,
            )
            .map(drop)
            .map_err(|error| match error {
                webpki::Error::CertExpired { .. } => ProofFault::Expired,
                webpki::Error::CertNotValidYet { .. } => ProofFault::Early,
                webpki::Error::CertRevoked => ProofFault::Revoked,
                _ => ProofFault::Authority,
            })
    }
}

fn signed(hello: &[u8], public: &[u8; 32]) -> Vec<u8> {
    [SIGNED, public, hello].concat()
}

/// Time at which a certificate expires, ns since the epoch.
fn expires_ns(certificate: &CertificateDer<'_>) -> Option<i64> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let seconds = parsed.validity().not_after.timestamp();
    Some(seconds.saturating_mul(NS_PER_S))
}

/// The raw public key of a certificate.
fn key_of(certificate: &CertificateDer<'_>) -> Option<Vec<u8>> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    Some(parsed.public_key().subject_public_key.data.to_vec())
}
