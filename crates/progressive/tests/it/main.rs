//! Arrays are packed and read.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod arrays;
mod damage;
mod mesh;
mod streams;
