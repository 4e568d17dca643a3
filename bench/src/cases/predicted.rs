//! `read.predicted`: the value of a stream between two looks, beside its newest value, through held
//! handles.

use std::sync::Arc;
use std::time::Duration;

use barograph_client::{Observer, RunDir, StreamHandle, SystemClock};
use barograph_model::{
    Clock as _, FORECAST_PREFIX, Knot, Name, Projection, Sample, Selector, Value, ValueType,
};

use super::{Scratch, descriptor, segment};
use crate::measure::{batch_ns, keep};
use crate::report::{Fault, Report};

const LONG: Duration = Duration::from_millis(400);
/// Number of knots: as many as a cascade of three forecasters predicts.
const KNOTS: usize = 31;

/// Measures reads of the newest value, of the newest value with its age, and of the predicted
/// value; and the prediction of a stream that has no forecast.
pub(super) fn run(report: &mut Report) -> Result<(), Fault> {
    let scratch = Scratch::new("predicted")?;
    let mut segment = segment(&scratch)?;
    let clock = SystemClock::new();
    let of = [descriptor(0), descriptor(1)];
    let mut writers = Vec::new();
    for of in &of {
        let mut writer = segment.register(of, None, 0)?;
        writer.append(&Sample::measured(clock.now_ns(), 1.0))?;
        writers.push(writer);
    }
    let mut said = of[0].clone();
    said.name = Name::new(format!("{FORECAST_PREFIX}{}", said.name.as_str()))?;
    said.value_type = ValueType::Floats;
    let knots = (0..KNOTS).map(|at| Knot {
        after_s: at as f64 * 10.0,
        value: at as f64,
        half_width: 1.0,
    });
    let floats = Projection::new(knots).to_floats();
    let mut projections = segment.register(&said, None, 0)?;
    projections.append(&Sample::measured(
        clock.now_ns(),
        Value::Floats(floats.into()),
    ))?;
    let observer = Observer::open(RunDir::new(&scratch.0), Arc::new(clock))?;
    let hold = |at: usize| -> Result<StreamHandle, Fault> {
        let selector = Selector::parse(&of[at].to_string())?;
        Ok(observer.stream(&selector)?)
    };
    let (mut forecast, mut other) = (hold(0)?, hold(1)?);
    let mut row = |what: &str, read: &mut dyn FnMut()| {
        segment.heartbeat(clock.now_ns());
        report.row("read.predicted", what, batch_ns(LONG, read), "ns", &[]);
    };
    row("measured, value alone, p50", &mut || {
        keep(forecast.latest_f64());
    });
    row("measured, with its age, p50", &mut || {
        keep(forecast.latest())
    });
    row("predicted, with its error, p50", &mut || {
        keep(forecast.latest_predicted());
    });
    row("predicted if it were forecast, p50", &mut || {
        keep(other.latest_predicted());
    });
    Ok(())
}
