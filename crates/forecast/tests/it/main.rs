//! The forecaster from outside: what holds on every sequence of looks.

mod allocation;
mod cascade;
#[expect(dead_code, reason = "examples use more of it")]
mod families;
mod families_hold;
mod life;
mod properties;
mod simple;
