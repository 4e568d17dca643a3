//! `GET /api/v1/history`: the past, as samples or as buckets. It stands alone because its
//! parameters (times as people write them, a step or a number of points) are a small language of
//! their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::{RawQuery, State};
use barograph_model::{
    DAY_S, Descriptor, NS_PER_S, PIECE_BYTES, Past, PastRequest, PastSeries, Selector, Span,
    duration_ns, instant_ns,
};

use crate::app::{App, HandlerAnswer, JSON, RequestOrigin, SharedApp};
use crate::deliver::{AnswerPieces, deliver};
use crate::fault::Fault;
use crate::json::{BucketsJson, HistoryJson};
use crate::params::Params;

/// Largest value of `points`.
pub(crate) const POINTS_MAX: i64 = 100_000;

/// Steps that `points` chooses from, in seconds; longer steps are whole days.
const LADDER_S: &[i64] = &[
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, DAY_S,
];

/// The detail of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grain {
    /// Every sample.
    Raw,
    /// Buckets of this many ns.
    Step(i64),
    /// Buckets, at most this many of each series.
    Points(i64),
}

/// A parsed request.
#[derive(Debug)]
struct Question {
    selectors: Vec<Selector>,
    /// The first instant; `i64::MIN` if not given.
    start: i64,
    /// The instant after the last one; `i64::MAX` if not given.
    stop: i64,
    grain: Grain,
    /// The node whose past is meant; none for this one.
    node: Option<String>,
}

/// `GET /api/v1/history?match=P&start=&stop=[&step=|&points=][&node=NAME]`: start <= ts < stop.
pub(crate) async fn history(
    State(app): SharedApp,
    RequestOrigin(way, client): RequestOrigin,
    RawQuery(query): RawQuery,
) -> HandlerAnswer {
    let question = Question::read(query.as_deref(), app.clock.now_ns())?;
    let delivery = app.large((way, client), JSON).await?;
    let cancel = Arc::clone(&delivery.asked.cancel);
    deliver(delivery, move |mut pieces| {
        question.answer(&app, &cancel, &mut pieces)?;
        pieces.finish()
    })
    .await
}

impl Question {
    fn read(query: Option<&str>, now_ns: i64) -> Result<Self, Fault> {
        let known = ["match", "start", "stop", "step", "points", "node"];
        let params = Params::parse(query, &known)?;
        let instant = |name| {
            let text = params.one(name)?;
            let read =
                |text| instant_ns(text, now_ns).map_err(|e| Fault::usage(format!("{name}={e}")));
            text.map(read).transpose()
        };
        let start = instant("start")?.unwrap_or(i64::MIN);
        let stop = instant("stop")?.unwrap_or(i64::MAX);
        if start > stop {
            return Err(Fault::usage(format!("start={start} is after stop={stop}")));
        }
        Ok(Self {
            selectors: params.selectors()?,
            start,
            stop,
            grain: Grain::read(&params)?,
            node: params.node()?,
        })
    }

