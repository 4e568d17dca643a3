//! Membership of a cluster: the authority that certifies nodes, invitations, and joining by them.
//!
//! It is a crate of its own because it owns rcgen and because it runs in commands of
//! administrators, never in an agent. An agent only reads the files that it leaves.

mod authority;
mod fault;
mod files;
mod invitation;
mod join;
mod ledger;
mod serve;

pub use authority::{Authority, DAYS_DEFAULT};
pub use fault::MembershipFault;
pub use invitation::{Invitations, Token};
pub use join::{Joined, join};
pub use ledger::Member;
pub use serve::{Admission, InvitationServer};
