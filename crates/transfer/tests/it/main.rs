//! Integration tests: transfers of files on this machine.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod files;
