//! Policies (`[[policy]]`, CREATE POLICY) as people write them: the error that a reader tolerates
//! in forecasts between looks, for streams that need not be looked at often. They are checked here,
//! so that configuration and statements are refused with the same messages.

use barograph_forecast::interval::{ErrorBound, INTERVAL_NS_MAX, INTERVAL_NS_MIN};
use barograph_model::{Level, NAME_BYTES_MAX, NS_PER_MS, Selector, duration_ns};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Most patterns of one policy.
pub const POLICY_STREAMS_MAX: usize = 64;
/// Longest text of a pattern, an error or a trigger, in bytes.
pub const POLICY_TEXT_BYTES_MAX: usize = 1024;

const NS_PER_US: i64 = 1_000;

/// The kind of an interval policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PolicySpecKind {
    /// The longest interval with which forecasts between looks stay within `error` for `confidence`
    /// of the time.
    #[default]
    ErrorBounded,
    /// Always `interval_min_ms`.
    Fixed,
    /// Longer while each value is close to the previous one, shorter when it is not.
    AimdSimple,
    /// Longer while each change is close to the average change, shorter when it is not.
    AimdComplex,
}

impl PolicySpecKind {
    /// The name of the kind in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ErrorBounded => "error_bounded",
            Self::Fixed => "fixed",
            Self::AimdSimple => "aimd_simple",
            Self::AimdComplex => "aimd_complex",
        }
    }

    /// The kind of this name in the configuration; `None` for an unknown name.
    pub fn parse(word: &str) -> Option<Self> {
        let all = [
            Self::ErrorBounded,
            Self::Fixed,
            Self::AimdSimple,
            Self::AimdComplex,
        ];
        all.into_iter().find(|kind| kind.as_str() == word)
    }
}

/// The streams that may be looked at seldom, and the error that their forecasts between looks may
/// have. The first policy that matches a stream counts: policies made by statement come before
/// those of the configuration, each in the order of their names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PolicySpec {
    /// Name of the policy: lower-case letters, digits, dots and underscores.
    pub name: String,
    /// Streams of sources to which the policy applies: patterns of names, with labels if wanted
    /// (`disk.*{device=sda}`).
    pub streams: Vec<String>,
    /// `error_bounded`, `fixed`, `aimd_simple` or `aimd_complex`.
    pub kind: PolicySpecKind,
    /// Greatest error of a forecast between looks: `1 %` of the value, or an amount in the
    /// stream's unit (`0.5`, `10 MiB`, `20 ms`). Required by `error_bounded`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Share of the time for which forecasts must stay within `error`, 0.5 to 0.999.
    pub confidence: f64,
    /// The shortest time between looks, in milliseconds, 1 to 86400000; for `fixed`, the time
    /// between looks.
    pub interval_min_ms: u64,
    /// The longest time between looks, in milliseconds.
    pub interval_max_ms: u64,
    /// A stream that is cheap to read and moves with these streams, like
    /// `disk.write.bytes{device=vda}`: these streams are looked at when it has moved by more than
    /// the error allows, and their values are derived from it meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sentinel: Option<String>,
    /// A pressure stall that causes an immediate look: the kernel reports when tasks waited this
    /// long within this window, like `io some 150ms 2s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pressure: Option<String>,
    /// Weight of wrong forecasts of these streams, relative to other policies, when the budget for
    /// looks is shared.
    pub weight: f64,
}

impl Default for PolicySpec {
    fn default() -> Self {
        Self {
            name: String::new(),
            streams: Vec::new(),
            kind: PolicySpecKind::default(),
            error: None,
            confidence: 0.9,
            interval_min_ms: 1_000,
            interval_max_ms: 60_000,
            sentinel: None,
            pressure: None,
            weight: 1.0,
        }
    }
}

/// The reason why a policy is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("policy {name}: {field}: {reason}")]
pub struct PolicyFault {
    /// Name of the policy.
    pub name: String,
    /// The field that is wrong.
    pub field: &'static str,
    /// The fault, and a value that would be right.
    pub reason: String,
}

