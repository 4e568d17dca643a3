//! Publishing as applications do it, in processes of their own, read as an agent reads it.

mod callees;
mod calls;
mod lives;
mod reader;
mod roles;
mod values;
