//! The writer of frames. It writes into one buffer that is used again for every frame.

use std::sync::Arc;

use barograph_model::{Sample, ValueType};
use barograph_stream::bytes::{put_bytes, put_i64, put_u64};

use super::header::FrameHeader;
use super::layout::HEADER_BYTES;
use super::reader::SectionKind;
use super::{Announcement, batch};

/// Bytes of a section's head: its kind and the length of its payload.
const SECTION_HEAD_BYTES: usize = 5;

/// A frame in the making. Whoever writes it watches [`FrameWriter::bytes`]: readers refuse a frame
/// of more than [`FRAME_BYTES_MAX`](super::FRAME_BYTES_MAX). Sections are written in any order;
/// each call continues the open section or begins the next.
#[derive(Debug)]
pub struct FrameWriter {
    frame: Vec<u8>,
    base_ns: i64,
    open: Option<(SectionKind, usize)>,
}

impl FrameWriter {
    /// Begins a frame whose times are relative to `base_ns`, ns since the epoch. The buffer of an
    /// earlier frame may be given for reuse.
    pub fn begin(mut buffer: Vec<u8>, base_ns: i64) -> Self {
        buffer.clear();
        buffer.resize(HEADER_BYTES, 0);
        buffer.extend_from_slice(&base_ns.to_le_bytes());
        Self {
            frame: buffer,
            base_ns,
            open: None,
        }
    }

    /// Bytes written so far, the header included.
    pub fn bytes(&self) -> usize {
        self.frame.len()
    }

    /// Whether no section has been written.
    pub fn is_empty(&self) -> bool {
        self.frame.len() == HEADER_BYTES + size_of::<i64>()
    }

    /// Writes the descriptor of a stream with its reference.
    pub fn announce(&mut self, announcement: &Announcement) {
        self.section(SectionKind::Announcements);
        announcement.write(&mut self.frame);
    }

    /// Writes that a stream has ended: its reference stands for nothing from here on.
    pub fn retire(&mut self, reference: u32) {
        self.section(SectionKind::Retirements);
        put_u64(&mut self.frame, u64::from(reference));
    }

    /// Writes that a stream is looked at in another interval from now on, in ns.
    pub fn interval(&mut self, reference: u32, interval_ns: i64) {
        self.section(SectionKind::Intervals);
        put_u64(&mut self.frame, u64::from(reference));
        put_i64(&mut self.frame, interval_ns);
    }

    /// Writes the sign that every stream of the time at which the feed began has been announced.
    pub fn complete(&mut self) {
        self.section(SectionKind::Complete);
        self.frame.push(1);
    }

    /// Writes the names of all scopes of applications that are published beside the node's own
    /// streams.
    pub fn scopes(&mut self, names: &[Arc<str>]) {
        self.section(SectionKind::Scopes);
        put_u64(&mut self.frame, names.len() as u64);
        for name in names {
            put_bytes(&mut self.frame, name.as_bytes());
        }
    }

    /// Writes successive samples of a stream, all of `value_type`; `first` is the number of the
    /// first one. Without samples, writes that the newest value was looked at again; `first` is
    /// then the number of the next sample.
    pub fn batch(
        &mut self,
        stream: (u32, ValueType),
        (first, looked_ns): (u64, i64),
        samples: &[Sample],
    ) {
        self.section(SectionKind::Batches);
        let base_ns = self.base_ns;
        batch::write(
            &mut self.frame,
            base_ns,
            stream,
            (first, looked_ns),
            samples,
        );
    }

    /// Ends the frame and returns its bytes.
    pub fn finish(mut self, header: &FrameHeader) -> Vec<u8> {
        self.close();
        header.seal(&mut self.frame);
        self.frame
    }

    fn section(&mut self, kind: SectionKind) {
        if self.open.is_some_and(|(open, _)| open == kind) {
            return;
        }
        self.close();
        self.open = Some((kind, self.frame.len()));
        self.frame.push(kind as u8);
        self.frame.extend_from_slice(&[0; SECTION_HEAD_BYTES - 1]);
    }

    fn close(&mut self) {
        if let Some((_, at)) = self.open.take() {
            let bytes = (self.frame.len() - at - SECTION_HEAD_BYTES) as u32;
            self.frame[at + 1..][..4].copy_from_slice(&bytes.to_le_bytes());
        }
    }
}
