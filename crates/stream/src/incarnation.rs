//! The identity of one writer's life of a file. Every file format of this crate has one.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};

/// The identity of one writer's life of a file: 128 random bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub [u8; 16]);

impl Incarnation {
    /// Draws an identity from the random numbers of the system.
    pub fn draw() -> io::Result<Self> {
        let mut bits = [0; 16];
        File::open("/dev/urandom")?.read_exact(&mut bits)?;
        Ok(Self(bits))
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
