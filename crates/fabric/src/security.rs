//! The identity of nodes: certificates of the cluster's authority, proofs of who a node is, and
//! channels between two nodes that nobody else reads or writes.
//!
//! TLS between two ends of a link knows only the neighbour: a message may have come through a
//! router, and every node of the cluster could write any key. So each message is sealed from its
//! sender to its receiver. The keys come from the hellos, and each hello has a proof that only the
//! owner of a certificate can make. `docs/design/0009-many-nodes.md` has the reasons.

mod channel;
mod credentials;
mod fault;
mod revocation;
mod verifier;

pub(crate) use channel::Channel;
pub use credentials::{
    AUTHORITY_CERTIFICATE, CREDENTIALS_DIR, Credentials, NODE_CERTIFICATE, REVOCATION_LIST,
    identity_uri,
};
pub use fault::{CredentialsFault, ProofFault};
pub(crate) use verifier::{Identity, Proven, Verifier};

/// Most bytes of a revocation list: room for some 5,000 certificates.
pub const REVOCATION_LIST_BYTES_MAX: usize = 256 << 10;
/// Most bytes of a proof: two keys' worth, and a certificate.
pub(crate) const PROOF_BYTES_MAX: usize = 2_048;
