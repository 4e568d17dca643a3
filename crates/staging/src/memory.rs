//! The memory tier: one sealed memory file for each user, which the user's own processes map
//! read-only.
//!
//! A file begins with words that its server alone writes: a magic number, the fence of the server,
//! and a table of slots. Each block has a slot, whose word is a number that is not used again while
//! the block may be read, and 0 from the moment at which it may be overwritten. Who reads a block
//! looks at its slot before and after.

mod arena;
mod extents;
mod map;
mod view;

pub(crate) use arena::{ArenaLayout, BlockPlace, MemoryBlock, MemoryDraft, MemoryTier};
pub(crate) use view::MappedArena;
pub use view::MappedBlock;
