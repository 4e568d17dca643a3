//! Rules from outside: through statements, samples, time and firings.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod acting;
mod cluster;
mod equal;
mod exercise;
mod hostile;
mod past;
mod rig;
mod rules;
mod scopes;
