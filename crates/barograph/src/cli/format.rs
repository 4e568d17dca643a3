//! Numbers as text for people: IEC prefixes for sizes, SI for rates, two units for time spans.

use barograph_model::Value;

use super::output::plain;

/// A value with its unit.
pub(super) fn value(value: &Value, unit: &str) -> String {
    match (value, unit) {
        (Value::Text(text) | Value::Json(text), _) => plain(text).into_owned(),
        // For people only the size is shown; the content is for programs.
        (Value::Bytes(v), _) => format!("{} bytes", v.len()),
        (Value::Floats(v), _) => format!("{} floats", v.len()),
        (Value::Bool(flag), _) => if *flag { "yes" } else { "no" }.into(),
        (other, unit) => number(other.as_f64().unwrap_or(f64::NAN), unit),
    }
}

/// A number with its unit.
pub(super) fn number(v: f64, unit: &str) -> String {
    if !v.is_finite() {
        return "-".into();
    }
    match unit {
        "bytes" => scaled(v, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]),
        "bytes/s" | "bytes_per_second" => {
            scaled(v, 1000.0, &["B/s", "kB/s", "MB/s", "GB/s", "TB/s"])
        }
        "ratio" => format!("{} %", short(v * 100.0)),
        "seconds" if v.abs() < 1.0 && v != 0.0 => seconds_below_one(v),
        "seconds" => format!("{} s", short(v)),
        "" | "count" | "flag" => short(v),
        other => format!(
            "{} {other}",
            scaled(v, 1000.0, &["", "k", "M", "G", "T"]).trim_end()
        ),
    }
}

/// An age or span in nanoseconds.
pub(super) fn age(ns: i64) -> String {
    let s = ns.max(0) as f64 / 1e9;
    match s {
        s if s < 1.0 => seconds_below_one(s),
        s if s < 100.0 => format!("{s:.1} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.0} d", s / 86_400.0),
    }
}

/// A difference of times in nanoseconds, with its sign.
pub(super) fn difference(ns: i64) -> String {
    let minus = if ns < 0 { "-" } else { "" };
    let length = i64::try_from(ns.unsigned_abs()).unwrap_or(i64::MAX);
    format!("{minus}{}", span(length))
}

/// A length of time in nanoseconds, in two units at most.
pub(super) fn span(ns: i64) -> String {
    let s = (ns.max(0) as f64 / 1e9).round() as i64;
    let two = |whole: i64, unit: &str, rest: i64, smaller: &str| match rest {
        0 => format!("{whole} {unit}"),
        rest => format!("{whole} {unit} {rest} {smaller}"),
    };
    let min = (s + 30) / 60;
    let h = (s + 1800) / 3600;
    match s {
        0 => seconds_below_one(ns.max(0) as f64 / 1e9),
        s if s < 60 => format!("{s} s"),
        s if s < 3600 => two(s / 60, "min", s % 60, "s"),
        _ if min < 24 * 60 => two(min / 60, "h", min % 60, "min"),
        _ => two(h / 24, "d", h % 24, "h"),
    }
}

/// The error of a predicted value, with its unit.
pub(super) fn error(half_width: f32, unit: &str) -> String {
    match f64::from(half_width) {
        known if known.is_finite() => number(known, unit),
        _ => "not known yet".into(),
    }
}

fn seconds_below_one(s: f64) -> String {
    match s.abs() {
        0.0 => "0 s".into(),
        a if a < 1e-6 => format!("{:.0} ns", s * 1e9),
        a if a < 1e-3 => format!("{} us", short(s * 1e6)),
        _ => format!("{} ms", short(s * 1e3)),
    }
}

fn scaled(v: f64, base: f64, units: &[&str]) -> String {
    let mut scaled = v;
    let mut index = 0;
    while scaled.abs() >= base && index + 1 < units.len() {
        scaled /= base;
        index += 1;
    }
    format!("{} {}", short(scaled), units[index])
}

/// About three significant digits, without trailing zeros.
fn short(v: f64) -> String {
    let decimals = match v.abs() {
        a if a >= 100.0 || a == 0.0 => 0,
        a if a >= 10.0 => 1,
        a if a >= 0.01 => 2,
        _ => 6,
    };
    let text = format!("{v:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        let check =
            |v: f64, unit: &str, expect: &str| assert_eq!(number(v, unit), expect, "{v} {unit}");
        check(0.0, "bytes", "0 B");
        check(1536.0, "bytes", "1.5 KiB");
        check(1_500_000.0, "bytes/s", "1.5 MB/s");
        check(0.968, "ratio", "96.8 %");
        check(0.000_25, "seconds", "250 us");
        check(12.0, "seconds", "12 s");
        check(1234.0, "ops/s", "1.23 k ops/s");
        check(7.0, "count", "7");
        check(f64::NAN, "bytes", "-");
    }

    #[test]
    fn spans() {
        let (s, h) = (1_000_000_000, 3_600_000_000_000);
        let check = |ns: i64, expect: &str| assert_eq!(span(ns), expect);
        check(-5, "0 s");
        check(20_000_000, "20 ms");
        check(40 * s, "40 s");
        check(90 * s, "1 min 30 s");
        check(3 * h + 20 * 60 * s + 29 * s, "3 h 20 min");
        check(4 * h - 1, "4 h");
        assert_eq!([difference(-90 * s), difference(s)], ["-1 min 30 s", "1 s"]);
        check(24 * h - 1, "1 d");
        check(50 * h + h / 3, "2 d 2 h");
        assert_eq!(error(f32::INFINITY, "bytes"), "not known yet");
        assert_eq!(error(1024.0, "bytes"), "1 KiB");
    }

    #[test]
    fn ages() {
        let check = |ns: i64, expect: &str| assert_eq!(age(ns), expect);
        check(-5, "0 s");
        check(1_500_000, "1.5 ms");
        check(2_500_000_000, "2.5 s");
        check(600_000_000_000, "10 min");
        check(259_200_000_000_000, "3 d");
    }
}