impl PolicySpec {
    /// Refuses a policy that could not be followed; the error names the field and the reason.
    pub fn check(&self) -> Result<(), PolicyFault> {
        self.check_name()?;
        self.selectors()?;
        let bound = self.bound()?;
        let sentinel = self.sentinel()?;
        let pressure = self.pressure()?;
        let is_bounded = self.kind == PolicySpecKind::ErrorBounded;
        if is_bounded && bound.is_none() {
            let reason = "is missing: say how far off is still right, like \"1 %\" or \"10 MiB\"";
            return Err(self.fault("error", reason));
        }
        if !is_bounded && bound.is_some() {
            return Err(self.fault("error", "only error_bounded keeps within one"));
        }
        if !is_bounded && sentinel.is_some() {
            return Err(self.fault("sentinel", "only error_bounded can follow one"));
        }
        if self.kind == PolicySpecKind::Fixed && pressure.is_some() {
            let reason = "a fixed interval has no room for calls: choose error_bounded, aimd_simple or aimd_complex";
            return Err(self.fault("pressure", reason));
        }
        if !(0.5..=0.999).contains(&self.confidence) {
            return Err(self.fault("confidence", "must be 0.5 to 0.999"));
        }
        if !(self.weight > 0.0 && self.weight <= 1e6) {
            return Err(self.fault("weight", "must be more than 0, at most 1000000"));
        }
        let bounds_ms = (INTERVAL_NS_MIN / NS_PER_MS) as u64..=(INTERVAL_NS_MAX / NS_PER_MS) as u64;
        for (field, ms) in [
            ("interval_min_ms", self.interval_min_ms),
            ("interval_max_ms", self.interval_max_ms),
        ] {
            if !bounds_ms.contains(&ms) {
                return Err(self.fault(field, "must be 1 to 86400000"));
            }
        }
        if self.interval_max_ms < self.interval_min_ms {
            return Err(self.fault("interval_max_ms", "must not be below interval_min_ms"));
        }
        Ok(())
    }

    /// The patterns of `streams`, parsed.
    pub fn selectors(&self) -> Result<Vec<Selector>, PolicyFault> {
        if self.streams.is_empty() {
            let reason =
                "is empty: name a stream or a pattern, like \"filesystem.available.bytes\"";
            return Err(self.fault("streams", reason));
        }
        if self.streams.len() > POLICY_STREAMS_MAX {
            let reason = format!("at most {POLICY_STREAMS_MAX} patterns");
            return Err(self.fault("streams", reason));
        }
        let parse = |text: &String| self.selector("streams", text);
        self.streams.iter().map(parse).collect()
    }

    /// The greatest error of a forecast, parsed from `error`.
    pub fn bound(&self) -> Result<Option<ErrorBound>, PolicyFault> {
        let Some(text) = &self.error else {
            return Ok(None);
        };
        match parse_bound(text) {
            Some(bound) => Ok(Some(bound)),
            None => Err(self.fault(
                "error",
                format!(
                    "{:?} is neither a share like \"1 %\" nor a number of at least 0 with or without a unit like \"10 MiB\"",
                    cut(text)
                ),
            )),
        }
    }

    /// The cheap stream that is watched, parsed from `sentinel`.
    pub fn sentinel(&self) -> Result<Option<Selector>, PolicyFault> {
        let parse = |text: &String| self.selector("sentinel", text);
        self.sentinel.as_ref().map(parse).transpose()
    }

    /// The pressure at which the kernel wakes the agent, parsed from `pressure`.
    pub fn pressure(&self) -> Result<Option<PressureTrigger>, PolicyFault> {
        let parse = |text: &String| {
            PressureTrigger::parse(text).map_err(|reason| self.fault("pressure", reason))
        };
        self.pressure.as_ref().map(parse).transpose()
    }

    /// The shortest time between looks, in ns.
    pub fn min_ns(&self) -> i64 {
        ns(self.interval_min_ms)
    }

    /// The longest time between looks, in ns.
    pub fn max_ns(&self) -> i64 {
        ns(self.interval_max_ms)
    }

    fn check_name(&self) -> Result<(), PolicyFault> {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._".contains(&b);
        let is_plain = !self.name.is_empty() && self.name.bytes().all(plain);
        if !is_plain || self.name.len() > NAME_BYTES_MAX {
            let reason = format!(
                "must be lower-case letters, digits, dots and underscores, at most {NAME_BYTES_MAX}"
            );
            return Err(self.fault("name", reason));
        }
        Ok(())
    }

