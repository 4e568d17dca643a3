//! Joining a cluster by an invitation.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::path::Path;
use std::sync::Arc;

use barograph_fabric::security::{AUTHORITY_CERTIFICATE, Credentials, NODE_CERTIFICATE};
use rcgen::{CertificateParams, KeyPair, PKCS_ED25519};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};

use crate::authority::INVITATION_SERVER;
use crate::fault::MembershipFault;
use crate::files;
use crate::invitation::Token;
use crate::serve::{Answer, MESSAGE_BYTES_MAX, PATIENCE, Request};

/// Membership that a node has obtained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// Name of the cluster.
    pub cluster: String,
    /// Name of the node.
    pub node: String,
}

/// Joins the cluster of a token: the private key is made here and never leaves, and the inviting
/// node certifies it. The directory gets the certificates.
///
/// A node that is of the same cluster already gets a new certificate.
pub fn join(dir: &Path, token: &Token, now_ns: i64) -> Result<Joined, MembershipFault> {
    if now_ns >= token.expires_ts {
        let node = token.node.clone();
        return Err(MembershipFault::Ended { node });
    }
    let authority_path = dir.join(AUTHORITY_CERTIFICATE);
    if authority_path.exists() && files::read(&authority_path)? != token.authority {
        return Err(MembershipFault::Exists {
            dir: dir.to_owned(),
            of: " of another cluster".to_owned(),
        });
    }
    let key = KeyPair::generate_for(&PKCS_ED25519)?;
    let request = CertificateParams::default()
        .serialize_request(&key)?
        .pem()?;
    let certificate = ask(token, request)?;
    files::make_dir(dir)?;
    files::replace(&authority_path, token.authority.as_bytes(), 0o644)?;
    let both = format!("{certificate}{}", key.serialize_pem());
    files::replace(&dir.join(NODE_CERTIFICATE), both.as_bytes(), 0o600)?;
    let loaded = Credentials::load(dir, &token.cluster, &token.node);
    loaded.map_err(|fault| MembershipFault::Certificate(fault.to_string()))?;
    Ok(Joined {
        cluster: token.cluster.clone(),
        node: token.node.clone(),
    })
}

/// Asks the inviting node for a certificate. It proves by its own certificate that it is the one
/// that made the token.
fn ask(token: &Token, request: String) -> Result<String, MembershipFault> {
    let unreachable = |error| MembershipFault::Unreachable {
        address: token.address.escape_debug().take(128).collect(),
        error,
    };
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_slice(token.authority.as_bytes());
    roots.add(authority.map_err(|_| MembershipFault::Token)?)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(INVITATION_SERVER).map_err(|_| MembershipFault::Token)?;
    let connection = ClientConnection::new(Arc::new(config), name)?;
    let stream = connect(&token.address).map_err(unreachable)?;
    let mut stream = StreamOwned::new(connection, stream);
    let secret = token.secret.clone();
    let mut line = serde_json::to_string(&Request { secret, request })
        .map_err(|error| MembershipFault::Certificate(error.to_string()))?;
    line.push('\n');
    stream.write_all(line.as_bytes()).map_err(unreachable)?;
    let mut answer = String::new();
    let mut reader = BufReader::new(stream.take(MESSAGE_BYTES_MAX));
    reader.read_line(&mut answer).map_err(unreachable)?;
    match serde_json::from_str(&answer) {
        Ok(Answer::Certificate(certificate)) => Ok(certificate),
        Ok(Answer::Refused(reason)) => Err(MembershipFault::Refused { reason }),
        Err(_) => Err(MembershipFault::Refused {
            reason: "its answer cannot be read".into(),
        }),
    }
}

/// Connects to the first address of a name that answers.
fn connect(address: &str) -> std::io::Result<TcpStream> {
    let mut last = std::io::Error::from(std::io::ErrorKind::AddrNotAvailable);
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => {
                stream.set_read_timeout(Some(PATIENCE * 2))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}
