//! Tests of membership, with real certificates, sockets and networks.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod admission;
mod routers;
mod secured;
