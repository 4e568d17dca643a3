//! The functions of streams that stand in a rule's condition: `rate('disk.read.bytes', '10 s')`.
//!
//! They stand alone because the expressions around them are those of insights.

use std::fmt;

use barograph_model::{FORECAST_PREFIX, Selector};
use barograph_statement::ast;

use barograph_statement::{
    Compiled, Compiler, Expr, ExprEnvironment, SqlValue, StatementError, length_ns,
};

/// Most different functions of streams in one rule.
pub(crate) const RULE_FUNCTIONS_MAX: usize = 16;
/// The names of all functions, for messages.
pub(crate) const FUNCTIONS: &str = "latest, age, absent, rate, delta, avg_over, min_over, max_over, \
     count_over, ago, forecast, forecast_low, forecast_high, label";

/// The function that a leaf computes of its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeafFunction {
    Latest,
    Age,
    Absent,
    Rate,
    Delta,
    Avg,
    Min,
    Max,
    Count,
    Ago,
    /// The value that is expected after the length of time.
    Forecast,
    /// The lower and the upper end of the interval in which it is expected.
    ForecastLow,
    ForecastHigh,
    /// No stream: a label of the subject.
    Label,
}

impl LeafFunction {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "latest" => Self::Latest,
            "age" => Self::Age,
            "absent" => Self::Absent,
            "rate" => Self::Rate,
            "delta" => Self::Delta,
            "avg_over" => Self::Avg,
            "min_over" => Self::Min,
            "max_over" => Self::Max,
            "count_over" => Self::Count,
            "ago" => Self::Ago,
            "forecast" => Self::Forecast,
            "forecast_low" => Self::ForecastLow,
            "forecast_high" => Self::ForecastHigh,
            "label" => Self::Label,
            _ => return None,
        })
    }

    /// Whether it takes a length of time.
    fn is_timed(self) -> bool {
        !matches!(self, Self::Latest | Self::Age | Self::Label)
    }

    /// Whether it needs points of the past.
    pub(crate) fn is_windowed(self) -> bool {
        self.is_timed() && self != Self::Absent && !self.is_forecast()
    }

    /// Whether it reads the forecast of its stream.
    pub(crate) fn is_forecast(self) -> bool {
        matches!(
            self,
            Self::Forecast | Self::ForecastLow | Self::ForecastHigh
        )
    }
}

/// The changes of a stream for which the condition must be computed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeafWakes {
    /// The leaf stands in the payload only.
    Never,
    /// Each new sample.
    Sample,
    /// Each new sample, and each look that found no change.
    Look,
}

#[derive(Clone, Debug)]
pub(crate) struct StreamFunction {
    pub of: LeafFunction,
    /// The text of the function, as written.
    pub text: String,
    /// The streams that it matches; of a label, the name.
    pub selector: Selector,
    /// The length of time; 0 where it takes none.
    pub ns: i64,
    /// Whether its streams are the subjects themselves.
    pub is_own: bool,
    /// The ages in ns at which a comparison changes, if an age is compared with numbers alone.
    pub crossings: Option<Vec<i64>>,
}

impl StreamFunction {
    pub(crate) fn wakes(&self) -> LeafWakes {
        match self.of {
            LeafFunction::Latest
            | LeafFunction::Count
            | LeafFunction::Ago
            | LeafFunction::Label => LeafWakes::Sample,
            _ => LeafWakes::Look,
        }
    }
}

impl fmt::Display for StreamFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The leaves of a rule, each once, in the order in which they are written.
#[derive(Debug, Default)]
pub(crate) struct StreamFunctions {
    pub all: Vec<StreamFunction>,
}

impl ExprEnvironment for &mut StreamFunctions {
    const OWNER: &'static str = "a rule";
    const FUNCTIONS: &'static str = FUNCTIONS;

    fn column(&self, _table: Option<&ast::Ident>, column: &ast::Ident) -> Compiled {
        Err(StatementError::new(format!(
            "{column}: a rule reads a stream as latest('{column}'), and a label of its subject as \
             label('{column}')"
        )))
    }

