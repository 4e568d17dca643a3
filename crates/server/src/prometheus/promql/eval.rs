//! Walks the syntax tree; every operator works on whole series, so each is read and walked once.

use std::sync::atomic::Ordering;

use barograph_model::Span;
use promql_parser::parser::token::{T_LAND, T_LOR, T_LUNLESS};
use promql_parser::parser::{
    AggregateExpr, AtModifier, BinModifier, BinaryExpr, Call, Expr, MatrixSelector, Offset,
    VectorSelector,
};

use super::aggregate::{self, Aggregation, Grouping};
use super::binary::{self, Operator};
use super::functions::{self, elementwise, of_time};
use super::plan::{self, Query};
use super::range::{self, Window};
use super::select::{self, Sampled};
use super::series::relabelled;
use super::{Context, FaultKind, Grid, LabelSet, PromFault, Series};

/// Looks between two glances at the clock.
const LOOKS_BETWEEN_CHECKS: usize = 1 << 16;

/// Times and values of one series, as they were looked at.
pub type Samples = Vec<(i64, f64)>;

/// What a query gives.
#[derive(Debug, PartialEq)]
pub enum Answer {
    /// A value at each instant.
    Scalar(Vec<f64>),
    /// Series with a value or none at each instant.
    Vector(Vec<Series>),
    /// The looks of a range; of a single instant only.
    Matrix(Vec<(LabelSet, Samples)>),
    /// A text.
    Text(String),
}

impl Query {
    /// Evaluates at every instant of the grid.
    pub fn answer(&self, context: &Context<'_>, grid: Grid) -> Result<Answer, PromFault> {
        let evaluation = Evaluation { context, grid };
        match strip(&self.root) {
            Expr::StringLiteral(text) => Ok(Answer::Text(text.val.clone())),
            Expr::MatrixSelector(m) if grid.count == 1 => evaluation.matrix(m),
            root => Ok(match evaluation.value(root)? {
                Value::Scalar(values) => Answer::Scalar(values),
                Value::Vector(series) => Answer::Vector(series),
            }),
        }
    }
}

enum Value {
    Scalar(Vec<f64>),
    Vector(Vec<Series>),
}

struct Evaluation<'a> {
    context: &'a Context<'a>,
    grid: Grid,
}

type Outcome = Result<Vec<Series>, PromFault>;

