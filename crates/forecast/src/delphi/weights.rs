//! The weights of the repaired Delphi, and the text format in which they are stored.

pub(super) mod committed;

use std::sync::{Arc, OnceLock};

use barograph_model::fnv1a;
use thiserror::Error;

use committed::WEIGHTS;

/// Number of values before the newest that a feature sees.
pub(super) const WINDOW: usize = 16;
/// Number of horizons with their own weights.
pub(super) const HEADS: usize = 4;
/// The horizons, in steps.
pub const HORIZONS: [u32; HEADS] = [1, 4, 16, 64];
/// Features that are filters: concave, convex, sine, level, trend up, trend down, spike; and one
/// that is trained on all series.
pub(super) const FILTERS: usize = 8;
/// All features: the filters, the periodic step (which has a period instead of weights), and
/// persistence.
pub(super) const EXPERTS: usize = FILTERS + 2;
pub(super) const REST: usize = 7;
pub(super) const PERIODIC: usize = 8;
pub(super) const PERSISTENCE: usize = 9;

/// All trained parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Weights {
    /// For each horizon and each older value, newest first: its weight in each filter.
    pub filters: [[[f32; FILTERS]; WINDOW]; HEADS],
    /// For each horizon: the weight of each feature if all have the same recent error.
    pub trust: [[f32; EXPERTS]; HEADS],
}

/// Number of parameters.
pub const PARAMETERS: usize = HEADS * (FILTERS * WINDOW + EXPERTS);

const MAGIC: &str = "barograph-delphi 1";
/// Lines of a text: the first, one for each row of numbers, and the checksum.
const LINES: usize = 1 + HEADS * (WINDOW + 1) + 1;
/// Longest text that is read, in bytes.
pub const TEXT_LEN_MAX: usize = 64 * 1024;
/// Largest weight of a trained filter.
const FILTER_MAX: f32 = 64.0;
const TRUST_MIN: f32 = 1e-6;
const TRUST_MAX: f32 = 1e6;

/// The reason why a text was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WeightsError {
    /// The text is of another program, or of another version.
    #[error("line 1 is not '{MAGIC}': these are no weights, or of another version")]
    Magic,
    /// The text is longer than any weights.
    #[error("it is longer than {TEXT_LEN_MAX} bytes: no weights are")]
    Long,
    /// The bytes are not valid text.
    #[error("line {0} is not text: weights are")]
    Bytes(usize),
    /// The text was cut off or extended.
    #[error("it is not {LINES} whole lines: it was cut off or added to, train them again")]
    Lines,
    /// A line has no number, or one that no training gives.
    #[error("line {0} is not as training writes it: train them again")]
    Line(usize),
    /// A part of the text was changed.
    #[error(
        "line {LINES}, the checksum, is not that of the lines before: something was changed, train them again"
    )]
    Checksum,
}

impl Weights {
    /// Returns the weights of our training.
    pub fn built_in() -> Arc<Self> {
        static COMMITTED: OnceLock<Arc<Weights>> = OnceLock::new();
        COMMITTED.get_or_init(|| Arc::new(WEIGHTS)).clone()
    }

    /// Returns weights that predict the last value.
    pub fn zero() -> Self {
        Self {
            filters: [[[0.0; FILTERS]; WINDOW]; HEADS],
            trust: [[1.0; EXPERTS]; HEADS],
        }
    }

    /// Writes one line for each older value and each horizon, then the trust, then a checksum of
    /// all before. Reading it gives the same bits again.
    pub fn to_text(&self) -> String {
        let mut text = format!("{MAGIC}\n");
        for head in 0..HEADS {
            for row in &self.filters[head] {
                push_line(&mut text, "filter", row);
            }
            push_line(&mut text, "trust", &self.trust[head]);
        }
        let checksum = fnv1a(text.as_bytes());
        text.push_str(&format!("checksum {checksum:016x}\n"));
        text
    }

