//! The certificates of this node, as `baro cluster init` and `baro cluster join` leave them.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use ring::signature::Ed25519KeyPair;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::fault::CredentialsFault;

/// Name of the directory, in the state directory, that has the certificates.
pub const CREDENTIALS_DIR: &str = "cluster";
/// File of the authority's certificate, PEM.
pub const AUTHORITY_CERTIFICATE: &str = "authority.pem";
/// File of this node's certificate and private key (PKCS#8), PEM, which only its owner may read. It
/// is one file, so that both are replaced in one step.
pub const NODE_CERTIFICATE: &str = "node.pem";
/// File of the revocation list, DER. It need not exist.
pub const REVOCATION_LIST: &str = "revoked.crl";

/// Most bytes of a file with a certificate or a key.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// The certificates and the key of one node of a cluster.
pub struct Credentials {
    /// The directory that they are in.
    pub dir: PathBuf,
    pub(super) authority: CertificateDer<'static>,
    pub(super) certificate: CertificateDer<'static>,
    pub(super) key: Ed25519KeyPair,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials")
            .field("dir", &self.dir)
            .finish_non_exhaustive()
    }
}

impl Credentials {
    /// Reads the certificates of a node; `None` if the directory has none.
    pub fn load(dir: &Path, cluster: &str, node: &str) -> Result<Option<Self>, CredentialsFault> {
        let path = dir.join(NODE_CERTIFICATE);
        if !path.exists() {
            return Ok(None);
        }
        let (text, mode) = read(&path)?;
        if mode & 0o077 != 0 {
            return Err(CredentialsFault::Open { path });
        }
        let certificate = certificate_in(&text, &path)?;
        let key = PrivatePkcs8KeyDer::from_pem_slice(&text).ok();
        let key = key.and_then(|key| {
            Ed25519KeyPair::from_pkcs8_maybe_unchecked(key.secret_pkcs8_der()).ok()
        });
        let key = key.ok_or(CredentialsFault::Contents {
            path,
            what: "certificate with its private key",
        })?;
        let authority = dir.join(AUTHORITY_CERTIFICATE);
        let (text, _) = read(&authority)?;
        let authority = certificate_in(&text, &authority)?;
        let found = name_of(&certificate).unwrap_or_else(|| "nobody".to_owned());
        if found != identity_uri(cluster, node) {
            return Err(CredentialsFault::Other {
                dir: dir.to_owned(),
                found: found.replacen("barograph:", "", 1),
                node: node.to_owned(),
                cluster: cluster.to_owned(),
            });
        }
        Ok(Some(Self {
            dir: dir.to_owned(),
            authority,
            certificate,
            key,
        }))
    }
}

/// The name of a node in its certificate, a URI among the alternative names of its subject.
pub fn identity_uri(cluster: &str, node: &str) -> String {
    format!("barograph:{cluster}/{node}")
}

/// The one URI among the alternative names of a certificate's subject.
pub(super) fn name_of(certificate: &CertificateDer<'_>) -> Option<String> {
    let (rest, parsed) = X509Certificate::from_der(certificate).ok()?;
    let names = &parsed.subject_alternative_name().ok()??.value.general_names;
    let mut uris = names.iter().filter_map(|name| match name {
        GeneralName::URI(uri) => Some((*uri).to_owned()),
        _ => None,
    });
    let first = uris.next()?;
    (rest.is_empty() && uris.next().is_none()).then_some(first)
}

fn certificate_in(text: &[u8], path: &Path) -> Result<CertificateDer<'static>, CredentialsFault> {
    CertificateDer::from_pem_slice(text).map_err(|_| CredentialsFault::Contents {
        path: path.to_owned(),
        what: "certificate",
    })
}

/// The contents of a file, and its mode.
fn read(path: &Path) -> Result<(Vec<u8>, u32), CredentialsFault> {
    let contents = || {
        let file = File::open(path)?;
        let mode = file.metadata()?.mode();
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
        Ok((bytes, mode))
    };
    contents().map_err(|error| CredentialsFault::Read {
        path: path.to_owned(),
        error,
    })
}
