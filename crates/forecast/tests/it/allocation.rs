//! A sample allocates nothing.

use barograph_forecast::{Cascade, Forecaster, ForecasterConfig, Shape};

use crate::families::FAMILIES;
use barograph_testing::allocations;

#[test]
fn a_sample_and_what_is_asked_after_it_allocate_nothing() {
    for family in FAMILIES {
        let mut forecaster = Forecaster::new(ForecasterConfig::default());
        let values = family.values(1, 3000);
        forecaster.observe(0, values[0]);
        let allocated = allocations(|| {
            let mut ts_ns = 0;
            for (at, value) in values.iter().enumerate() {
                // Steps, gaps that are filled, gaps that are not, the same step.
                ts_ns += [1_000_000_000, 7_000_000_000, 100_000_000][at % 3];
                ts_ns += i64::from(at % 500 == 0) * 1_000_000_000_000;
                forecaster.observe(ts_ns, *value);
                std::hint::black_box(forecaster.at(ts_ns + 40_000_000_000));
                std::hint::black_box(forecaster.levels());
                std::hint::black_box(forecaster.half_width(5_000_000_000));
                std::hint::black_box(forecaster.coverage());
            }
        });
        assert_eq!(allocated, 0, "{}", family.name);
    }
}

#[test]
fn a_cascade_allocates_when_it_makes_a_coarser_forecaster_alone() {
    let mut cascade = Cascade::new(ForecasterConfig {
        shape: Shape::Counter,
        step_ns: 1000,
        ..ForecasterConfig::default()
    });
    let mut made = Vec::new();
    for at in 0..10_000i64 {
        let allocated = allocations(|| {
            cascade.observe_int(at * 1000, at * at);
            std::hint::black_box(cascade.at(at * 1000 + 1_000_000));
        });
        if allocated > 0 {
            made.push(at);
        }
    }
    assert_eq!(made.len(), 2, "{made:?}");
}
