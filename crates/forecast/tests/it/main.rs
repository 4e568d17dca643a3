//! The crate as others see it: what holds on every sequence of looks. One binary: one allocator that counts.

mod allocation;
mod cascade;
mod counting;
mod delphi;
mod exercise;
mod families;
mod families_hold;
mod interval;
mod life;
mod properties;
mod simple;
