//! The output of `chronyc -c tracking`: one line of 14 fields, in the order of the report of the
//! same name.

use super::State;
use crate::util::command::{Commands, Program, Refusal};
use crate::util::parse::{decimal, escape, lines, number};

const CHRONYC: Program = Program {
    name: "chronyc",
    paths: &["/usr/bin/chronyc", "/usr/sbin/chronyc", "/bin/chronyc"],
};
/// One part per million.
const PPM: f64 = 1e-6;
/// The reference id of a clock that follows itself (`local` in chrony.conf). Its errors are printed
/// as 0, but it is synchronised to nothing.
const LOCAL: &[u8] = b"7F7F0101";

/// The fields of the line that are used.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tracking {
    source: Option<String>,
    stratum: u64,
    /// True time minus the clock's: positive when the clock is slow.
    slow_seconds: f64,
    rms_seconds: f64,
    /// Frequency error: positive when the clock would run too fast.
    fast_ppm: f64,
    skew_ppm: f64,
    root_delay_seconds: f64,
    root_dispersion_seconds: f64,
    synchronised: bool,
}

/// Runs the program. `-n` avoids that names are looked up.
pub(super) fn ask(commands: &Commands) -> Result<Vec<u8>, Refusal> {
    commands.run(CHRONYC, &["-n", "-c", "tracking"], "chronyc-tracking")
}

impl Tracking {
    /// Parses the line. A decimal comma, a missing or additional field, or another word is refused.
    pub(super) fn parse(answer: &[u8]) -> Result<Self, String> {
        let mut all = lines(answer);
        let line = all.next().ok_or("it printed no whole line")?;
        let fields: Vec<&[u8]> = line.split(|b| *b == b',').collect();
        let [
            id,
            name,
            stratum,
            _time,
            slow,
            _last,
            rms,
            fast,
            _residual,
            skew,
            delay,
            dispersion,
            _interval,
            leap,
        ] = fields[..]
        else {
            return Err(format!("{} fields, not 14", fields.len()));
        };
        let synchronised = match leap {
            b"Normal" | b"Insert second" | b"Delete second" => true,
            b"Not synchronised" => false,
            other => return Err(format!("the leap status is {:?}", escape(other))),
        };
        let bad = |what: &str| format!("the field of the {what} is no number");
        let is_local = id == LOCAL && name.is_empty();
        let source = match name {
            b"" if is_local => Some("local".to_owned()),
            b"" => None,
            name => Some(escape(name)),
        };
        Ok(Self {
            source,
            stratum: number(stratum).ok_or_else(|| bad("stratum"))?,
            slow_seconds: signed(slow).ok_or_else(|| bad("offset"))?,
            rms_seconds: decimal(rms).ok_or_else(|| bad("rms offset"))?,
            fast_ppm: signed(fast).ok_or_else(|| bad("frequency"))?,
            skew_ppm: decimal(skew).ok_or_else(|| bad("skew"))?,
            root_delay_seconds: decimal(delay).ok_or_else(|| bad("root delay"))?,
            root_dispersion_seconds: decimal(dispersion).ok_or_else(|| bad("root dispersion"))?,
            synchronised: synchronised && !is_local,
        })
    }

    pub(super) fn state(&self) -> State {
        let frequency = Some(self.fast_ppm * PPM);
        if !self.synchronised {
            return State {
                synchronised: Some(false),
                frequency,
                source: self.source.clone(),
                ..State::default()
            };
        }
        let bound =
            self.slow_seconds.abs() + self.root_dispersion_seconds + self.root_delay_seconds / 2.0;
        State {
            synchronised: Some(true),
            // Not `-`: that would give a negative zero.
            offset: Some(0.0 - self.slow_seconds),
            error_max: Some(bound),
            error_estimated: Some(self.rms_seconds),
            frequency,
            source: self.source.clone(),
            stratum: Some(self.stratum),
            root_delay: Some(self.root_delay_seconds),
            root_dispersion: Some(self.root_dispersion_seconds),
            skew: Some(self.skew_ppm * PPM),
        }
    }
}

fn signed(field: &[u8]) -> Option<f64> {
    match field.strip_prefix(b"-") {
        Some(rest) => decimal(rest).map(|v| -v),
        None => decimal(field),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "CB00710F,203.0.113.15,3,1485510557.117653041,0.000006523,-0.000006747,0.000035822,-3.225,-0.000,0.129,0.013639022,0.001100737,64.2,Normal\n";

    #[test]
    fn the_example_of_the_manual() {
        let state = Tracking::parse(LINE.as_bytes()).unwrap().state();
        // Values of the report: "0.000006523 seconds slow", "3.225 ppm slow".
        let bound = 0.000006523 + 0.001100737 + 0.006819511;
        assert_eq!(state.offset, Some(-0.000006523));
        assert!(
            (state.error_max.unwrap() - bound).abs() < 1e-12,
            "{state:?}"
        );
        assert_eq!(state.error_estimated, Some(0.000035822));
        assert!((state.frequency.unwrap() + 3.225e-6).abs() < 1e-15);
        assert!((state.skew.unwrap() - 0.129e-6).abs() < 1e-15);
        assert_eq!(state.source.as_deref(), Some("203.0.113.15"));
        assert_eq!((state.stratum, state.synchronised), (Some(3), Some(true)));
    }

    /// Lines as chrony 4.3 printed them.
    #[test]
    fn a_clock_that_follows_itself_and_one_that_follows_nothing() {
        let local = "7F7F0101,,8,1795286312.049008297,0.000000000,0.000000000,0.000000000,0.000,0.000,0.000,0.000000000,0.000000000,0.0,Normal\n";
        let state = Tracking::parse(local.as_bytes()).unwrap().state();
        let expect = State {
            synchronised: Some(false),
            frequency: Some(0.0),
            source: Some("local".to_owned()),
            ..State::default()
        };
        assert_eq!(state, expect);
        let none = "00000000,,0,0.000000000,0.000000000,0.000000000,0.000000000,36.149,0.000,0.000,1.000000000,1.000000000,0.0,Not synchronised\n";
        let state = Tracking::parse(none.as_bytes()).unwrap().state();
        let expect = State {
            synchronised: Some(false),
            frequency: Some(36.149 * PPM),
            ..State::default()
        };
        assert_eq!(state, expect);
    }

    #[test]
    fn what_is_not_the_programs_own_format_is_refused() {
        for (from, to) in [
            ("0.000006523", "0,000006523"),
            ("0.000006523", "nan"),
            ("0.000006523", "inf"),
            ("0.000006523", "1e-6"),
            ("0.000006523", "--1"),
            ("0.129", "-0.129"),
            (",3,", ",-3,"),
            (",3,", ",99999999999999999999,"),
            ("Normal", "Normalbetrieb"),
            ("Normal", ""),
            ("CB00710F,", ""),
            ("Normal", "Normal,1"),
        ] {
            let changed = LINE.replacen(from, to, 1);
            assert!(
                Tracking::parse(changed.as_bytes()).is_err(),
                "{from} -> {to}"
            );
        }
        for end in 0..LINE.len() {
            assert!(Tracking::parse(&LINE.as_bytes()[..end]).is_err(), "{end}");
        }
    }
}