    fn selector(&self, field: &'static str, text: &str) -> Result<Selector, PolicyFault> {
        if text.len() > POLICY_TEXT_BYTES_MAX {
            let reason = format!("a pattern of more than {POLICY_TEXT_BYTES_MAX} bytes");
            return Err(self.fault(field, reason));
        }
        Selector::parse(text).map_err(|e| self.fault(field, e.to_string()))
    }

    fn fault(&self, field: &'static str, reason: impl Into<String>) -> PolicyFault {
        PolicyFault {
            name: if self.name.is_empty() {
                "without a name".into()
            } else {
                cut(&self.name)
            },
            field,
            reason: reason.into(),
        }
    }
}

/// The resource for which tasks wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PressureOf {
    /// Tasks wait for a processor.
    Cpu,
    /// Tasks wait for memory.
    Memory,
    /// Tasks wait for storage.
    Io,
}

impl PressureOf {
    /// The name of the file in `/proc/pressure`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Io => "io",
        }
    }
}

/// The pressure that the kernel is asked to report (`Documentation/accounting/psi.rst`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PressureTrigger {
    /// The resource for which tasks wait.
    pub of: PressureOf,
    /// Whether all tasks that could run must wait at once (`full`); otherwise some (`some`).
    pub is_full: bool,
    /// Time that tasks waited within the window, in microseconds.
    pub stall_us: i64,
    /// Length of the window, in microseconds.
    pub window_us: i64,
}

impl PressureTrigger {
    /// Parses a text like `io some 150ms 2s`. The error states what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().take(5).collect();
        let [of, share, stall, window] = words[..] else {
            return Err("must be like \"io some 150ms 2s\"".into());
        };
        let of = match of {
            "cpu" => PressureOf::Cpu,
            "memory" => PressureOf::Memory,
            "io" => PressureOf::Io,
            _ => return Err("begins with cpu, memory or io".into()),
        };
        let is_full = match share {
            "some" => false,
            "full" => true,
            _ => return Err("the second word is some or full".into()),
        };
        let us = |text| match duration_ns(text) {
            Ok(ns) => Ok(ns / NS_PER_US),
            Err(error) => Err(error.to_string()),
        };
        let (stall_us, window_us) = (us(stall)?, us(window)?);
        // The bounds are the kernel's own.
        if !(500_000..=10_000_000).contains(&window_us) {
            return Err(
                "the window must be 500ms to 10s; without privilege, a multiple of 2s".into(),
            );
        }
        if !(1..=window_us).contains(&stall_us) {
            return Err("the wait must be at least 1us, and not above its window".into());
        }
        Ok(Self {
            of,
            is_full,
            stall_us,
            window_us,
        })
    }

    /// The request to write to the kernel's file, without the zero byte that ends it.
    pub fn request(&self) -> String {
        let share = if self.is_full { "full" } else { "some" };
        format!("{share} {} {}", self.stall_us, self.window_us)
    }
}

/// Parses an error bound such as `1 %`, `0.5` or `10 MiB`; it must not be negative.
fn parse_bound(text: &str) -> Option<ErrorBound> {
    if text.len() > POLICY_TEXT_BYTES_MAX {
        return None;
    }
    let bound = match Level::parse(text).ok()? {
        Level::Absolute(most) => ErrorBound::Absolute(most),
        Level::Share(share) => ErrorBound::Relative(share),
    };
    let (ErrorBound::Absolute(most) | ErrorBound::Relative(most)) = bound;
    (most >= 0.0).then_some(bound)
}

fn ns(ms: u64) -> i64 {
    i64::try_from(ms.saturating_mul(NS_PER_MS.unsigned_abs())).unwrap_or(i64::MAX)
}

