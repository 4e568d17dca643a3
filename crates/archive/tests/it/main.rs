//! The archive as its users meet it.

#![expect(clippy::unwrap_used, reason = "tests")]

mod parquet;
mod view;
