//! A small ingest file to damage: declarations, values of every kind, two rings. The fuzz target
//! uses it too.

use std::path::{Path, PathBuf};

use barograph_model::{Kind, ValueType};
use barograph_stream::SystemClock;
use barograph_stream::ingest::{
    IngestDeclaration, Producer, ProducerConfig, PublicationReaders, kind,
};

/// Records of each ring.
pub(crate) const RECORDS: u64 = 256;
/// Number of values and frames in the file.
pub(crate) const PUTS: u64 = 2 * 23;

/// Declares a publication with values of every type.
pub(crate) fn declare(producer: &Producer) {
    let labels = |name: &str| vec![(name.to_owned(), "3 é \"x\"".to_owned())];
    let value = |name: &str, value_type| IngestDeclaration::Value {
        publication: 0,
        name: name.into(),
        value_type,
        kind: Kind::Gauge,
        unit: "bytes".into(),
        help: "what it is".into(),
        bytes_max: if value_type.is_number() { 0 } else { 8_192 },
    };
    let declarations = [
        IngestDeclaration::Process {
            application: "specimen".into(),
            labels: labels("rank"),
        },
        IngestDeclaration::Publication {
            name: "specimen.step".into(),
            readers: PublicationReaders::All,
            labels: labels("phase"),
        },
        value("count", ValueType::Int),
        value("size", ValueType::Float),
        value("flag", ValueType::Bool),
        value("text", ValueType::Text),
        value("blob", ValueType::Bytes),
        value("document", ValueType::Json),
        value("mesh", ValueType::Floats),
    ];
    for declaration in &declarations {
        assert!(producer.declare(declaration));
    }
}

/// Creates the complete file in `dir`; its writer is gone.
pub(crate) fn small(dir: &Path) -> PathBuf {
    let clock = SystemClock::new();
    let config = ProducerConfig {
        rings_max: 2,
        ring_records: RECORDS,
        ..ProducerConfig::default()
    };
    let producer = Producer::create(dir, config, &clock).expect("there is room");
    declare(&producer);
    let mut rings = [(); 2].map(|()| producer.thread(&clock).expect("there is a ring"));
    for ring in &mut rings {
        for n in 0..5 {
            ring.put(kind::INT, 0, 10 * n, n);
            ring.put(kind::FLOAT, 1, 10 * n + 1, (n as f64 / 3.0).to_bits());
            ring.put(kind::BOOL, 2, 10 * n + 2, n % 2);
            ring.frame(0, 10 * n + 3, n);
        }
        ring.put_bytes(
            kind::TEXT,
            3,
            60,
            "a text of more than one piece é".as_bytes(),
        );
        ring.put_bytes(kind::JSON, 3, 61, br#"{"a":[1,2]}"#);
        ring.put_bytes(kind::BYTES, 3, 62, &[0xff; 40]);
        ring.commit();
    }
    producer.path().to_owned()
}
