//! Tests of the crate from outside: properties of every sequence of looks. One binary, with one
//! allocator that counts.

mod allocation;
mod cascade;
mod delphi;
mod exercise;
mod families;
mod families_hold;
mod interval;
mod life;
mod properties;
mod simple;
