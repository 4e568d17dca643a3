//! The handle of one value: its puts.

use barograph_stream::ingest::kind;

use super::{state, thread};

/// A value that can be put, from any thread. The default one does nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ValueHandle(u64);

impl ValueHandle {
    /// Puts a float.
    #[inline]
    pub fn put_f64(self, value: f64) {
        thread::put(self.0, kind::FLOAT, value.to_bits());
    }

    /// Puts an integer.
    #[inline]
    pub fn put_i64(self, value: i64) {
        thread::put(self.0, kind::INT, value as u64);
    }

    /// Puts a bool.
    #[inline]
    pub fn put_bool(self, value: bool) {
        thread::put(self.0, kind::BOOL, value.into());
    }

    /// Puts a text; one that is longer than declared is cut by the agent.
    pub fn put_text(self, value: &str) {
        let _ = thread::put_bytes(self.0, kind::TEXT, value.as_bytes());
    }

    /// Puts bytes, for a value that is declared as bytes.
    pub fn put_bytes(self, value: &[u8]) {
        let _ = thread::put_bytes(self.0, kind::BYTES, value);
    }

    /// Puts JSON, for a value that is declared as JSON (or as text); the agent checks that it is
    /// valid JSON, this function does not.
    pub fn put_json(self, value: &str) {
        let _ = thread::put_bytes(self.0, kind::JSON, value.as_bytes());
    }

    /// Puts an array, for a value that is declared as floats.
    pub fn put_floats(self, values: &[f64]) {
        if self.is_enabled() {
            self.put_floats_le(&le_bytes(values));
        }
    }

    /// Like [`Self::put_floats`], for floats in memory order: little-endian, eight bytes each.
    pub fn put_floats_le(self, bytes: &[u8]) {
        let _ = thread::put_bytes(self.0, kind::FLOATS, bytes);
    }

    /// Whether the agent refuses this value at present, so that its puts are lost; false before an
    /// agent has looked.
    pub fn is_refused(self) -> bool {
        is_refused(self.0)
    }

    /// Whether puts of this value are published.
    pub fn is_enabled(self) -> bool {
        self.0 != 0
    }

    /// The handle as a number, for other languages; 0 does nothing.
    pub fn to_raw(self) -> u64 {
        self.0
    }

    /// Makes a handle from a number of [`Self::to_raw`]; any other number is refused at the put,
    /// and counted.
    pub fn from_raw(raw: u64) -> Self {
        Self(raw)
    }
}

/// Like [`ValueHandle::is_refused`], for a value's number ([`ValueHandle::to_raw`]).
pub fn is_refused(value: u64) -> bool {
    let process = state::existing(thread::generation_of(value));
    value != 0 && process.is_some_and(|p| p.producer.is_refused(thread::series_of(value)))
}

fn le_bytes(values: &[f64]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

#[cfg(test)]
mod tests {
    use barograph_stream::ingest::kind;

    use super::*;

    #[test]
    fn handles_hold_what_they_are_made_of() {
        let handle = thread::handle(7, kind::FLOAT, 0x0012_3456);
        assert_eq!(thread::generation_of(handle), 7);
        assert_eq!(thread::series_of(handle), 0x0012_3456);
        assert_eq!(ValueHandle::from_raw(handle).to_raw(), handle);
        // A handle that was never given out only counts a loss.
        ValueHandle::from_raw(handle).put_f64(1.0);
        ValueHandle::default().put_f64(1.0);
    }
}