fn cut(text: &str) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> PolicySpec {
        PolicySpec {
            name: "full".into(),
            streams: vec!["filesystem.available.bytes{mount=/*}".into()],
            error: Some("1 %".into()),
            ..PolicySpec::default()
        }
    }

    #[test]
    fn bounds_are_shares_or_have_units() {
        for (text, expect) in [
            ("1 %", Some(ErrorBound::Relative(0.01))),
            ("0.5%", Some(ErrorBound::Relative(0.005))),
            ("10 MiB", Some(ErrorBound::Absolute(10.0 * 1_048_576.0))),
            ("2GB", Some(ErrorBound::Absolute(2e9))),
            (" 0.5 ", Some(ErrorBound::Absolute(0.5))),
            ("1e3", Some(ErrorBound::Absolute(1000.0))),
            ("20 ms", Some(ErrorBound::Absolute(0.02))),
            ("2 k", Some(ErrorBound::Absolute(2000.0))),
            ("0", Some(ErrorBound::Absolute(0.0))),
            ("-1", None),
            ("-1 %", None),
            ("", None),
            ("%", None),
            ("NaN", None),
            ("inf", None),
            ("1e400", None),
            ("1e300 PiB", None),
            ("1 mib", None),
            ("1 % %", None),
        ] {
            assert_eq!(parse_bound(text), expect, "{text}");
        }
    }

    #[test]
    fn what_could_not_be_followed_is_refused_with_its_field() {
        assert_eq!(spec().check(), Ok(()));
        let check = |change: &dyn Fn(&mut PolicySpec), expect: &str| {
            let mut spec = spec();
            change(&mut spec);
            let error = spec.check().unwrap_err().to_string();
            assert!(error.contains(expect), "{error}");
        };
        check(&|s| s.name.clear(), "policy without a name: name: must be");
        check(&|s| s.name = "A".into(), "policy A: name: must be");
        check(&|s| s.streams.clear(), "policy full: streams: is empty");
        check(&|s| s.streams = vec!["x{".into()], "streams: ");
        check(&|s| s.streams = vec!["x".into(); 65], "at most 64 patterns");
        check(&|s| s.error = None, "error: is missing");
        check(&|s| s.error = Some("much".into()), "\"much\" is neither");
        check(&|s| s.confidence = 1.0, "confidence: must be 0.5 to 0.999");
        check(&|s| s.confidence = f64::NAN, "confidence: must be");
        check(&|s| s.weight = 0.0, "weight: must be");
        check(&|s| s.interval_min_ms = 0, "interval_min_ms: must be");
        check(
            &|s| s.interval_max_ms = 10,
            "interval_max_ms: must not be below",
        );
        check(&|s| s.sentinel = Some("{a=b}".into()), "sentinel: ");
        check(
            &|s| s.pressure = Some("disk".into()),
            "pressure: must be like",
        );
        check(
            &|s| s.kind = PolicySpecKind::Fixed,
            "error: only error_bounded",
        );
        let sentinel = |s: &mut PolicySpec| {
            s.kind = PolicySpecKind::AimdSimple;
            s.error = None;
            s.sentinel = Some("disk.write.bytes".into());
        };
        check(&sentinel, "sentinel: only error_bounded");
        let pressure = |s: &mut PolicySpec| {
            s.kind = PolicySpecKind::Fixed;
            s.error = None;
            s.pressure = Some("io some 150ms 2s".into());
        };
        check(&pressure, "pressure: a fixed interval");
    }

    #[test]
    fn triggers_are_what_the_kernel_takes() {
        let trigger = PressureTrigger::parse("io some 150ms 2s").unwrap();
        assert_eq!(trigger.of, PressureOf::Io);
        assert_eq!(trigger.request(), "some 150000 2000000");
        let full = PressureTrigger::parse("memory full 1s 10s").unwrap();
        assert_eq!(full.request(), "full 1000000 10000000");
        for (text, expect) in [
            ("io some 150ms", "must be like"),
            ("io some 150ms 2s 3s", "must be like"),
            ("disk some 150ms 2s", "begins with"),
            ("io any 150ms 2s", "some or full"),
            ("io some 3s 2s", "not above its window"),
            ("io some 0 2s", "at least 1us"),
            ("io some 1ms 1min", "500ms to 10s"),
            ("io some soon 2s", "soon"),
        ] {
            let error = PressureTrigger::parse(text).unwrap_err();
            assert!(error.contains(expect), "{text}: {error}");
        }
    }

    #[test]
    fn the_words_of_kinds_are_those_of_the_configuration() {
        let text = "name = 'a'\nstreams = ['b']\nkind = 'aimd_complex'";
        let spec: PolicySpec = toml::from_str(text).unwrap();
        assert_eq!(spec.kind, PolicySpecKind::AimdComplex);
        assert_eq!(PolicySpecKind::parse("aimd_complex"), Some(spec.kind));
        assert_eq!(PolicySpecKind::parse("often"), None);
        assert_eq!(spec.check(), Ok(()));
        let again: PolicySpec = toml::from_str(&toml::to_string(&spec).unwrap()).unwrap();
        assert_eq!(again, spec);
        assert!(toml::from_str::<PolicySpec>("error_max = 1").is_err());
    }
}
