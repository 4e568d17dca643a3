//! Reads any doubles as a projection: it is refused, or read the same again, and the forecast for
//! any time is sound or none.
#![no_main]

use barograph_model::Projection;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let (doubles, _) = input.as_chunks::<8>();
    let doubles: Vec<f64> = doubles.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect();
    let Some((asked, floats)) = doubles.split_first() else {
        return;
    };
    let Some(projection) = Projection::from_floats(floats) else {
        return;
    };
    assert_eq!(projection.to_floats(), floats);
    let knots = projection.knots();
    let between = knots.windows(2).map(|pair| pair[0].after_s.midpoint(pair[1].after_s));
    let there = knots.iter().map(|knot| knot.after_s);
    for after_s in there.chain(between).chain([*asked]) {
        let Some(knot) = projection.at(after_s) else {
            assert!(after_s.to_bits() == asked.to_bits(), "nothing is said within the knots");
            continue;
        };
        assert!(knot.after_s == after_s && knot.value.is_finite() && knot.half_width >= 0.0);
    }
});
