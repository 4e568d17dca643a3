//! The results that the selector's example printed, compared with their targets.

use super::{Evaluation, against};

/// One line of the output: the results on one family.
struct Line {
    name: String,
    ratios: [f64; 4],
    coverage: [f64; 4],
    /// Whether equal errors are rare, so that a quantile of the errors can have the wanted
    /// coverage.
    is_continuous: bool,
    ns: f64,
}

fn parse(line: &str) -> Option<Line> {
    let (name, rest) = line.split_at_checked(20)?;
    let is_continuous = !rest.contains('*');
    let mut numbers = rest.split_whitespace().filter_map(|word| word.parse().ok());
    let mut four = || {
        Some([
            numbers.next()?,
            numbers.next()?,
            numbers.next()?,
            numbers.next()?,
        ])
    };
    let (ratios, coverage) = (four()?, four()?);
    Some(Line {
        name: name.trim().to_owned(),
        ratios,
        coverage,
        is_continuous,
        ns: numbers.nth(1)?,
    })
}

fn within((low, high): (f64, f64)) -> bool {
    low >= 88.0 && high <= 92.0
}

/// The horizons at which a family's coverage is outside the target. A greater coverage is no fault
/// if many errors are equal.
fn outside(line: &Line) -> impl Iterator<Item = String> + '_ {
    let pairs = [1, 4, 16, 64].into_iter().zip(line.coverage);
    let out =
        pairs.filter(|(_, coverage)| *coverage < 88.0 || line.is_continuous && *coverage > 92.0);
    out.map(|(steps, coverage)| format!("{coverage:.1} ({} at {steps})", line.name))
}

/// The numbers after a name.
fn after(text: &str, name: &str) -> Vec<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let words = line.unwrap_or_default().split_whitespace();
    words.filter_map(|word| word.parse().ok()).collect()
}

pub(super) fn sections(evaluation: &mut Evaluation, text: &str) -> Vec<Vec<String>> {
    evaluation.text("selector.table", text);
    let lines: Vec<Line> = text.lines().filter_map(parse).collect();
    if lines.is_empty() {
        return Vec::new();
    }
    let worst = after(text, "worst").first().copied().unwrap_or(f64::NAN);
    let means = after(text, "mean, predictable");
    let mean = |at: usize| means.get(at).copied().unwrap_or(f64::NAN);
    let continuous: Vec<&Line> = lines.iter().filter(|line| line.is_continuous).collect();
    let span = |level: usize| {
        let coverage = continuous.iter().map(|line| line.coverage[level]);
        coverage.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), at| {
            (low.min(at), high.max(at))
        })
    };
    let spans = [0, 1, 2, 3].map(span);
    let outside: Vec<String> = lines.iter().flat_map(outside).collect();
    let all = spans
        .into_iter()
        .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
    let all = all.unwrap_or((f64::NAN, f64::NAN));
    let mut four = format!("{:.1} to {:.1} %", all.0, all.1);
    if !outside.is_empty() {
        four = format!("{four}; outside: {}", outside.join(", "));
    }
    let cost = lines.iter().map(|line| line.ns);
    let cost = cost.fold((f64::INFINITY, 0.0_f64), |(low, high), ns| {
        (low.min(ns), high.max(ns))
    });
    let is_bounded = lines.iter().all(|line| line.ratios[0] <= 1.02);
    vec![
        against(
            "worst case against persistence, sum of absolute errors, 1 step",
            format!("{worst:.3}; 1.01 is the bound by construction"),
            is_bounded,
            "1.02",
        ),
        against(
            "geometric mean on the predictable families, 1, 4, 16, 64 steps",
            format!(
                "{:.3} {:.3} {:.3} {:.3}",
                mean(0),
                mean(1),
                mean(2),
                mean(3)
            ),
            [0, 1, 2, 3].iter().all(|at| mean(*at) <= 0.85),
            ".85",
        ),
        against(
            "coverage of 90 % intervals at 1 step, continuous errors",
            format!("{:.1} to {:.1} %", spans[0].0, spans[0].1),
            within(spans[0]),
            "88 to 92 %",
        ),
        against(
            "the same at all four horizons",
            four,
            outside.is_empty(),
            "88 to 92 %",
        ),
        against(
            "a look and a forecast, the default set with its selector",
            format!("{:.0} to {:.0} ns", cost.0, cost.1),
            cost.1 <= 250.0,
            "250 ns",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_is_printed() {
        let plain = "sine, noise           0.838  0.640  0.645  0.934   90.0  90.1  91.7  89.0    212  220  spectral";
        let line = parse(plain).unwrap();
        assert_eq!((line.name.as_str(), line.ns), ("sine, noise", 220.0));
        assert_eq!(line.ratios[3], 0.934);
        assert!(line.is_continuous && line.coverage[2] == 91.7);
        let stars = "steps                 1.000  1.000  1.000  1.000   98.1  93.5  90.2  89.8 *  143  155  persistence";
        let line = parse(stars).unwrap();
        assert!(!line.is_continuous && line.ns == 155.0);
        assert!(parse("worst                 1.001  1.002  1.003  1.004").is_none());
    }
}
