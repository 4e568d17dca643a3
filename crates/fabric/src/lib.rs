//! The fabric between nodes: frames of samples, the feeds that send them, and the mirrors that take
//! them in.
//!
//! It is a crate of its own because it owns zenoh and because it parses the bytes of other nodes.
//! Apart from one file behind a trait, it knows no network: bytes and times are arguments.

mod asked_questions;
mod catch_up;
mod config;
mod control_words;
mod demand;
mod feed;
mod feed_lane;
mod feed_past;
mod feed_search;
pub mod frame;
mod history;
mod mirror;
mod mirror_room;
mod mirror_segment;
mod node;
mod node_mirror;
mod own_scopes;
mod past;
mod publisher;
mod question;
mod question_bytes;
mod scope_mirrors;
pub mod security;
mod segment_mirror;
mod subscriber;
pub mod transport;

pub use catch_up::CATCH_UPS_MAX;
pub use config::NodeConfig;
pub use control_words::WORD_BYTES_MAX;
pub use demand::StreamDemand;
pub use feed::{BEAT_NS, Feed};
pub use feed_lane::FeedCounts;
pub use history::{DurableHistories, DurableHistory, HistoryOpening};
pub use mirror::{Mirror, MirrorCounts, MirrorSink, Received};
pub use mirror_room::MirrorBounds;
pub use node::{FabricNode, FabricStatus};
pub use past::{
    EndedList, EndedQuery, EndedSeries, LifePoint, PastGap, PastReading, PastRun, PastSamples,
    PastSource,
};
pub use publisher::{POSITIONS_TOTAL_MAX, PublishedScopes, Publisher, SUBSCRIBERS_MAX};
pub use question::{NodeAnswer, NodeAnswers, NodeReply};
pub use question_bytes::{ANSWER_BYTES_MAX, AskedQuestion, QUESTION_BYTES_MAX, QuestionKind};
pub use subscriber::{Subscriber, SubscriberConfig};
