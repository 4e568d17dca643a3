//! Evaluates any text as PromQL: it is answered or refused, within its bounds.
#![no_main]

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use barograph_model::{
    Buckets, Columns, Descriptor, Kind, Labels, ManualClock, Name, Past, PastRequest, PastSeries,
    Sample, Span, SqlFault, Unit, ValueType,
};
use barograph_server::promql::{QueryContext, Grid, PromQuery, Regexes, matchers};
use libfuzzer_sys::fuzz_target;

const S: i64 = 1_000_000_000;

/// The samples of two counters in one minute.
struct Fixed;

impl Fixed {
    fn all(request: &PastRequest<'_>) -> Vec<(PastSeries, Columns)> {
        let series = ["a", "b"].map(|device| {
            let descriptor = Descriptor {
                name: Name::new("a").expect("a name"),
                labels: Labels::new([("d", device)]).expect("labels"),
                value_type: ValueType::Int,
                unit: Unit::new("").expect("a unit"),
                kind: Kind::Gauge,
                help: String::new(),
            };
            let mut columns = Columns::new(ValueType::Int);
            for i in 0..20 {
                columns.push(0, &Sample::measured(i * 3 * S, i * i % 7));
            }
            let known = Span { from: 0, to: 60 * S };
            let descriptor = Arc::new(descriptor);
            let node = "n".into();
            (PastSeries { node, descriptor, known, interval_ns: S }, columns)
        });
        let wanted = |s: &(PastSeries, Columns)| (request.wanted)(&s.0.node, &s.0.descriptor);
        series.into_iter().filter(wanted).collect()
    }
}

impl Past for Fixed {
    fn series(&self, request: &PastRequest<'_>) -> Result<Vec<PastSeries>, SqlFault> {
        Ok(Self::all(request).into_iter().map(|(series, _)| series).collect())
    }

    fn read(&self, request: &PastRequest<'_>) -> Result<Vec<(PastSeries, Columns)>, SqlFault> {
        Ok(Self::all(request))
    }

    fn buckets(
        &self,
        _: &PastRequest<'_>,
        _: i64,
    ) -> Result<Vec<(PastSeries, Buckets)>, SqlFault> {
        Ok(Vec::new())
    }
}

fuzz_target!(|text: &str| {
    let _ = matchers(text, &mut Regexes::default());
    let Ok(query) = PromQuery::parse(text) else { return };
    let (clock, cancel) = (ManualClock::at(60 * S), AtomicBool::new(false));
    let context = QueryContext {
        past: &Fixed,
        clock: &clock,
        cancel: &cancel,
        samples_max: 10_000,
        points_max: 10_000,
        until_ns: i64::MAX,
    };
    for grid in [Grid::instant(60 * S), Grid::between(0, 60 * S, 7 * S)] {
        let _ = query.answer(&context, grid);
    }
});
