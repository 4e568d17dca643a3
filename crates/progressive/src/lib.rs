//! Arrays that are read as precisely as is needed: hierarchical decomposition, bit planes, and
//! buckets of which each carries the measured error of a reading that ends with it (the data side
//! of Tango, sections III-B and III-C, made sound).
//!
//! An array of 1 to 4 axes is divided into blocks. Each block is decomposed into levels
//! ([`Basis`]), and the coefficients are coded by bit planes, the most significant first. A bucket
//! has one step of this coding for all blocks, in pieces that can be fetched alone: by block for a
//! region, by group of levels for a coarser resolution. The last bucket makes the reading exact.
//!
//! This crate is pure: it turns values into bytes and back, and reads no file and no clock. What
//! does not fit into memory comes from and goes to its caller in parts ([`ValueSource`],
//! [`PieceSpool`], [`ByteSource`]). Bytes of others are untrusted: damaged ones give an error or
//! other values, never a panic.

mod basis;
mod bits;
mod block;
mod bytes;
mod element;
mod error;
mod header;
mod listing;
mod mesh;
mod mesh_file;
mod pack;
mod parts;
mod pieces;
mod planes;
mod range_coder;
mod read;
mod shape;
mod source;
mod spool;
mod tiles;
mod values;
mod work;

pub use basis::Basis;
pub use block::GROUPS;
pub use bytes::ByteSource;
pub use element::{Element, ElementType};
pub use error::{ErrorBound, MeasuredError, ProgressiveError, ValueRange};
pub use header::{
    ArrayHeader, BUCKETS_MAX, BucketEntry, COORDINATE_NAMES, MAGIC, NAME_BYTES_MAX, VERSION,
};
pub use listing::{ARRAYS_MAX, ArrayListing, WantedArray};
pub use mesh::{POINTS_MAX, gather, mesh_order, scatter};
pub use mesh_file::MeshPoints;
pub use pack::{PackConfig, PackedArray, SpooledArray, pack, pack_from};
pub use parts::{NoRoom, PART_MAGIC, PART_VERSION, PartHeader, PlacedExtent, place_arrays};
pub use read::{ArrayReader, BucketIndex};
pub use shape::{AXES_MAX, BLOCKS_MAX, Region, Shape, VALUES_MAX};
pub use source::ArraySource;
pub use spool::PieceSpool;
pub use values::ValueSource;
