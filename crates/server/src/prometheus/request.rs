//! Parsing of Prometheus' requests: forms in the query string or the body, times and durations.
//!
//! Unknown parameters are ignored, as Prometheus does: some clients send parameters that only newer
//! versions know.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::Method;
use barograph_model::{DAY_S, MemoryClaim, NS_PER_MS, NS_PER_S, days_since_epoch};

use super::promql::{Grid, Matching, PromFault, QueryContext, Regexes, STEPS_MAX, matchers};
use crate::app::App;
use crate::params::{MATCHES_MAX, decode};
use crate::request_body::body_of;
use crate::rights::AccessWay;
use crate::share::ClientShare;

/// Most seconds from the epoch that a time may have: nanoseconds in 64 bits end there.
const SECONDS_MAX: f64 = 9.2e9;
/// Most parameters of one request: each takes memory beside its text, and each lookup of a name
/// searches them all.
const PARAMETERS_MAX: usize = 1_024;

/// The parameters of one request.
#[derive(Clone, Debug)]
pub(super) struct Form {
    values: Vec<(String, String)>,
    /// The client that sent the request.
    pub client: ClientShare,
    /// The way on which it came.
    pub way: AccessWay,
    /// The claim on the body's memory.
    _claim: Option<Arc<MemoryClaim>>,
}

impl Form {
    /// Reads the parameters of the query string, and of the body of a POST.
    pub(super) async fn of(request: Request, app: &App) -> Result<Self, PromFault> {
        let client = request.extensions().get::<ClientShare>().copied();
        let way = request.extensions().get::<AccessWay>().copied();
        let mut form = Self {
            values: Vec::new(),
            client: client.unwrap_or(ClientShare(None)),
            way: way.unwrap_or(AccessWay::Stranger),
            _claim: None,
        };
        form.add(request.uri().query().unwrap_or_default())?;
        if request.method() == Method::POST {
            let read = body_of(request, app).await;
            let (body, claim) = read.map_err(|fault| match fault.kind {
                "busy" => PromFault::from(fault),
                _ => PromFault::bad(format!("cannot read the body: {}", fault.message)),
            })?;
            form = Self {
                _claim: Some(Arc::new(claim)),
                ..form
            };
            let body = std::str::from_utf8(&body);
            form.add(body.map_err(|_| PromFault::bad("the body is not UTF-8"))?)?;
        }
        Ok(form)
    }

    fn add(&mut self, text: &str) -> Result<(), PromFault> {
        for part in text.split('&').filter(|p| !p.is_empty()) {
            if self.values.len() >= PARAMETERS_MAX {
                return Err(PromFault::bad(format!(
                    "more than {PARAMETERS_MAX} parameters"
                )));
            }
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let decode = |text| decode(text).map_err(|f| PromFault::bad(f.message));
            self.values.push((decode(name)?, decode(value.trim_end())?));
        }
        Ok(())
    }

    /// The first non-empty value of this name.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.values.iter().find(|(n, v)| n == name && !v.is_empty());
        found.map(|(_, value)| value.as_str())
    }

    /// The parameter `query`, which is required.
    pub(super) fn query(&self) -> Result<&str, PromFault> {
        self.get("query")
            .ok_or_else(|| PromFault::bad("invalid parameter \"query\": it is missing"))
    }

    /// The time in a parameter, in ns since the epoch.
    pub(super) fn time(&self, name: &str) -> Result<Option<i64>, PromFault> {
        let parse = |text: &str| {
            time_ns(text).ok_or_else(|| {
                PromFault::bad(format!(
                    "invalid parameter {name:?}: cannot parse {text:?} to a valid timestamp"
                ))
            })
        };
        self.get(name).map(parse).transpose()
    }

    /// The duration in a parameter, in ns.
    pub(super) fn duration(&self, name: &str) -> Result<Option<i64>, PromFault> {
        let parse = |text: &str| {
            duration_ns(text).ok_or_else(|| {
                PromFault::bad(format!(
                    "invalid parameter {name:?}: cannot parse {text:?} to a valid duration"
                ))
            })
        };
        self.get(name).map(parse).transpose()
    }

    /// The parameter `limit`; none if it is missing or 0.
    pub(super) fn limit(&self) -> Result<Option<usize>, PromFault> {
        let Some(text) = self.get("limit") else {
            return Ok(None);
        };
        let limit = text.parse().map_err(|_| {
            PromFault::bad(format!(
                "invalid parameter \"limit\": {text:?} is not a number"
            ))
        });
        limit.map(|n: usize| Some(n).filter(|n| *n > 0))
    }

    /// Whether there is a parameter `match[]`.
    pub(super) fn has_matches(&self) -> bool {
        self.values.iter().any(|(n, _)| n == "match[]")
    }

    /// The selectors of `match[]`.
    pub(super) fn matches(&self, context: &QueryContext<'_>) -> Result<Vec<Matching>, PromFault> {
        let texts = self.values.iter().filter(|(n, _)| n == "match[]");
        if texts.clone().count() > MATCHES_MAX {
            return Err(PromFault::bad(format!(
                "more than {MATCHES_MAX} match[] parameters"
            )));
        }
        let mut regexes = Regexes::default();
        let selectors = texts.map(|(_, text)| {
            context.check()?;
            matchers(text, &mut regexes)
        });
        selectors.collect()
    }

    /// The instants from `start` to `end`, `step` apart.
    pub(super) fn grid(&self) -> Result<Grid, PromFault> {
        let needed = |name: &str, value: Option<i64>| {
            value
                .ok_or_else(|| PromFault::bad(format!("invalid parameter {name:?}: it is missing")))
        };
        let start = needed("start", self.time("start")?)?;
        let end = needed("end", self.time("end")?)?;
        let step_ns = needed("step", self.duration("step")?)?;
        if end < start {
            return Err(PromFault::bad(
                "invalid parameter \"end\": end timestamp must not be before start time",
            ));
        }
        if step_ns <= 0 {
            return Err(PromFault::bad(
                "invalid parameter \"step\": zero or negative query resolution step widths are not \
                 accepted. Try a positive integer",
            ));
        }
        let steps = end.saturating_sub(start) / step_ns;
        if steps > STEPS_MAX as i64 {
            return Err(PromFault::bad(format!(
                "exceeded maximum resolution of {STEPS_MAX} points per timeseries. Try decreasing \
                 the query resolution (?step=XX)"
            )));
        }
        Ok(Grid::between(start, end, step_ns))
    }
}

