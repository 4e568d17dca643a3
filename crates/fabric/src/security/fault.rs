//! The reasons why certificates cannot be used, and why a node is not believed.

use std::path::PathBuf;

use thiserror::Error;

/// The reason why the certificates of this node cannot be used.
#[derive(Debug, Error)]
pub enum CredentialsFault {
    /// A file cannot be read.
    #[error("{path} cannot be read: {error}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        error: std::io::Error,
    },
    /// A file has other contents than its name says.
    #[error("{path} is no {what}: run `baro cluster join` again")]
    Contents {
        /// The file.
        path: PathBuf,
        /// Word for what it should be.
        what: &'static str,
    },
    /// Others may read the private key.
    #[error("others may read {path}, the private key of this node: chmod 600 {path}")]
    Open {
        /// The file.
        path: PathBuf,
    },
    /// The certificate is of another node or cluster.
    #[error(
        "the certificate in {dir} is of {found}, and this agent is node {node} of cluster {cluster}: \
         run `baro cluster join` for this node, or correct `node` or `cluster.name`"
    )]
    Other {
        /// The directory of the certificates.
        dir: PathBuf,
        /// The node and the cluster of the certificate.
        found: String,
        /// Name of this node.
        node: String,
        /// Name of its cluster.
        cluster: String,
    },
    /// The certificate does not hold.
    #[error("the certificate in {dir} cannot be used: {fault}")]
    Proof {
        /// The directory of the certificates.
        dir: PathBuf,
        /// The reason.
        fault: ProofFault,
    },
}

/// The reason why a node is not believed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ProofFault {
    /// It has no certificate, and this node has one.
    #[error("it has no certificate: run `baro cluster join` there")]
    Missing,
    /// It has a certificate, and this node has none.
    #[error("it has a certificate, and this node has none: run `baro cluster join` here")]
    Unasked,
    /// The bytes are no proof.
    #[error("its proof of who it is cannot be read")]
    Foreign,
    /// The certificate is not of this cluster's authority.
    #[error(
        "its certificate is not of the authority of this cluster: run `baro cluster join` there"
    )]
    Authority,
    /// The certificate has expired.
    #[error("its certificate has expired: run `baro cluster join` there")]
    Expired,
    /// The certificate is not valid yet.
    #[error("its certificate is not valid yet: the clock of one of the two nodes is wrong")]
    Early,
    /// The certificate was revoked.
    #[error("its certificate was revoked")]
    Revoked,
    /// The certificate is of another node.
    #[error("its certificate is of another node")]
    Name,
    /// The signature is not of the certificate's key.
    #[error("its proof is not signed by the key of its certificate")]
    Signature,
}
