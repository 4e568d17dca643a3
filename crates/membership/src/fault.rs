//! The reasons why a command about membership fails.

use std::path::PathBuf;

use barograph_fabric::transport::HelloFault;
use thiserror::Error;

/// The reason why something about membership cannot be done.
#[derive(Debug, Error)]
pub enum MembershipFault {
    /// A name breaks the rules of names.
    #[error(transparent)]
    Name(#[from] HelloFault),
    /// A file cannot be read or written.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        error: std::io::Error,
    },
    /// The directory has an authority or certificates already.
    #[error("{dir} has certificates already{of}: delete that directory to begin anew")]
    Exists {
        /// The directory.
        dir: PathBuf,
        /// Owner of the certificates, as the end of a clause.
        of: String,
    },
    /// The directory has no authority.
    #[error(
        "{dir} has no authority: this runs on the node where `baro cluster init` was run, by the \
         same user"
    )]
    NoAuthority {
        /// The directory.
        dir: PathBuf,
    },
    /// A file of the authority is damaged.
    #[error("{path} is damaged: {reason}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Reason of the fault.
        reason: String,
    },
    /// No node of this name has a certificate that holds.
    #[error("no node named {node} has a certificate that holds: `baro cluster members` lists them")]
    NoMember {
        /// The name.
        node: String,
    },
    /// A token cannot be read.
    #[error("this is no token of `baro cluster invite`: copy it whole, from `baro1.` on")]
    Token,
    /// An invitation has ended.
    #[error("this invitation has ended: run `baro cluster invite {node}` again")]
    Ended {
        /// The node that was invited.
        node: String,
    },
    /// The inviting node cannot be reached.
    #[error(
        "{address} cannot be reached: {error}; `baro cluster invite` must be running there, and its \
         address must be reachable from here"
    )]
    Unreachable {
        /// The address in the token.
        address: String,
        /// The system's reason.
        error: std::io::Error,
    },
    /// The inviting node refused.
    #[error("the inviting node refuses: {reason}")]
    Refused {
        /// Its reason.
        reason: String,
    },
    /// A certificate cannot be made or used.
    #[error("a certificate cannot be made: {0}")]
    Certificate(String),
    /// The system has no random numbers.
    #[error("the system gives no random numbers")]
    Random,
}

impl From<rcgen::Error> for MembershipFault {
    fn from(error: rcgen::Error) -> Self {
        Self::Certificate(error.to_string())
    }
}

impl From<rustls::Error> for MembershipFault {
    fn from(error: rustls::Error) -> Self {
        Self::Certificate(error.to_string())
    }
}