/// Parses seconds since the epoch, or RFC 3339, to the millisecond as Prometheus does.
fn time_ns(text: &str) -> Option<i64> {
    let seconds = match text.parse::<f64>() {
        Ok(seconds) => seconds,
        Err(_) => return rfc3339_ns(text),
    };
    (seconds.abs() <= SECONDS_MAX).then(|| (seconds * 1e3).round() as i64 * NS_PER_MS)
}

/// Parses times like `2023-11-14T22:13:20.5Z` and `2023-11-14T23:13:20+01:00`.
fn rfc3339_ns(text: &str) -> Option<i64> {
    let (date, rest) = text.split_at_checked(10)?;
    let digits = |text: &str| match text.bytes().all(|b| b.is_ascii_digit()) {
        true => text.parse::<i64>().ok(),
        false => None,
    };
    let part = |text: &str, from: usize, to: usize| digits(text.get(from..to)?);
    let (year, month, day) = (part(date, 0, 4)?, part(date, 5, 7)?, part(date, 8, 10)?);
    let separators = [date.get(4..5)?, date.get(7..8)?];
    let (clock, rest) = rest.strip_prefix(['T', 't', ' '])?.split_at_checked(8)?;
    let (hour, minute, second) = (part(clock, 0, 2)?, part(clock, 3, 5)?, part(clock, 6, 8)?);
    let colons = [clock.get(2..3)?, clock.get(5..6)?];
    let (fraction, zone) = match rest.strip_prefix('.') {
        None => (0, rest),
        Some(rest) => {
            let length = rest.find(|c: char| !c.is_ascii_digit())?;
            let nine = format!("{:0<9}", rest.get(..length.min(9))?);
            (digits(&nine).filter(|_| length > 0)?, rest.get(length..)?)
        }
    };
    let offset_s = match zone {
        "Z" | "z" => 0,
        _ => {
            let sign = match zone.get(0..1)? {
                "+" => 1,
                "-" => -1,
                _ => return None,
            };
            if zone.len() != 6 || zone.get(3..4)? != ":" {
                return None;
            }
            let (hours, minutes) = (part(zone, 1, 3)?, part(zone, 4, 6)?);
            (hours <= 23 && minutes <= 59).then_some(sign * (hours * 3_600 + minutes * 60))?
        }
    };
    let fits = (1..=12).contains(&month) && (1..=31).contains(&day) && hour <= 23;
    if !fits || minute > 59 || second > 60 || separators != ["-"; 2] || colons != [":"; 2] {
        return None;
    }
    let days = days_since_epoch(year, month, day);
    let seconds = days * DAY_S + hour * 3_600 + minute * 60 + second - offset_s;
    let ns = seconds.checked_mul(NS_PER_S)?.checked_add(fraction)?;
    Some(ns.div_euclid(NS_PER_MS) * NS_PER_MS)
}

