//! Accuracy of predictions one step ahead on recorded streams, as in Apollo's Figure 11: errors and
//! R2, compared with persistence.

use barograph_forecast::delphi::{PublishedDelphi, RepairedDelphi};
use barograph_forecast::predictors::{Holt, Kalman, Nlms, Persistence, Rls, Spectral};
use barograph_forecast::{Forecaster, ForecasterConfig, Predictor};

use crate::Trace;

/// Number of values before the first that is counted: the window of the LSTM (`scripts/lstm.py`).
pub const WARM: usize = 16;

/// One quantity of a recorded trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantity {
    /// Name of the trace.
    pub trace: String,
    /// Name of the quantity, the same as in `scripts/lstm.py`.
    pub metric: &'static str,
    /// Values, one per second.
    pub values: Vec<f64>,
}

/// The quantities of a recording at 1 s: capacity (for the machine, its free memory), bytes written
/// and busy time in each second.
pub fn quantities(name: &str, trace: &Trace) -> Vec<Quantity> {
    let values = |column: &str| trace.column(column).map(|column| column.values.clone());
    let moves = |column: &str, by: f64| {
        let pairs = |values: Vec<f64>| values.windows(2).map(|v| (v[1] - v[0]) / by).collect();
        values(column).map(pairs)
    };
    let kept = if name.starts_with("machine") {
        "memory_free"
    } else {
        "available"
    };
    let all = [
        (kept, values(kept)),
        ("write rate", moves("write_bytes", 1.0)),
        ("busy", moves("busy_time", 1000.0)),
    ];
    let some = all
        .into_iter()
        .filter_map(|(metric, values)| Some((metric, values?)));
    some.map(|(metric, values)| Quantity {
        trace: name.to_owned(),
        metric,
        values,
    })
    .collect()
}

/// Errors of one model on one quantity, one step ahead.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Accuracy {
    /// Mean of |predicted - true|, in the quantity's unit.
    pub mae: f64,
    /// Root of the mean square of the same difference.
    pub rmse: f64,
    /// Coefficient of determination, R2; none if the quantity did not change.
    pub r2: Option<f64>,
}

/// Computes the accuracy of predictions: `said[i]` is the prediction of `values[i + 1]`.
pub fn accuracy(values: &[f64], said: &[f64]) -> Accuracy {
    let truths = values.get(WARM..).unwrap_or_default();
    let said = said.get(WARM.saturating_sub(1)..).unwrap_or_default();
    let count = truths.len().max(1) as f64;
    let mean = truths.iter().sum::<f64>() / count;
    let (mut sum, mut squares, mut spread) = (0.0, 0.0, 0.0);
    for (truth, said) in truths.iter().zip(said) {
        sum += (said - truth).abs();
        squares += (said - truth).powi(2);
        spread += (truth - mean).powi(2);
    }
    Accuracy {
        mae: sum / count,
        rmse: (squares / count).sqrt(),
        r2: (spread > 0.0).then(|| 1.0 - squares / spread),
    }
}

/// One of the models that are compared.
#[derive(Clone, Debug)]
pub struct Model {
    /// Name in tables.
    pub name: &'static str,
    /// Number of its parameters that were trained before it saw the stream.
    pub trained: u32,
}

/// The models of this crate; the LSTM is trained elsewhere.
pub const MODELS: [Model; 9] = [
    model("persistence", 0),
    model("Delphi published", 50),
    model("Delphi repaired", 552),
    model("Holt", 0),
    model("Kalman", 0),
    model("NLMS", 0),
    model("RLS", 0),
    model("spectral", 0),
    model("selector", 0),
];

const fn model(name: &'static str, trained: u32) -> Model {
    Model { name, trained }
}

/// The predictions of a model: after each value, that of the next. A prediction that is not finite
/// is replaced by the value itself, as users of a model do.
pub fn say(model: &str, values: &[f64]) -> Vec<f64> {
    let mut predictor: Box<dyn Predictor> = match model {
        "Delphi published" => Box::new(PublishedDelphi::default()),
        "Delphi repaired" => Box::new(RepairedDelphi::default()),
        "Holt" => Box::new(Holt::default()),
        "Kalman" => Box::new(Kalman::default()),
        "NLMS" => Box::new(<Nlms>::default()),
        "RLS" => Box::new(<Rls>::default()),
        "spectral" => Box::new(Spectral::default()),
        "selector" => return say_selector(values),
        _ => Box::new(Persistence::default()),
    };
    let next = |value: &f64| {
        predictor.observe(*value);
        let said = predictor.predict(1);
        if said.is_finite() { said } else { *value }
    };
    values.iter().map(next).collect()
}

fn say_selector(values: &[f64]) -> Vec<f64> {
    let config = ForecasterConfig::default();
    let step_ns = config.step_ns;
    let mut forecaster = Forecaster::new(config);
    let next = |(tick, value): (i64, &f64)| {
        forecaster.observe(tick * step_ns, *value);
        let said = forecaster.at((tick + 1) * step_ns);
        said.map_or(*value, |said| said.value)
    };
    (0..).zip(values).map(next).collect()
}

/// The accuracy of one model on one quantity.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelAccuracy {
    /// Name of the model.
    pub model: String,
    /// Name of the trace.
    pub trace: String,
    /// Name of the quantity.
    pub metric: String,
    /// Its errors on the quantity.
    pub accuracy: Accuracy,
    /// Mean error divided by that of persistence on the same values; none if persistence was never
    /// wrong.
    pub relative: Option<f64>,
}

/// Compares all models on one quantity. Each result has the time per value in ns, by the caller's
/// clock `now_ns`.
pub fn compare(quantity: &Quantity, now_ns: &mut dyn FnMut() -> u64) -> Vec<(ModelAccuracy, f64)> {
    let values = &quantity.values;
    let held = accuracy(values, values);
    let answer = |model: &Model| {
        let begun_ns = now_ns();
        let said = say(model.name, values);
        let took_ns = now_ns().saturating_sub(begun_ns) as f64;
        let accuracy = accuracy(values, &said);
        let answer = ModelAccuracy {
            model: model.name.to_owned(),
            trace: quantity.trace.clone(),
            metric: quantity.metric.to_owned(),
            relative: relative(accuracy, held),
            accuracy,
        };
        (answer, took_ns / values.len().max(1) as f64)
    };
    MODELS.iter().map(answer).collect()
}

/// Mean error of `of` divided by that of persistence, `held`.
pub fn relative(of: Accuracy, held: Accuracy) -> Option<f64> {
    (held.mae > 0.0).then(|| of.mae / held.mae)
}
