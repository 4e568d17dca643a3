//! A hostile frame taken in, shared by the tests and the fuzz target.

use barograph_fabric::frame::{Announcement, FrameHeader, FrameKind, HEADER_BYTES, empty_frame};
use barograph_fabric::{Mirror, MirrorSink};
use barograph_model::{Sample, StreamKey};
use barograph_stream::Incarnation;

/// A sink that counts what it is given.
#[derive(Default)]
struct Counting {
    declared: u32,
    live: i64,
}

impl MirrorSink for Counting {
    fn declare(&mut self, _: &Announcement) -> Option<StreamKey> {
        self.live += 1;
        self.declared += 1;
        Some(StreamKey(self.declared))
    }

    fn retire(&mut self, _: StreamKey) {
        self.live -= 1;
    }

    fn append(&mut self, _: StreamKey, number: u64, _: &Sample) {
        assert!(number > 0);
    }

    fn expect_interval(&mut self, _: StreamKey, _: i64) {}

    fn recall(&mut self, _: StreamKey, _: u64, _: &Sample) {}

    fn confirm(&mut self, _: StreamKey, _: i64) {}

    fn miss(&mut self, _: StreamKey, first: u64, count: u64) {
        assert!(first > 0 && count > 0);
    }
}

/// Makes a frame of samples with this body and a checksum that matches, as a hostile sender does.
pub(crate) fn sealed(body: &[u8]) -> Vec<u8> {
    let mut frame = empty_frame(&FrameHeader {
        kind: FrameKind::Samples,
        incarnation: Incarnation([7; 16]),
        feed: 3,
        number: 1,
        sent_ns: 5,
    });
    assert_eq!(frame.len(), HEADER_BYTES);
    frame.extend_from_slice(body);
    frame[12..16].copy_from_slice(&(body.len() as u32).to_le_bytes());
    let crc = crc32fast::hash(&frame[12..]);
    frame[8..12].copy_from_slice(&crc.to_le_bytes());
    frame
}

/// Takes in a frame with this body, whatever it is: nothing panics, and after the end of the mirror
/// no stream is left.
pub(crate) fn take_in(body: &[u8]) {
    let mut sink = Counting::default();
    let mut mirror = Mirror::new(16);
    mirror.expect(3);
    let _ = mirror.receive(&sealed(body), &mut sink);
    assert!(sink.live <= 16);
    mirror.clear(&mut sink);
    assert_eq!(sink.live, 0);
}