    fn answer(&self, app: &App, cancel: &AtomicBool, into: &mut AnswerPieces) -> Result<(), Fault> {
        let mirror = app.past_of(self.node.as_deref())?;
        let past: &dyn Past = mirror.as_deref().unwrap_or(&*app.past);
        if self.start == self.stop {
            return into.json(&[(); 0]);
        }
        let held = into.shared_claim();
        let wanted = |_: &str, d: &Descriptor| {
            let matches = |s: &Selector| s.matches(d.name.as_str(), &d.labels);
            // Matching many streams takes time, so no stream matches any more once nobody waits.
            !cancel.load(Ordering::Relaxed) && self.selectors.iter().any(matches)
        };
        // The data that is read must leave room for the answer that is written from it.
        let holds = |bytes: usize| held.reach(bytes + 2 * PIECE_BYTES);
        let request = |span: Span| PastRequest {
            wanted: &wanted,
            span,
            samples_max: app.limits.history_samples_max,
            cancel,
            holds: &holds,
        };
        let span = Span {
            from: self.start,
            to: self.stop - 1,
        };
        let step_ns = match self.grain {
            Grain::Raw => {
                let mut list = past.read(&request(span))?;
                list.sort_by(|a, b| by_name(&a.series, &b.series));
                held.give(2 * PIECE_BYTES);
                return each(into, list, |samples, into| {
                    into.json(&HistoryJson::of(samples))
                });
            }
            Grain::Step(step_ns) => step_ns,
            Grain::Points(points) => {
                let known = past.series(&request(span))?;
                let now_ns = app.clock.now_ns();
                step_for(clipped(span, &known, now_ns), points)
            }
        };
        let mut list = past.buckets(&request(whole(span, step_ns)), step_ns)?;
        list.sort_by(|(a, _), (b, _)| by_name(a, b));
        held.give(2 * PIECE_BYTES);
        each(into, list, |(series, buckets), into| {
            into.json(&BucketsJson::of(series, step_ns, buckets))
        })
    }
}

/// Writes a list one item after the other.
fn each<T>(
    into: &mut AnswerPieces,
    list: Vec<T>,
    write: impl Fn(&T, &mut AnswerPieces) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut mark = "[";
    for one in list {
        into.text(mark)?;
        write(&one, into)?;
        mark = ",";
    }
    into.text(if mark == "[" { "[]" } else { "]" })
}

impl Grain {
    fn read(params: &Params) -> Result<Self, Fault> {
        let points = params.integer("points", "how many points")?;
        match (params.one("step")?, points) {
            (None, None) => Ok(Self::Raw),
            (Some(text), None) => {
                let step_ns = duration_ns(text).map_err(|e| Fault::usage(format!("step={e}")))?;
                if step_ns == 0 {
                    return Err(Fault::usage("step=0: leave it out for every sample"));
                }
                Ok(Self::Step(step_ns))
            }
            (None, Some(points)) if (1..=POINTS_MAX).contains(&points) => Ok(Self::Points(points)),
            (None, Some(points)) => Err(Fault::usage(format!(
                "points={points} is not between 1 and {POINTS_MAX}"
            ))),
            (Some(_), Some(_)) => Err(Fault::usage("give step or points, not both")),
        }
    }
}

fn by_name(a: &PastSeries, b: &PastSeries) -> std::cmp::Ordering {
    let key = |s: &PastSeries| {
        (
            s.descriptor.name.clone(),
            s.descriptor.labels.clone(),
            Arc::clone(&s.node),
        )
    };
    key(a).cmp(&key(b))
}

/// Limits the span to the times with known samples, at most until now.
fn clipped(span: Span, known: &[PastSeries], now_ns: i64) -> Span {
    let from = known.iter().map(|s| s.known.from).min();
    Span {
        from: span.from.max(from.unwrap_or(span.from)),
        to: span.to.min(now_ns),
    }
}

/// The first step of the ladder that divides the span into at most `points` buckets.
fn step_for(span: Span, points: i64) -> i64 {
    let buckets = |step_ns: i64| {
        let (first, last) = (span.from.div_euclid(step_ns), span.to.div_euclid(step_ns));
        last.saturating_sub(first).saturating_add(1)
    };
    let fits = |step_ns: &i64| buckets(*step_ns) <= points;
    let round = LADDER_S.iter().map(|s| s * NS_PER_S).find(fits);
    round.unwrap_or_else(|| {
        let day_ns = DAY_S * NS_PER_S;
        let days_max = i64::MAX / day_ns;
        let days = buckets(day_ns) / points;
        // A span that begins inside a bucket needs one bucket more.
        (days.max(1)..=days_max)
            .map(|days| days * day_ns)
            .find(fits)
            .unwrap_or(days_max * day_ns)
    })
}

