//! The forecaster from outside: what holds on every sequence of looks.

mod allocation;
mod cascade;
mod families;
mod families_hold;
mod life;
mod properties;
mod simple;
