//! Tests of the library as programs use it: compiled with the available compilers, read as an agent
//! reads.

#![expect(clippy::unwrap_used, reason = "tests")]

mod build;
mod calls;
mod guest;
mod programs;
mod shim;
mod subscribe;