    /// Reads the bytes of a file of unknown content.
    ///
    /// # Errors
    /// If they are not weights in this format.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, WeightsError> {
        if bytes.len() > TEXT_LEN_MAX {
            return Err(WeightsError::Long);
        }
        let line_of = |valid: usize| 1 + bytes[..valid].iter().filter(|b| **b == b'\n').count();
        let text = std::str::from_utf8(bytes)
            .map_err(|error| WeightsError::Bytes(line_of(error.valid_up_to())))?;
        if text.split('\n').next() != Some(MAGIC) {
            return Err(WeightsError::Magic);
        }
        let ends = text.matches('\n').count();
        let body = text.strip_suffix('\n').filter(|_| ends == LINES);
        let body = body.ok_or(WeightsError::Lines)?;
        let mut lines = body.split('\n').enumerate().skip(1);
        let mut weights = Self::zero();
        for head in 0..HEADS {
            for row in &mut weights.filters[head] {
                read_line(lines.next(), "filter", row, |weight| {
                    weight.abs() <= FILTER_MAX
                })?;
            }
            let trust = &mut weights.trust[head];
            read_line(lines.next(), "trust", trust, |trust| {
                (TRUST_MIN..=TRUST_MAX).contains(&trust)
            })?;
        }
        let last = lines.next().map_or("", |(_, line)| line);
        // The end of the line is part of the summed bytes.
        let summed = &bytes[..body.len() - last.len()];
        if last != format!("checksum {:016x}", fnv1a(summed)) {
            return Err(WeightsError::Checksum);
        }
        Ok(weights)
    }
}

fn push_line(text: &mut String, key: &str, numbers: &[f32]) {
    text.push_str(key);
    for number in numbers {
        text.push_str(&format!(" {number:e}"));
    }
    text.push('\n');
}

fn read_line(
    line: Option<(usize, &str)>,
    key: &str,
    numbers: &mut [f32],
    sane: impl Fn(f32) -> bool,
) -> Result<(), WeightsError> {
    let (at, line) = line.unwrap_or((0, ""));
    let wrong = WeightsError::Line(at + 1);
    let mut words = line.split(' ');
    if words.next() != Some(key) {
        return Err(wrong);
    }
    for number in numbers {
        let word = words.next().ok_or(wrong.clone())?;
        *number = word
            .parse()
            .ok()
            .filter(|number| sane(*number))
            .ok_or(wrong.clone())?;
    }
    if words.next().is_some() {
        Err(wrong)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parameters_are_few() {
        assert_eq!(PARAMETERS, 552);
    }

    #[test]
    fn text_gives_the_same_bits_again() {
        let text = WEIGHTS.to_text();
        assert_eq!(Weights::from_bytes(text.as_bytes()), Ok(WEIGHTS));
        assert!(text.len() < TEXT_LEN_MAX / 4);
    }

    /// Reads a changed text with a matching checksum.
    fn signed(text: &str) -> Result<Weights, WeightsError> {
        let (body, _) = text.trim_end().rsplit_once('\n').unwrap();
        let body = format!("{body}\n");
        Weights::from_bytes(format!("{body}checksum {:016x}\n", fnv1a(body.as_bytes())).as_bytes())
    }

    #[test]
    fn what_is_not_ours_is_refused_with_a_reason() {
        let text = WEIGHTS.to_text();
        let check = |changed: &str, expect: &WeightsError| {
            assert_eq!(
                Weights::from_bytes(changed.as_bytes()).as_ref(),
                Err(expect)
            );
        };
        check("", &WeightsError::Magic);
        check("barograph-delphi 2\n", &WeightsError::Magic);
        check(text.trim_end(), &WeightsError::Lines);
        check(&format!("{text}\n"), &WeightsError::Lines);
        let changed = text.replacen("filter 3", "filter 4", 1);
        check(&changed, &WeightsError::Checksum);
        check(&"x".repeat(TEXT_LEN_MAX + 1), &WeightsError::Long);
        let error = Weights::from_bytes(b"barograph-delphi 1\n\xff").unwrap_err();
        assert_eq!(error.to_string(), "line 2 is not text: weights are");
        let second = text.lines().nth(1).unwrap();
        for line in [
            "filter",
            "trust 1",
            "filter 1 2 3 4 5 6 7 NaN",
            "filter 1 2 3 4 5 6 7 65",
        ] {
            assert_eq!(
                signed(&text.replacen(second, line, 1)),
                Err(WeightsError::Line(2)),
                "{line}"
            );
        }
        let trust = text.lines().nth(17).unwrap();
        let nought = "trust 0 0 0 0 0 0 0 0 0 0";
        assert_eq!(
            signed(&text.replacen(trust, nought, 1)),
            Err(WeightsError::Line(18))
        );
        assert_eq!(signed(&text), Ok(WEIGHTS));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            prop_assert!(Weights::from_bytes(&bytes).is_err());
            let mut ours = format!("{MAGIC}\n").into_bytes();
            ours.extend(bytes);
            prop_assert!(Weights::from_bytes(&ours).is_err());
        }

        #[test]
        fn one_changed_byte_is_noticed(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut bytes = WEIGHTS.to_text().into_bytes();
            let at = at.index(bytes.len());
            prop_assume!(bytes[at] != byte);
            bytes[at] = byte;
            prop_assert!(Weights::from_bytes(&bytes).is_err());
        }
    }
}
