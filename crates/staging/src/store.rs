//! The store of blocks: which blocks there are, in which tiers, and what moves between tiers.
//!
//! `state.rs` has what is known, behind one lock that is never held while a disk works. `put.rs`
//! and `get.rs` are the ways in and out, `evict.rs` makes room, `flush.rs` copies blocks to lower
//! tiers, and `recover.rs` finds what a former life of the server has left.

mod config;
mod delete;
mod evict;
mod flush;
mod flusher;
mod get;
mod list;
mod put;
mod recover;
mod score;
mod state;
mod stock;

pub use config::{MemoryConfig, StoreConfig};
pub use flusher::Flusher;
pub use get::BlockReader;
pub use list::{ListPage, ListQuery};
pub use put::{PutHead, PutTarget, PutWriter};
pub use state::{StoreCounts, TierUse};
pub use stock::{BlockStore, ServerMembership};