    fn function(
        compiler: &mut Compiler<Self>,
        name: &str,
        args: &[&ast::Expr],
    ) -> Result<Option<Expr>, StatementError> {
        let leaf = compiler.environment.call(name, args)?;
        Ok(leaf.map(Expr::Computed))
    }
}

impl StreamFunctions {
    /// The number of the leaf for a call; `None` if the call is no function of streams.
    pub(crate) fn call(
        &mut self,
        name: &str,
        args: &[&ast::Expr],
    ) -> Result<Option<usize>, StatementError> {
        let Some(of) = LeafFunction::named(name) else {
            return Ok(None);
        };
        let example = match (of, of.is_timed()) {
            (LeafFunction::Label, _) => format!("{name}('device')"),
            (_, true) => format!("{name}('disk.read.bytes{{device=vda}}', '10 s')"),
            (_, false) => format!("{name}('disk.read.bytes{{device=vda}}')"),
        };
        let wrong = || StatementError::new(format!("write {example}"));
        let (stream, length) = match (args, of.is_timed()) {
            ([stream], false) => (text(stream).ok_or_else(wrong)?, None),
            ([stream, length], true) => {
                let length = text(length).ok_or_else(wrong)?;
                (text(stream).ok_or_else(wrong)?, Some(length))
            }
            _ => return Err(wrong()),
        };
        let ns = match length {
            None => 0,
            Some(length) => length_ns(length)?,
        };
        let selector = match of.is_forecast() {
            // A forecast is a stream too, beside the one that is forecast.
            true => Selector::parse(&format!("{FORECAST_PREFIX}{stream}"))?,
            false => Selector::parse(stream)?,
        };
        let text = match length {
            None => format!("{name}('{stream}')"),
            Some(length) => format!("{name}('{stream}', '{length}')"),
        };
        let same = |l: &StreamFunction| l.of == of && l.ns == ns && l.selector == selector;
        if let Some(at) = self.all.iter().position(same) {
            return Ok(Some(at));
        }
        if self.all.len() >= RULE_FUNCTIONS_MAX {
            return Err(StatementError::Limit {
                what: "functions of streams in a rule".into(),
                max: RULE_FUNCTIONS_MAX,
                limit: "RULE_FUNCTIONS_MAX",
            });
        }
        self.all.push(StreamFunction {
            of,
            text,
            selector,
            ns,
            is_own: false,
            crossings: None,
        });
        Ok(Some(self.all.len() - 1))
    }

    /// Notes the leaves that read the subjects themselves, and the ages at which comparisons
    /// change.
    pub(crate) fn settle(&mut self, condition: &Expr) {
        let first = self.all.iter().find(|l| l.of != LeafFunction::Label);
        let first = first.map(|l| l.selector.clone());
        for (at, leaf) in self.all.iter_mut().enumerate() {
            leaf.is_own = leaf.of != LeafFunction::Label && Some(&leaf.selector) == first.as_ref();
            if leaf.of == LeafFunction::Age {
                leaf.crossings = crossings(condition, at);
            }
        }
    }
}

fn text(e: &ast::Expr) -> Option<&str> {
    match e {
        ast::Expr::Value(value) => match &value.value {
            ast::Value::SingleQuotedString(text) => Some(text),
            _ => None,
        },
        ast::Expr::Nested(inner) => text(inner),
        _ => None,
    }
}

/// The numbers that an age is compared with, in ns; `None` when it is also used otherwise, so that
/// each moment may count.
fn crossings(condition: &Expr, age: usize) -> Option<Vec<i64>> {
    let is_it = |e: &Expr| matches!(e, Expr::Computed(n) if *n == age);
    let (mut used, mut compared) = (0, Vec::new());
    condition.visit(&mut |e| {
        used += usize::from(is_it(e));
        let Expr::Compare(_, _, a, b) = e else {
            return;
        };
        for (side, other) in [(a, b), (b, a)] {
            if let Expr::Literal(val @ (SqlValue::Int(_) | SqlValue::Real(_))) = &**other
                && is_it(side)
            {
                let seconds = val.as_f64().unwrap_or(0.0);
                compared.push((seconds * 1e9).ceil() as i64);
            }
        }
    });
    (used == compared.len()).then_some(compared)
}
