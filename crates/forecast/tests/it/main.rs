//! The crate as others see it. One binary: one allocator that counts.

mod allocation;
mod interval;
