//! The kernel's values of the clock: `adjtimex` without changes, or a recording of `adjtimex
//! --print`.

use rtime_clock::adjtime::{Timex, adjtimex};

use super::State;
use crate::SourceError;
use crate::util::command::{Commands, Program, Refusal};
use crate::util::file::SysRoot;
use crate::util::parse::{cut, escape, lines};

/// The program of which recordings are read; on this machine the kernel is called instead.
const ADJTIMEX: Program = Program {
    name: "adjtimex",
    paths: &["/sbin/adjtimex", "/usr/sbin/adjtimex"],
};
/// Status bit: nothing synchronises the clock.
const STA_UNSYNC: i64 = 0x0040;
/// Status bit: the offset is in nanoseconds, not microseconds.
const STA_NANO: i64 = 0x2000;
/// The return value for a clock that is not synchronised, or whose reference failed.
const TIME_ERROR: i64 = 5;
/// Unit of the kernel's frequency: 2^-16 ppm.
const FREQUENCY_UNIT: f64 = 1e-6 / 65_536.0;

/// The fields of `struct timex` that are used, unconverted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Kernel {
    offset: i64,
    frequency: i64,
    error_max_us: i64,
    error_estimated_us: i64,
    status: i64,
    answer: i64,
}

/// The reason why there are no values.
#[derive(Debug)]
pub(super) enum ClockRefusal {
    Missing(String),
    Format(SourceError),
}

pub(super) fn read(root: &SysRoot, commands: &Commands) -> Result<Kernel, ClockRefusal> {
    if root.is_real() {
        return ask().map_err(|e| ClockRefusal::Missing(format!("adjtimex: {e}")));
    }
    match commands.run(ADJTIMEX, &["--print"], ADJTIMEX.name) {
        Ok(text) => parse(&text).map_err(|reason| {
            ClockRefusal::Format(SourceError::Format {
                what: "adjtimex --print".to_owned(),
                reason,
            })
        }),
        Err(Refusal::Absent) => Err(ClockRefusal::Missing("no recording of it".to_owned())),
        Err(other) => Err(ClockRefusal::Format(other.into_fault(ADJTIMEX.name))),
    }
}

/// Calls `adjtimex`. A new `Timex` has no modes: the call changes nothing and needs no right.
fn ask() -> std::io::Result<Kernel> {
    let mut timex = Timex::new();
    let answer = adjtimex(&mut timex)?;
    Ok(Kernel {
        offset: timex.0.offset,
        frequency: timex.0.freq,
        error_max_us: timex.0.maxerror,
        error_estimated_us: timex.0.esterror,
        status: i64::from(timex.0.status),
        answer: i64::from(answer),
    })
}

/// Parses lines of `KEY: NUMBER`, and `return value = NUMBER` at the end.
fn parse(text: &[u8]) -> Result<Kernel, String> {
    const KEYS: [&[u8]; 6] = [
        b"offset",
        b"frequency",
        b"maxerror",
        b"esterror",
        b"status",
        b"return value",
    ];
    let mut values = [None; KEYS.len()];
    for line in lines(text) {
        let Some(mark) = line.iter().position(|b| matches!(*b, b':' | b'=')) else {
            continue;
        };
        let key = line[..mark].trim_ascii();
        let Some(place) = KEYS.iter().position(|wanted| *wanted == key) else {
            continue;
        };
        let digits = std::str::from_utf8(line[mark + 1..].trim_ascii());
        let value = digits.ok().and_then(|v| v.parse::<i64>().ok());
        let value = value.ok_or_else(|| format!("{} is no number", escape(key)))?;
        values[place] = Some(value);
    }
    if !cut(text).is_empty() {
        return Err("it was cut".to_owned());
    }
    let [
        Some(offset),
        Some(frequency),
        Some(error_max_us),
        Some(error_estimated_us),
        Some(status),
        Some(answer),
    ] = values
    else {
        return Err("lines are missing".to_owned());
    };
    Ok(Kernel {
        offset,
        frequency,
        error_max_us,
        error_estimated_us,
        status,
        answer,
    })
}

