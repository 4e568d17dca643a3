//! Weights of Delphi, damaged in ways that their checksum does not reveal, and everything that is
//! done with weights. The tests and the fuzz target share it.

use std::sync::Arc;

use barograph_forecast::delphi::{RepairedDelphi, Weights, relative_errors};
use barograph_forecast::{Forecaster, ForecasterConfig, Predictor};

/// Overwrites parts of a valid text (each given as a place of two bytes, a length of one byte, and
/// that many bytes), and corrects its checksum.
pub(crate) fn overlay(mut edits: &[u8]) -> Vec<u8> {
    let mut text = Weights::built_in().to_text().into_bytes();
    let checksum = text.len() - "checksum 0123456789abcdef\n".len();
    text.truncate(checksum);
    while let [a, b, length, rest @ ..] = edits {
        let at = usize::from(u16::from_le_bytes([*a, *b])) % text.len();
        let (new, others) = rest.split_at(usize::from(*length).min(rest.len()));
        let room = new.len().min(text.len() - at);
        text[at..at + room].copy_from_slice(&new[..room]);
        edits = others;
    }
    let sum = text.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    text.extend_from_slice(format!("checksum {sum:016x}\n").as_bytes());
    text
}

/// Reads bytes: they are refused with a reason, or are weights that can be stored and used.
pub(crate) fn read(bytes: &[u8]) {
    let weights = match Weights::from_bytes(bytes) {
        Ok(weights) => weights,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    assert_eq!(
        Weights::from_bytes(weights.to_text().as_bytes()).as_ref(),
        Ok(&weights)
    );
    let weights = Arc::new(weights);
    let config = ForecasterConfig::default();
    let mut forecaster = Forecaster::with_delphi(config, Some(weights.clone()));
    let mut alone = RepairedDelphi::new(weights.clone());
    let mut values = Vec::new();
    for at in 0..80_u32 {
        let value = match at % 20 {
            7 => f64::MAX / 8.0,
            8 => -1e-300,
            15.. => 4.0,
            slow => f64::from(slow) * 1e3,
        };
        values.push(value);
        alone.observe(value);
        for steps in [1, 2, 16, 40, 100] {
            assert!(!alone.predict(steps).is_nan());
        }
        let ts_ns = i64::from(at) * config.step_ns;
        forecaster.observe(ts_ns, value);
        let said = forecaster.at(ts_ns + 5 * config.step_ns);
        assert!(said.is_none_or(|said| said.value.is_finite()));
    }
    relative_errors(&weights, &values, 40);
}
