//! Hostile frames and messages taken in, shared by the tests and the fuzz targets.

use std::sync::{Arc, OnceLock};

use barograph_fabric::frame::{Announcement, FrameHeader, FrameKind, HEADER_BYTES, empty_frame};
use barograph_fabric::transport::{HELLO_VERSION, Hello, MemoryNetwork, TransportEvent};
use barograph_fabric::{FabricNode, Mirror, MirrorBounds, MirrorSink, NodeConfig, QuestionKind};
use barograph_model::{Sample, StreamKey};
use barograph_stream::{Incarnation, RunDir, Segment, SegmentConfig, SegmentReader};

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

/// Makes a frame with this body and a checksum that matches, as a hostile sender does.
pub(crate) fn sealed(kind: FrameKind, body: &[u8]) -> Vec<u8> {
    let mut frame = empty_frame(&FrameHeader {
        kind,
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
    let _ = mirror.receive(&sealed(FrameKind::Samples, body), &mut sink);
    assert!(sink.live <= 16);
    mirror.clear(&mut sink);
    assert_eq!(sink.live, 0);
}

/// Has a node take in a message of another one, whatever it is: the first byte says how the others
/// are sent, because random bytes would end at a checksum or a magic number. Nothing panics, and
/// one message makes at most one subscriber, one question and one answer.
pub(crate) fn receive(input: &[u8]) {
    let Some((choice, body)) = input.split_first() else {
        return;
    };
    let bytes = match choice % 8 {
        0 => sealed(FrameKind::Subscribe, body),
        1 => sealed(FrameKind::Acknowledge, body),
        2 => sealed(FrameKind::Unsubscribe, body),
        3 => [b"BARQ\x01", body].concat(),
        4 => [b"BARC\x01", body].concat(),
        5 => [b"BARI\x01", body].concat(),
        6 => [b"BARA\x01", body].concat(),
        _ => body.to_vec(),
    };
    let network = MemoryNetwork::default();
    let join = |node: &str, number| {
        let hello = Hello {
            version: HELLO_VERSION,
            incarnation: Incarnation([number; 16]),
            start_ns: 1,
            cluster: "rack".into(),
            node: node.into(),
        };
        network.join(hello).expect("the names are names")
    };
    let (here, _there) = (join("here", 1), join("there", 2));
    let (run_dir, segment) = place();
    let mut node = FabricNode::new(here, Arc::clone(segment), config(run_dir), 1);
    node.step(1);
    let asked = node.ask((QuestionKind::Statement, "SELECT 1"), &[], (1, 10));
    assert!(asked.is_some());
    let from = "there".into();
    node.take_in(TransportEvent::Message { from, bytes }, 2);
    node.step(2);
    assert!(node.status().subscribers <= 1);
    assert!(node.asked(2).is_none() || node.asked(2).is_none());
    let (_, answers) = node.answers(10).expect("the time of the question is over");
    assert_eq!(answers.len(), 1);
}

/// A node that publishes and mirrors nothing.
pub(crate) fn config(run_dir: &RunDir) -> NodeConfig {
    NodeConfig {
        run_dir: run_dir.clone(),
        incarnation: Incarnation([1; 16]),
        nodes: Vec::new(),
        wanted: Vec::new(),
        scopes: Vec::new(),
        mirrors_max: 1,
        bounds: MirrorBounds {
            streams_max: 1,
            depth_max: 2,
            ring_bytes_max: 1 << 10,
        },
        window_bytes: 1 << 10,
    }
}

/// The run directory and the segment of all these nodes; one per process.
fn place() -> &'static (RunDir, Arc<SegmentReader>) {
    static PLACE: OnceLock<(tempfile::TempDir, Segment, (RunDir, Arc<SegmentReader>))> =
        OnceLock::new();
    let (.., place) = PLACE.get_or_init(|| {
        let dir = tempfile::tempdir().expect("there is a temporary directory");
        let run_dir = RunDir::new(dir.path());
        let segment = Segment::create(&run_dir.segment(), SegmentConfig::new("here"), 1);
        let segment = segment.expect("it is made");
        let reader = Arc::new(segment.reader().expect("it was made just now"));
        (dir, segment, (run_dir, reader))
    });
    place
}
