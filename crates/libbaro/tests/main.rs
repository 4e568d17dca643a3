//! Tests of the library as programs use it: compiled with the available compilers, read as an agent
//! reads.

#![expect(
    clippy::disallowed_methods,
    reason = "tests wait for real threads, programs and disks"
)]
#![expect(clippy::unwrap_used, reason = "tests")]

mod advice;
mod array;
mod build;
mod calls;
mod control;
mod events;
mod guest;
mod maps;
mod phases;
mod programs;
mod shim;
mod staging;
mod subscribe;
mod turns;
