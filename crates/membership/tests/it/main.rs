//! Tests of membership, with real certificates, sockets and networks.

mod admission;
mod secured;
