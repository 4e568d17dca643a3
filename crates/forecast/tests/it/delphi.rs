//! Foreign weights, and a forecaster with Delphi.

use std::sync::Arc;

use barograph_forecast::delphi::Weights;
use barograph_forecast::{Forecaster, ForecasterConfig};
use proptest::prelude::*;

use crate::exercise::{overlay, read};
use crate::families::FAMILIES;

#[test]
fn delphi_is_a_member_where_there_are_weights() {
    let config = ForecasterConfig::default();
    let names = |forecaster: Forecaster| -> Vec<&str> {
        let levels = forecaster.explain().levels;
        levels[0].members.iter().map(|member| member.name).collect()
    };
    assert!(!names(Forecaster::new(config)).contains(&"delphi"));
    let with = Forecaster::with_delphi(config, Some(Weights::built_in()));
    assert_eq!(names(with).last(), Some(&"delphi"));
}

/// Whatever the weights are, persistence bounds the error.
#[test]
fn bad_weights_cost_hardly_more_than_persistence() {
    let mut bad = Weights::zero();
    bad.filters
        .as_flattened_mut()
        .as_flattened_mut()
        .fill(-60.0);
    bad.trust[0].fill(1e6);
    let bad = Arc::new(bad);
    for family in FAMILIES {
        let values = family.values(3, 2_000);
        let config = ForecasterConfig::default();
        let mut forecaster = Forecaster::with_delphi(config, Some(bad.clone()));
        let (mut said, mut stays) = (0.0, 0.0);
        for (at, pair) in values.windows(2).enumerate() {
            forecaster.observe(at as i64 * config.step_ns, pair[0]);
            let next = forecaster.levels()[0].map_or(pair[0], |level| level.value);
            said += (next - pair[1]).abs();
            stays += (pair[0] - pair[1]).abs();
        }
        assert!(
            said <= 1.011 * stays + 1e-9,
            "{} {said} {stays}",
            family.name
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_edits_make_weights_unsound(
        edits in prop::collection::vec(any::<u8>(), 0..60),
        at in any::<u16>(),
        digits in "[0-9.e\\- ]{1,12}",
    ) {
        read(&edits);
        read(&overlay(&edits));
        let written = [&at.to_le_bytes()[..], &[digits.len() as u8], digits.as_bytes()].concat();
        read(&overlay(&written));
    }
}
