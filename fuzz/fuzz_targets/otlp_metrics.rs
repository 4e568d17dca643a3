//! Parses any bytes as OTLP metrics, in protobuf and JSON: they are read or refused, within their
//! bounds.
#![no_main]

use barograph_bridge::{
    PointValue, POINTS_MAX, ParsedRequest, QUANTILES, read_otlp_json, read_otlp_protobuf,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    for parsed in [read_otlp_protobuf(body), read_otlp_json(body)] {
        parsed.map(look).unwrap_or_default();
    }
});

fn look(parsed: ParsedRequest) {
    assert!(parsed.points.len() <= POINTS_MAX);
    for point in parsed.points {
        if let PointValue::Distribution(distribution) = point.measured {
            for (q, _) in QUANTILES {
                if let Some((value, half)) = distribution.quantile(q) {
                    assert!(value.is_finite() && half >= 0.0);
                }
            }
        }
    }
}