impl Evaluation<'_> {
    fn value(&self, expr: &Expr) -> Result<Value, PromFault> {
        self.check()?;
        Ok(match expr {
            Expr::Paren(inner) => self.value(&inner.expr)?,
            Expr::NumberLiteral(n) => Value::Scalar(vec![n.val; self.grid.count]),
            Expr::Unary(minus) => match self.value(&minus.expr)? {
                Value::Scalar(values) => Value::Scalar(values.iter().map(|v| -v).collect()),
                Value::Vector(v) => Value::Vector(each(v, |v| -v)?),
            },
            Expr::VectorSelector(selector) => Value::Vector(self.instant(selector, false)?),
            Expr::Binary(binary) => self.binary(binary)?,
            Expr::Aggregate(aggregate) => Value::Vector(self.aggregate(aggregate)?),
            Expr::Call(call) => self.call(call)?,
            Expr::StringLiteral(_) => return Err(PromFault::bad("a text is no value here")),
            Expr::MatrixSelector(_) | Expr::Subquery(_) | Expr::Extension(_) => {
                return Err(PromFault::bad(
                    "invalid expression type \"range vector\": it needs a function such as rate()",
                ));
            }
        })
    }

    fn vector(&self, expr: &Expr) -> Outcome {
        match self.value(expr)? {
            Value::Vector(series) => Ok(series),
            Value::Scalar(_) => Err(PromFault::bad("expected an instant vector, got a scalar")),
        }
    }

    fn scalar(&self, expr: &Expr) -> Result<Vec<f64>, PromFault> {
        match self.value(expr)? {
            Value::Scalar(values) => Ok(values),
            Value::Vector(_) => Err(PromFault::bad("expected a scalar, got an instant vector")),
        }
    }

    /// Whether to go on.
    fn check(&self) -> Result<(), PromFault> {
        let (kind, message) = if self.context.cancel.load(Ordering::Relaxed) {
            (FaultKind::Canceled, "the asker has gone away")
        } else if self.context.clock.monotonic_ns() > self.context.until_ns {
            let message = "query timed out: ask for a shorter time, larger steps or fewer series";
            (FaultKind::Timeout, message)
        } else {
            return Ok(());
        };
        let message = message.into();
        Err(PromFault { kind, message })
    }

    /// Whether so many series fit.
    fn check_points(&self, series: usize) -> Result<(), PromFault> {
        let most = self.context.points_max;
        if series.saturating_mul(self.grid.count) <= most {
            return Ok(());
        }
        Err(PromFault::execution(format!(
            "{series} series at {} instants are more than {most} points: ask for fewer",
            self.grid.count
        )))
    }

    /// When a selector looks for the instant `at`.
    fn shifted(&self, selector: &VectorSelector, at: i64) -> i64 {
        let fixed = match &selector.at {
            None => at,
            Some(AtModifier::Start) => self.grid.start,
            Some(AtModifier::End) => self.grid.end,
            Some(AtModifier::At(time)) => match time.duration_since(std::time::UNIX_EPOCH) {
                Ok(after) => ns(after),
                Err(before) => -ns(before.duration()),
            },
        };
        match &selector.offset {
            None => fixed,
            Some(Offset::Pos(back)) => fixed.saturating_sub(ns(*back)),
            Some(Offset::Neg(ahead)) => fixed.saturating_add(ns(*ahead)),
        }
    }

    fn read(&self, selector: &VectorSelector, range_ns: i64) -> Result<Vec<Sampled>, PromFault> {
        let span = Span {
            from: self.shifted(selector, self.grid.start),
            to: self.shifted(selector, self.grid.end),
        };
        let wanted = plan::matching(selector)?;
        let sampled = select::read(self.context, &wanted, span, range_ns)?;
        self.check_points(sampled.len())?;
        Ok(sampled)
    }

    /// The values that an instant selector sees, or the times of their looks.
    fn instant(&self, selector: &VectorSelector, of_times: bool) -> Outcome {
        let mut vector = Vec::new();
        for sampled in self.read(selector, 0)? {
            self.check()?;
            let times = self.grid.times().map(|at| self.shifted(selector, at));
            let seen = sampled.seen(times);
            let value = |(ts, value): (i64, f64)| if of_times { ts as f64 / 1e9 } else { value };
            let points: Vec<_> = seen.map(|seen| seen.map(value)).collect();
            let labels = sampled.labels;
            vector.push(Series { labels, points });
        }
        vector.retain(|s| !s.is_absent());
        Ok(vector)
    }

    /// A function over a window that slides along each series.
    fn ranged(&self, name: &str, matrix: &MatrixSelector, arguments: &[f64]) -> Outcome {
        let function = range::function(name)?;
        let range_ns = ns(matrix.range);
        let mut vector = Vec::new();
        let mut unchecked = 0;
        for sampled in self.read(&matrix.vs, range_ns)? {
            let mut looks = sampled.looks();
            let (mut ts, mut values): (Vec<i64>, Vec<f64>) = (Vec::new(), Vec::new());
            let mut points = Vec::with_capacity(self.grid.count);
            for (step, at) in self.grid.times().enumerate() {
                let end = self.shifted(&matrix.vs, at);
                let after = end.saturating_sub(range_ns);
                let left = ts.partition_point(|&ts| ts <= after);
                ts.drain(..left);
                values.drain(..left);
                looks.skip_to(after);
                while let Some((look, value)) = looks.take(end) {
                    ts.push(look);
                    values.push(value);
                    self.check_window(ts.len())?;
                }
                unchecked += ts.len() + 1;
                if unchecked > LOOKS_BETWEEN_CHECKS {
                    unchecked = 0;
                    self.check()?;
                }
                let window = Window {
                    ts: &ts,
                    values: &values,
                    end,
                    at,
                    range_ns,
                    argument: arguments.get(step).copied().unwrap_or(f64::NAN),
                };
                points.push((!ts.is_empty()).then(|| function(&window)).flatten());
            }
            let labels = sampled.labels;
            vector.push(Series { labels, points });
        }
        let keeps_name = matches!(name, "last_over_time" | "first_over_time");
        match keeps_name {
            true => vector.retain(|s| !s.is_absent()),
            false => vector = relabelled(vector, LabelSet::nameless)?,
        }
        Ok(vector)
    }

    fn check_window(&self, looks: usize) -> Result<(), PromFault> {
        if looks <= self.context.samples_max {
            return Ok(());
        }
        Err(PromFault::execution(format!(
            "more than {} samples in one range: ask for a shorter one",
            self.context.samples_max
        )))
    }

    fn matrix(&self, matrix: &MatrixSelector) -> Result<Answer, PromFault> {
        let range_ns = ns(matrix.range);
        let end = self.shifted(&matrix.vs, self.grid.start);
        let mut total = 0;
        let mut series = Vec::new();
        for sampled in self.read(&matrix.vs, range_ns)? {
            let mut looks = sampled.looks();
            looks.skip_to(end.saturating_sub(range_ns));
            let mut samples = Vec::new();
            while let Some(look) = looks.take(end) {
                samples.push(look);
                self.check_window(total + samples.len())?;
            }
            total += samples.len();
            if !samples.is_empty() {
                series.push((sampled.labels, samples));
            }
        }
        Ok(Answer::Matrix(series))
    }

    fn binary(&self, binary: &BinaryExpr) -> Result<Value, PromFault> {
        let none = BinModifier::default();
        let modifier = binary.modifier.as_ref().unwrap_or(&none);
        let (left, right) = (self.value(&binary.lhs)?, self.value(&binary.rhs)?);
        let id = binary.op.id();
        if [T_LAND, T_LOR, T_LUNLESS].contains(&id) {
            let (Value::Vector(left), Value::Vector(right)) = (left, right) else {
                return Err(PromFault::bad("set operators take two instant vectors"));
            };
            return Ok(Value::Vector(binary::sets(id, left, right, modifier)?));
        }
        let operator = Operator::of(id, binary.modifier.as_ref())?;
        Ok(match (left, right) {
            (Value::Scalar(a), Value::Scalar(b)) => {
                let both = a.iter().zip(&b);
                Value::Scalar(both.map(|(a, b)| operator.scalars(*a, *b)).collect())
            }
            (Value::Vector(v), Value::Scalar(s)) => {
                Value::Vector(operator.with_scalar(v, &s, false)?)
            }
            (Value::Scalar(s), Value::Vector(v)) => {
                Value::Vector(operator.with_scalar(v, &s, true)?)
            }
            (Value::Vector(a), Value::Vector(b)) => {
                Value::Vector(operator.vectors(a, b, modifier)?)
            }
        })
    }

    fn aggregate(&self, aggregate: &AggregateExpr) -> Outcome {
        let aggregation = Aggregation::of(aggregate.op.id())?;
        let argument = match aggregate.param.as_deref() {
            Some(param) => self.scalar(param)?,
            None => Vec::new(),
        };
        let vector = self.vector(&aggregate.expr)?;
        let grouping = Grouping(aggregate.modifier.as_ref());
        Ok(match aggregation {
            Aggregation::Topk | Aggregation::Bottomk => {
                let largest = aggregation == Aggregation::Topk;
                aggregate::choose(vector, largest, grouping, &argument)
            }
            _ => aggregate::reduce(vector, aggregation, grouping, &argument),
        })
    }

    fn call(&self, call: &Call) -> Result<Value, PromFault> {
        let name = call.func.name;
        let arguments: Vec<&Expr> = call.args.args.iter().map(|a| strip(a)).collect();
        let seconds = |ns: i64| ns as f64 / 1e9;
        Ok(match (name, arguments.as_slice()) {
            ("time", []) => Value::Scalar(self.grid.times().map(seconds).collect()),
            ("pi", []) => Value::Scalar(vec![std::f64::consts::PI; self.grid.count]),
            ("scalar", [v]) => Value::Scalar(self.only_value(v)?),
            ("vector", [s]) => Value::Vector(vec![of_scalar(self.scalar(s)?)]),
            ("absent", [v]) => Value::Vector(self.absent(v, self.vector(v)?)),
            ("absent_over_time", [v @ Expr::MatrixSelector(m)]) => {
                let present = self.ranged("present_over_time", m, &[])?;
                Value::Vector(self.absent(v, present))
            }
            ("timestamp", [Expr::VectorSelector(v)]) => {
                Value::Vector(relabelled(self.instant(v, true)?, LabelSet::nameless)?)
            }
            ("timestamp", [v]) => {
                let mut vector = self.vector(v)?;
                for series in &mut vector {
                    for (point, at) in series.points.iter_mut().zip(self.grid.times()) {
                        *point = point.map(|_| seconds(at));
                    }
                }
                Value::Vector(relabelled(vector, LabelSet::nameless)?)
            }
            ("sort" | "sort_desc", [v]) => {
                let mut vector = self.vector(v)?;
                if self.grid.count == 1 {
                    functions::sort(&mut vector, name == "sort_desc");
                }
                Value::Vector(vector)
            }
            ("label_replace", [v, texts @ ..]) => {
                let [to, with, from, pattern] = texts_of(texts)?[..] else {
                    return Err(PromFault::bad(
                        "label_replace() takes a vector and four texts",
                    ));
                };
                let vector = self.vector(v)?;
                Value::Vector(functions::label_replace(vector, [to, with, from, pattern])?)
            }
            ("label_join", [v, texts @ ..]) => {
                let [to, separator, from @ ..] = &texts_of(texts)?[..] else {
                    return Err(PromFault::bad("label_join() takes a vector and texts"));
                };
                Value::Vector(functions::label_join(self.vector(v)?, to, separator, from)?)
            }
            ("quantile_over_time", [q, Expr::MatrixSelector(m)]) => {
                Value::Vector(self.ranged(name, m, &self.scalar(q)?)?)
            }
            ("predict_linear", [Expr::MatrixSelector(m), ahead]) => {
                Value::Vector(self.ranged(name, m, &self.scalar(ahead)?)?)
            }
            (_, [Expr::MatrixSelector(m)]) => Value::Vector(self.ranged(name, m, &[])?),
            _ => Value::Vector(self.of_values(name, &arguments)?),
        })
    }

    /// A function of each value with scalars beside it.
    fn of_values(&self, name: &str, arguments: &[&Expr]) -> Outcome {
        let Some(function) = elementwise(name) else {
            let hint = match name.starts_with("histogram_") {
                true => ": there are no histograms here, only quantile() and quantile_over_time()",
                false => "",
            };
            return Err(PromFault::bad(format!(
                "the function {name}() is not supported{hint}"
            )));
        };
        let Some((first, scalars)) = arguments.split_first() else {
            if of_time(name).is_none() {
                return Err(PromFault::bad(format!("{name}() takes an argument")));
            }
            let now = self.grid.times().map(|at| function(at as f64 / 1e9, &[]));
            return Ok(vec![of_scalar(now.collect())]);
        };
        let mut vector = self.vector(first)?;
        let scalars: Vec<Vec<f64>> = scalars
            .iter()
            .map(|s| self.scalar(s))
            .collect::<Result<_, _>>()?;
        for step in 0..self.grid.count {
            let at_step: Vec<f64> = scalars.iter().map(|s| s[step]).collect();
            // Between bounds that exclude each other there is nothing.
            let is_empty = name == "clamp" && at_step[0] > at_step[1];
            for series in &mut vector {
                let point = &mut series.points[step];
                *point = point.filter(|_| !is_empty).map(|v| function(v, &at_step));
            }
        }
        relabelled(vector, LabelSet::nameless)
    }

    /// The value of the only series at each instant, else NaN.
    fn only_value(&self, expr: &Expr) -> Result<Vec<f64>, PromFault> {
        let vector = self.vector(expr)?;
        let only = |step: usize| {
            let mut values = vector.iter().filter_map(|s| s.points[step]);
            values.next().filter(|_| values.next().is_none())
        };
        let values = (0..self.grid.count).map(|step| only(step).unwrap_or(f64::NAN));
        Ok(values.collect())
    }

    fn absent(&self, asked: &Expr, vector: Vec<Series>) -> Vec<Series> {
        let selector = match asked {
            Expr::VectorSelector(v) => Some(v),
            Expr::MatrixSelector(m) => Some(&m.vs),
            _ => None,
        };
        let matching = selector.and_then(|s| plan::matching(s).ok());
        let labels = matching.map(|m| functions::labels_of_absent(m.equalities()));
        let is_there = |step: usize| vector.iter().any(|s| s.points[step].is_some());
        let points = (0..self.grid.count).map(|step| (!is_there(step)).then_some(1.0));
        let series = Series {
            labels: labels.unwrap_or_default(),
            points: points.collect(),
        };
        if series.is_absent() {
            Vec::new()
        } else {
            vec![series]
        }
    }
}

fn each(mut vector: Vec<Series>, of: impl Fn(f64) -> f64) -> Outcome {
    for point in vector.iter_mut().flat_map(|s| &mut s.points) {
        *point = point.map(&of);
    }
    relabelled(vector, LabelSet::nameless)
}

fn of_scalar(values: Vec<f64>) -> Series {
    Series {
        labels: LabelSet::none(),
        points: values.into_iter().map(Some).collect(),
    }
}

fn strip(mut expr: &Expr) -> &Expr {
    while let Expr::Paren(inner) = expr {
        expr = &inner.expr;
    }
    expr
}

fn texts_of<'a>(arguments: &[&'a Expr]) -> Result<Vec<&'a str>, PromFault> {
    let text = |expr: &&'a Expr| match *expr {
        Expr::StringLiteral(text) => Ok(text.val.as_str()),
        _ => Err(PromFault::bad("expected a text in quotes")),
    };
    arguments.iter().map(text).collect()
}

fn ns(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}