impl Kernel {
    pub(super) fn state(&self) -> State {
        let synchronised = self.status & STA_UNSYNC == 0 && self.answer != TIME_ERROR;
        let unit = match self.status & STA_NANO {
            0 => 1e-6,
            _ => 1e-9,
        };
        let microseconds = |us: i64| (us >= 0).then_some(us as f64 * 1e-6);
        let known = |v: f64| synchronised.then_some(v);
        State {
            synchronised: Some(synchronised),
            // The kernel's offset is still to be added to the clock: the clock is behind by that
            // much.
            offset: known(0.0 - self.offset as f64 * unit),
            error_max: microseconds(self.error_max_us).and_then(known),
            error_estimated: microseconds(self.error_estimated_us).and_then(known),
            // The kernel's frequency is added to the clock's own rate: the clock is slow by that
            // much.
            frequency: Some(0.0 - self.frequency as f64 * FREQUENCY_UNIT),
            ..State::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "         mode: 0
       offset: -125000
    frequency: 1310720
     maxerror: 215000
     esterror: 1200
       status: 8193
time_constant: 6
    precision: 1
    tolerance: 32768000
         tick: 10000
     raw time:  1700000000s 250000000us = 1700000000.250000000
 return value = 0
";

    #[test]
    fn signs_and_units() {
        let kernel = parse(TEXT.as_bytes()).unwrap();
        let state = kernel.state();
        assert_eq!(state.synchronised, Some(true));
        assert!((state.offset.unwrap() - 125e-6).abs() < 1e-15, "{state:?}");
        assert!((state.frequency.unwrap() + 20e-6).abs() < 1e-15);
        assert!((state.error_max.unwrap() - 0.215).abs() < 1e-12);
        assert!((state.error_estimated.unwrap() - 0.0012).abs() < 1e-12);
        let micro = Kernel {
            status: 1,
            ..kernel
        };
        assert!((micro.state().offset.unwrap() - 0.125).abs() < 1e-12);
    }

    #[test]
    fn an_unsynchronised_clock_has_no_offset_and_no_bound() {
        let kernel = parse(TEXT.as_bytes()).unwrap();
        let unsync = Kernel {
            status: 8193 | STA_UNSYNC,
            ..kernel
        };
        let error = Kernel {
            answer: TIME_ERROR,
            ..kernel
        };
        for kernel in [unsync, error] {
            let state = kernel.state();
            assert_eq!(state.synchronised, Some(false));
            assert_eq!(
                (state.offset, state.error_max, state.error_estimated),
                (None, None, None)
            );
        }
    }

    #[test]
    fn extremes() {
        let kernel = Kernel {
            offset: i64::MIN,
            frequency: i64::MIN,
            error_max_us: i64::MIN,
            error_estimated_us: i64::MAX,
            ..Kernel::default()
        };
        let state = kernel.state();
        assert_eq!(state.error_max, None);
        assert!(state.offset.unwrap().is_finite() && state.error_estimated.unwrap().is_finite());
    }

    #[test]
    fn recordings_that_are_cut_or_worded_otherwise_are_refused() {
        for end in 0..TEXT.len() {
            assert!(parse(&TEXT.as_bytes()[..end]).is_err(), "cut at {end}");
        }
        for (from, to) in [
            ("215000", "215,000"),
            ("215000", "0.215"),
            ("maxerror", "maxfehler"),
            ("1200", "99999999999999999999"),
        ] {
            assert!(
                parse(TEXT.replacen(from, to, 1).as_bytes()).is_err(),
                "{from} -> {to}"
            );
        }
    }

    /// The kernel answers every user, whatever the state of this machine's clock.
    #[test]
    fn this_machine() {
        let kernel = ask().unwrap();
        assert!((0..=5).contains(&kernel.answer), "{kernel:?}");
        assert_eq!(
            kernel.answer == TIME_ERROR,
            kernel.state().synchronised == Some(false)
        );
    }
}
