//! Integration tests: what must hold of placement whatever the targets, keys and readings are.

mod advisers;
mod bounded;
mod hashing;
mod hostile;
mod locating;