/// Widens the span to whole first and last buckets, so that a bucket is the same for every request.
fn whole(span: Span, step_ns: i64) -> Span {
    let from = span.from.div_euclid(step_ns).saturating_mul(step_ns);
    let last = span.to.div_euclid(step_ns).saturating_mul(step_ns);
    Span {
        from,
        to: last.saturating_add(step_ns - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const H: i64 = 3_600;

    #[test]
    fn steps_for_points() {
        let check = |seconds: i64, points: i64, expect_s: i64| {
            let to = 1_700_000_000 * NS_PER_S;
            let span = Span {
                from: to - seconds * NS_PER_S,
                to: to - 1,
            };
            let step_ns = step_for(span, points);
            assert_eq!(step_ns, expect_s * NS_PER_S, "{seconds} s in {points}");
            let buckets = span.to / step_ns - span.from / step_ns + 1;
            assert!(buckets <= points, "{buckets} buckets, not {points}");
        };
        check(60, 600, 1);
        check(900, 600, 2);
        check(H, 600, 10);
        check(6 * H, 600, 60);
        check(24 * H, 600, 300);
        check(7 * 24 * H, 600, 1_800);
        check(30 * 24 * H, 600, 7_200);
        check(3_650 * 24 * H, 600, 7 * DAY_S);
        check(3_650 * 24 * H, 2, 1_968 * DAY_S);
        let all = step_for(Span::ALL, 1);
        assert!(all > 100_000 * DAY_S, "{all}");
        assert_eq!(step_for(Span::ALL, POINTS_MAX) % (DAY_S * NS_PER_S), 0);
    }

    #[test]
    fn whole_buckets() {
        let check = |from: i64, to: i64, step: i64, expect: (i64, i64)| {
            let found = whole(Span { from, to }, step);
            assert_eq!((found.from, found.to), expect, "{from}..={to} by {step}");
        };
        check(0, 9, 10, (0, 9));
        check(1, 10, 10, (0, 19));
        check(-1, -1, 10, (-10, -1));
        check(i64::MIN, i64::MAX, 10, (i64::MIN, i64::MAX));
        check(i64::MIN, i64::MAX, i64::MAX, (i64::MIN, i64::MAX));
    }

    #[test]
    fn questions() {
        const NOW: i64 = 1_700_000_000 * NS_PER_S;
        let check = |query: &str, expect: Result<(i64, i64, Grain), &str>| match (
            Question::read(Some(query), NOW),
            expect,
        ) {
            (Ok(q), Ok(expect)) => assert_eq!((q.start, q.stop, q.grain), expect, "{query}"),
            (Err(fault), Err(part)) => {
                assert!(fault.message.contains(part), "{query}: {}", fault.message);
            }
            (found, expect) => panic!("{query}: {found:?}, not {expect:?}"),
        };
        check("", Ok((i64::MIN, i64::MAX, Grain::Raw)));
        check("start=-1h", Ok((NOW - H * NS_PER_S, i64::MAX, Grain::Raw)));
        check(
            "start=2023-11-14T22:13:20Z&stop=2023-11-14T23:13:21%2B01:00&step=10s",
            Ok((NOW, NOW + NS_PER_S, Grain::Step(10 * NS_PER_S))),
        );
        check("points=600", Ok((i64::MIN, i64::MAX, Grain::Points(600))));
        check("step=5", Ok((i64::MIN, i64::MAX, Grain::Step(5))));
        check("start=now", Ok((NOW, i64::MAX, Grain::Raw)));
        check("start=noon", Err("start=\"noon\" is not a time"));
        check("stop=yesterday", Err("RFC 3339"));
        check("step=often", Err("step=\"often\" is not a length of time"));
        check("step=0s", Err("step=0"));
        check("step=-1s", Err("not a length of time"));
        check("points=0", Err("not between 1"));
        check("points=many", Err("not an integer"));
        check("points=1&step=1s", Err("not both"));
        check("start=2&stop=1", Err("start=2 is after stop=1"));
        check(
            "every=1",
            Err("known: match, start, stop, step, points, node"),
        );
    }
}
