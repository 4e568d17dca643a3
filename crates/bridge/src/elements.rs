//! Counts the messages of a protobuf request before memory is allocated for them.
//!
//! The module stands alone because it is a bound: an empty message takes two bytes on the wire and
//! a hundred in memory, so the size of a body tells little about the memory that parsing takes.

/// Most messages, or JSON objects, of one request.
pub(crate) const ELEMENTS_MAX: usize = 1 << 17;

/// The type of a message: the numbers of those fields that are messages, with their types.
struct Shape {
    fields: &'static [(u64, &'static Shape)],
}

const LEAF: Shape = Shape { fields: &[] };
const POINT: Shape = Shape {
    // Attributes and quantiles of all kinds of points.
    fields: &[(6, &LEAF), (7, &LEAF), (9, &LEAF)],
};
const DATA: Shape = Shape {
    fields: &[(1, &POINT)],
};
const METRIC: Shape = Shape {
    fields: &[(5, &DATA), (7, &DATA), (9, &DATA), (10, &DATA), (11, &DATA)],
};
const SCOPE_METRICS: Shape = Shape {
    fields: &[(1, &LEAF), (2, &METRIC)],
};
const RESOURCE: Shape = Shape {
    fields: &[(1, &LEAF)],
};
const RESOURCE_METRICS: Shape = Shape {
    fields: &[(1, &RESOURCE), (2, &SCOPE_METRICS)],
};
const REQUEST: Shape = Shape {
    fields: &[(1, &RESOURCE_METRICS)],
};

/// Whether an `ExportMetricsServiceRequest` is within the bound. A malformed one counts as within
/// it: parsing it fails.
pub(crate) fn protobuf_is_bounded(body: &[u8]) -> bool {
    let mut left = ELEMENTS_MAX;
    count(body, &REQUEST, &mut left);
    left > 0
}

/// Whether a JSON text has at most [`ELEMENTS_MAX`] objects.
pub(crate) fn json_is_bounded(body: &[u8]) -> bool {
    body.iter().filter(|byte| **byte == b'{').count() <= ELEMENTS_MAX
}

fn count(mut body: &[u8], shape: &Shape, left: &mut usize) -> Option<()> {
    const GROUP_START: u64 = 3;
    const GROUP_END: u64 = 4;
    while !body.is_empty() && *left > 0 {
        let key = varint(&mut body)?;
        match key & 7 {
            0 => drop(varint(&mut body)?),
            1 => body = body.get(8..)?,
            2 => {
                let length = usize::try_from(varint(&mut body)?).ok()?;
                let (inside, after) = body.split_at_checked(length)?;
                body = after;
                let mut fields = shape.fields.iter();
                if let Some((_, shape)) = fields.find(|(number, _)| *number == key >> 3) {
                    *left = left.saturating_sub(1);
                    // A field of a leaf may be no message at all, but packed numbers.
                    if !shape.fields.is_empty() {
                        count(inside, shape, left)?;
                    }
                }
            }
            // Groups are not stored.
            GROUP_START | GROUP_END => {}
            5 => body = body.get(4..)?,
            _ => return None,
        }
    }
    Some(())
}

fn varint(body: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = body.split_first()?;
        *body = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::messages::{
        ExportMetricsServiceRequest, Gauge, Metric, MetricData, NumberDataPoint, ResourceMetrics,
        ScopeMetrics,
    };

    fn nested(metrics: Vec<Metric>) -> Vec<u8> {
        ExportMetricsServiceRequest {
            resource_metrics: vec![ResourceMetrics {
                resource: None,
                scope_metrics: vec![ScopeMetrics {
                    scope: None,
                    metrics,
                }],
            }],
        }
        .encode_to_vec()
    }

    #[test]
    fn empty_messages_are_counted_on_every_level() {
        let many = |n: usize| nested(vec![Metric::default(); n]);
        assert!(protobuf_is_bounded(&many(ELEMENTS_MAX - 3)));
        assert!(!protobuf_is_bounded(&many(ELEMENTS_MAX)));
        let points = |n: usize| {
            let data_points = vec![NumberDataPoint::default(); n];
            let data = Some(MetricData::Gauge(Gauge { data_points }));
            nested(vec![Metric {
                data,
                ..Metric::default()
            }])
        };
        assert!(protobuf_is_bounded(&points(1_000)));
        assert!(!protobuf_is_bounded(&points(ELEMENTS_MAX)));
        let resources = ExportMetricsServiceRequest {
            resource_metrics: vec![ResourceMetrics::default(); ELEMENTS_MAX + 1],
        };
        assert!(!protobuf_is_bounded(&resources.encode_to_vec()));
        assert!(json_is_bounded(b"{\"a\": [{}]}"));
        assert!(!json_is_bounded(&b"{".repeat(ELEMENTS_MAX + 1)));
    }

    #[test]
    fn what_is_no_message_is_left_to_the_reader() {
        for bytes in [&b""[..], &[0xff; 32], &[0x0a, 0x05, 0x01], &[0x0f]] {
            assert!(protobuf_is_bounded(bytes), "{bytes:?}");
        }
    }
}
