//! The protocol between clients and servers, as pure functions over bytes.
//!
//! A frame is a length (32 bits, little-endian, of what follows), a kind (one byte) and a body. A
//! client begins with [`Request::Hello`] and then sends one request after the other; each is
//! answered before the next is sent. The bytes of blocks are in data frames, which have no fields.
//!
//! A block of up to [`EAGER_BYTES_MAX`] bytes is sent together with its [`Request::Put`]; a larger
//! one when the server has answered [`Answer::Go`]. A read is answered by [`Answer::Block`] and
//! data frames; a fault may come in place of any of them, and ends the connection.

mod answer;
mod frame;
mod request;

pub use answer::{Answer, LocatedBlocks, LocatedTier, MemoryPlace, Welcome};
pub use frame::{
    CHUNK_BYTES_MAX, EAGER_BYTES_MAX, FRAME_BYTES_MAX, FrameHead, HEAD_BYTES, PROTOCOL, WireFault,
};
pub use request::{GetForm, Hello, LOCATE_BYTES_MAX, LOCATE_KEYS_MAX, Request, TOKEN_BYTES_MAX};

pub(crate) use frame::DATA_KIND;
