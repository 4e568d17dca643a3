//! Calls into running programs: handlers that are run, knobs that are set
//! (docs/design/0004-applications.md, "Calls").
//!
//! The [`Board`] knows which process handles what, and writes calls into the files that programs
//! map. It is separate from the intake's thread, behind a lock of its own, so that whatever decides
//! that a call is due (an HTTP request, a rule, another thread of the agent) makes it at once. A
//! call is on disk before a program can see it; the intake never waits for that.

mod audit;
mod board;
mod desk;
mod guests;
mod members;
mod request;
mod row;
#[cfg(test)]
mod tests;
mod user;
mod value;

pub use board::Board;
pub use members::{CallMember, Offer};
pub use request::{CallError, CallOrigin, CallOutcome, CallRequest, CallsMade};
pub use row::CallEvent;
pub use value::KnobBounds;