/// Parses `15`, `0.5` (seconds), `5m`, `1h30m`.
fn duration_ns(text: &str) -> Option<i64> {
    if let Ok(seconds) = text.parse::<f64>() {
        return (seconds.abs() <= SECONDS_MAX).then(|| (seconds * 1e3).round() as i64 * NS_PER_MS);
    }
    let is_plain = text.bytes().all(|b| b.is_ascii_alphanumeric());
    let parsed = promql_parser::util::parse_duration(text)
        .ok()
        .filter(|_| is_plain)?;
    i64::try_from(parsed.as_nanos()).ok()
}

#[cfg(test)]
mod tests {
    use barograph_model::{Buckets, Past, PastRequest, PastSamples, PastSeries, SqlFault};

    use super::*;

    /// A clock for requests whose parsing does not ask for the time.
    struct Nothing;

    impl Past for Nothing {
        fn series(&self, _: &PastRequest<'_>) -> Result<Vec<PastSeries>, SqlFault> {
            Ok(Vec::new())
        }

        fn read(&self, _: &PastRequest<'_>) -> Result<Vec<PastSamples>, SqlFault> {
            Ok(Vec::new())
        }

        fn buckets(
            &self,
            _: &PastRequest<'_>,
            _: i64,
        ) -> Result<Vec<(PastSeries, Buckets)>, SqlFault> {
            Ok(Vec::new())
        }
    }

    #[test]
    fn selectors_within_the_time() {
        use std::sync::atomic::AtomicBool;

        let past = Nothing;
        let clock = barograph_model::ManualClock::at(0);
        let cancel = AtomicBool::new(false);
        let mut context = QueryContext {
            past: &past,
            clock: &clock,
            cancel: &cancel,
            samples_max: 1,
            points_max: 1,
            until_ns: i64::MAX,
            holds: &barograph_model::unbounded,
        };
        let form = |count: usize, text: &str| Form {
            values: vec![("match[]".into(), text.into()); count],
            client: ClientShare(None),
            way: AccessWay::Tcp,
            _claim: None,
        };
        let one = form(20, "a{b=~`x.*`}");
        assert_eq!(one.matches(&context).unwrap().len(), 20);
        let more = form(21, "a{b=~`x.*`}").matches(&context).unwrap_err();
        assert!(more.message.contains("20 regular"), "{more}");
        context.until_ns = i64::MIN;
        let late = one.matches(&context).unwrap_err();
        assert!(late.message.contains("timed out"), "{late}");
    }

    #[test]
    fn parameters_are_bounded() {
        let mut form = Form {
            values: Vec::new(),
            client: ClientShare(None),
            way: AccessWay::Tcp,
            _claim: None,
        };
        form.add(&"a=1&".repeat(PARAMETERS_MAX)).unwrap();
        let more = form.add("a=1").unwrap_err();
        assert!(more.message.contains("1024 parameters"), "{more}");
    }

    #[test]
    fn times() {
        let check = |text: &str, expect: Option<i64>| assert_eq!(time_ns(text), expect, "{text}");
        let t = 1_700_000_000 * NS_PER_S;
        check("1700000000", Some(t));
        check("1700000000.123", Some(t + 123 * NS_PER_MS));
        check("1.7e9", Some(t));
        check("-1", Some(-NS_PER_S));
        check("2023-11-14T22:13:20Z", Some(t));
        check("2023-11-14T22:13:20.123456Z", Some(t + 123 * NS_PER_MS));
        check("2023-11-14T23:43:20+01:30", Some(t));
        check("2023-11-14T20:13:20-02:00", Some(t));
        check("1970-01-01T00:00:00Z", Some(0));
        for bad in [
            "",
            "now",
            "NaN",
            "inf",
            "1e300",
            "2023-11-14",
            "2023-11-14T22:13:20",
            "2023-13-14T22:13:20Z",
            "2023-11-14T22:13:20.Z",
            "2023-11-14T22:13:20+0100",
            "2023x11-14T22:13:20Z",
            "2023-11-14T22:13:20+é:00",
            "20é3-11-14T22:13:20Z",
            "9999-11-14T22:13:20Z",
            "2023-11-14T+2:13:20Z",
        ] {
            check(bad, None);
        }
    }

    #[test]
    fn durations() {
        let check =
            |text: &str, expect: Option<i64>| assert_eq!(duration_ns(text), expect, "{text}");
        check("15", Some(15 * NS_PER_S));
        check("0.25", Some(NS_PER_S / 4));
        check("-1", Some(-NS_PER_S));
        check("5m", Some(300 * NS_PER_S));
        check("1h30m", Some(5_400 * NS_PER_S));
        check("250ms", Some(NS_PER_S / 4));
        for bad in ["", "m", "5 m", "5x", "1e300", "nan", "4294967295y", "-5m"] {
            check(bad, None);
        }
    }
}
