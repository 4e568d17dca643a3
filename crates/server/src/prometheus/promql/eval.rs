//! Evaluates the syntax tree. Every operator works on whole series, so each series is read and
//! walked once.

use barograph_model::{Span, seconds};
use promql_parser::parser::token::{T_LAND, T_LOR, T_LUNLESS};
use promql_parser::parser::{
    AggregateExpr, AtModifier, BinModifier, BinaryExpr, Call, Expr, MatrixSelector, Offset,
    VectorSelector,
};

use super::aggregate::{self, Aggregation, Grouping};
use super::binary::{self, Operator};
use super::functions::{self, elementwise, of_time};
use super::live::{PointClaim, PointCounter, Scalar, ScalarOutcome, Vector, weight};
use super::plan::{self, PromQuery};
use super::range::{self, RangeWindow};
use super::select::{self, Sampled};
use super::series::relabelled;
use super::{Grid, LabelSet, PromFault, QueryContext, VectorSeries};

/// Most looks between two checks of the time.
const LOOKS_BETWEEN_CHECKS: usize = 1 << 16;

/// Times and values of the looks of one series.
pub(super) type LookSamples = Vec<(i64, f64)>;

/// The result of a query.
#[derive(Debug, PartialEq)]
pub enum QueryAnswer {
    /// A value at each instant.
    Scalar(Vec<f64>),
    /// Series with a value or none at each instant.
    Vector(Vec<VectorSeries>),
    /// The looks of a range, only for a single instant.
    Matrix(Vec<(LabelSet, LookSamples)>),
    /// A text, which is the result of a string literal.
    Text(String),
}

impl PromQuery {
    /// Evaluates the query at every instant of the grid.
    pub fn answer(&self, context: &QueryContext<'_>, grid: Grid) -> Result<QueryAnswer, PromFault> {
        let points = PointCounter::at_most(context.points_max, context.holds);
        let evaluation = Evaluation {
            context,
            grid,
            points,
        };
        let answer = match strip(&self.root) {
            Expr::StringLiteral(text) => Ok(QueryAnswer::Text(text.val.clone())),
            Expr::MatrixSelector(m) if grid.count == 1 => evaluation.matrix(m),
            root => evaluation.value(root).map(|value| match value {
                Value::Scalar(scalar) => QueryAnswer::Scalar(scalar.values),
                Value::Vector(vector) => QueryAnswer::Vector(vector.series),
            }),
        };
        debug_assert_eq!(
            evaluation.points.live(),
            0,
            "what was claimed was given back"
        );
        answer
    }
}

enum Value<'a> {
    Scalar(Scalar<'a>),
    Vector(Vector<'a>),
}

struct Evaluation<'a> {
    context: &'a QueryContext<'a>,
    grid: Grid,
    /// The points that all living values of the evaluation count for.
    points: PointCounter<'a>,
}

type Outcome<'a> = Result<Vector<'a>, PromFault>;

impl Evaluation<'_> {
    fn value(&self, expr: &Expr) -> Result<Value<'_>, PromFault> {
        self.context.check()?;
        Ok(match expr {
            Expr::Paren(inner) => self.value(&inner.expr)?,
            Expr::NumberLiteral(n) => Value::Scalar(self.at_each(|_| n.val)?),
            Expr::Unary(minus) => match self.value(&minus.expr)? {
                Value::Scalar(mut scalar) => {
                    scalar.values.iter_mut().for_each(|v| *v = -*v);
                    Value::Scalar(scalar)
                }
                Value::Vector(v) => Value::Vector(v.then(|v| each(v, |v| -v))?),
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

    fn vector(&self, expr: &Expr) -> Outcome<'_> {
        match self.value(expr)? {
            Value::Vector(series) => Ok(series),
            Value::Scalar(_) => Err(PromFault::bad("expected an instant vector, got a scalar")),
        }
    }

    /// A scalar with the given value at each instant.
    fn at_each(&self, value: impl Fn(i64) -> f64) -> ScalarOutcome<'_> {
        let steps = 0..self.grid.count;
        self.points
            .scalar(steps.map(|step| value(self.grid.at(step))))
    }

    fn scalar(&self, expr: &Expr) -> ScalarOutcome<'_> {
        match self.value(expr)? {
            Value::Scalar(scalar) => Ok(scalar),
            Value::Vector(_) => Err(PromFault::bad("expected a scalar, got an instant vector")),
        }
    }

    /// Claims room for series that were read, at each instant.
    fn room(&self, sampled: &[Sampled]) -> Result<PointClaim<'_>, PromFault> {
        let weights = sampled.iter().map(|s| weight(&s.labels, self.grid.count));
        self.points.claim(weights.fold(0, usize::saturating_add))
    }

    /// The time at which a selector is evaluated for the instant `at`, by its `@` and `offset`.
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
        select::read(self.context, &wanted, span, range_ns)
    }

    /// The values that an instant selector gives, or the times of their looks.
    fn instant(&self, selector: &VectorSelector, of_times: bool) -> Outcome<'_> {
        let read = self.read(selector, 0)?;
        let claim = self.room(&read)?;
        let mut vector = Vec::new();
        for sampled in read {
            self.context.check()?;
            let times = self.grid.times().map(|at| self.shifted(selector, at));
            let seen = sampled.seen(times);
            let value = |(ts, value): (i64, f64)| if of_times { ts as f64 / 1e9 } else { value };
            let points: Vec<_> = seen.map(|seen| seen.map(value)).collect();
            let labels = sampled.labels;
            vector.push(VectorSeries { labels, points });
        }
        vector.retain(|s| !s.is_absent());
        Ok(Vector::of(vector, claim))
    }

    /// Evaluates a function over a window that slides along each series.
    fn ranged(&self, name: &str, matrix: &MatrixSelector, arguments: &[f64]) -> Outcome<'_> {
        let function = range::function(name)?;
        let range_ns = ns(matrix.range);
        let read = self.read(&matrix.vs, range_ns)?;
        let claim = self.room(&read)?;
        let mut vector = Vec::new();
        let mut unchecked = 0;
        for sampled in read {
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
                    self.context.check()?;
                }
                let window = RangeWindow {
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
            vector.push(VectorSeries { labels, points });
        }
        let keeps_name = matches!(name, "last_over_time" | "first_over_time");
        match keeps_name {
            true => vector.retain(|s| !s.is_absent()),
            false => vector = relabelled(vector, LabelSet::nameless)?,
        }
        Ok(Vector::of(vector, claim))
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

    fn matrix(&self, matrix: &MatrixSelector) -> Result<QueryAnswer, PromFault> {
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
        Ok(QueryAnswer::Matrix(series))
    }

    fn binary(&self, binary: &BinaryExpr) -> Result<Value<'_>, PromFault> {
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
            (Value::Scalar(mut a), Value::Scalar(b)) => {
                for (a, b) in a.values.iter_mut().zip(&b.values) {
                    *a = operator.scalars(*a, *b);
                }
                Value::Scalar(a)
            }
            (Value::Vector(v), Value::Scalar(s)) => {
                Value::Vector(v.then(|v| operator.with_scalar(v, &s.values, false))?)
            }
            (Value::Scalar(s), Value::Vector(v)) => {
                Value::Vector(v.then(|v| operator.with_scalar(v, &s.values, true))?)
            }
            (Value::Vector(a), Value::Vector(b)) => {
                Value::Vector(operator.vectors(a, b, modifier)?)
            }
        })
    }

    fn aggregate(&self, aggregate: &AggregateExpr) -> Outcome<'_> {
        let aggregation = Aggregation::of(aggregate.op.id())?;
        let scalar = aggregate.param.as_deref().map(|p| self.scalar(p));
        let scalar = scalar.transpose()?;
        let argument = scalar.as_ref().map_or(&[][..], |a| &a.values);
        let vector = self.vector(&aggregate.expr)?;
        let grouping = Grouping(aggregate.modifier.as_ref());
        vector.then(|vector| {
            Ok(match aggregation {
                Aggregation::Topk | Aggregation::Bottomk => {
                    let largest = aggregation == Aggregation::Topk;
                    aggregate::choose(vector, largest, grouping, argument)
                }
                _ => aggregate::reduce(vector, aggregation, grouping, argument),
            })
        })
    }

    fn call(&self, call: &Call) -> Result<Value<'_>, PromFault> {
        let name = call.func.name;
        let arguments: Vec<&Expr> = call.args.args.iter().map(|a| strip(a)).collect();
        Ok(match (name, arguments.as_slice()) {
            ("time", []) => Value::Scalar(self.at_each(seconds)?),
            ("pi", []) => Value::Scalar(self.at_each(|_| std::f64::consts::PI)?),
            ("scalar", [v]) => Value::Scalar(self.only_value(v)?),
            ("vector", [s]) => Value::Vector(self.of_scalar(self.scalar(s)?)?),
            ("absent", [v]) => Value::Vector(self.absent(v, self.vector(v)?)?),
            ("absent_over_time", [v @ Expr::MatrixSelector(m)]) => {
                let present = self.ranged("present_over_time", m, &[])?;
                Value::Vector(self.absent(v, present)?)
            }
            ("timestamp", [Expr::VectorSelector(v)]) => {
                let times = self.instant(v, true)?;
                Value::Vector(times.then(|v| relabelled(v, LabelSet::nameless))?)
            }
            ("timestamp", [v]) => {
                let mut vector = self.vector(v)?;
                for series in &mut vector.series {
                    for (point, at) in series.points.iter_mut().zip(self.grid.times()) {
                        *point = point.map(|_| seconds(at));
                    }
                }
                Value::Vector(vector.then(|v| relabelled(v, LabelSet::nameless))?)
            }
            ("sort" | "sort_desc", [v]) => {
                let mut vector = self.vector(v)?;
                if self.grid.count == 1 {
                    functions::sort(&mut vector.series, name == "sort_desc");
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
                let vector = self.vector(v)?;
                Value::Vector(functions::label_join(vector, to, separator, from)?)
            }
            ("quantile_over_time", [q, Expr::MatrixSelector(m)]) => {
                Value::Vector(self.ranged(name, m, &self.scalar(q)?.values)?)
            }
            ("predict_linear", [Expr::MatrixSelector(m), ahead]) => {
                Value::Vector(self.ranged(name, m, &self.scalar(ahead)?.values)?)
            }
            (_, [Expr::MatrixSelector(m)]) => Value::Vector(self.ranged(name, m, &[])?),
            _ => Value::Vector(self.of_values(name, &arguments)?),
        })
    }

    /// Evaluates a function of each value and scalars.
    fn of_values(&self, name: &str, arguments: &[&Expr]) -> Outcome<'_> {
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
            return self.of_scalar(self.at_each(|at| function(at as f64 / 1e9, &[]))?);
        };
        let mut vector = self.vector(first)?;
        let scalars: Vec<Scalar<'_>> = scalars
            .iter()
            .map(|s| self.scalar(s))
            .collect::<Result<_, _>>()?;
        for step in 0..self.grid.count {
            let at_step: Vec<f64> = scalars.iter().map(|s| s.values[step]).collect();
            // Bounds that exclude each other leave no values.
            let is_empty = name == "clamp" && at_step[0] > at_step[1];
            for series in &mut vector.series {
                let point = &mut series.points[step];
                *point = point.filter(|_| !is_empty).map(|v| function(v, &at_step));
            }
        }
        vector.then(|v| relabelled(v, LabelSet::nameless))
    }

    /// The value of the only series at each instant, or NaN if there is not exactly one.
    fn only_value(&self, expr: &Expr) -> ScalarOutcome<'_> {
        let vector = self.vector(expr)?;
        let only = |step: usize| {
            let mut values = vector.series.iter().filter_map(|s| s.points[step]);
            values.next().filter(|_| values.next().is_none())
        };
        let steps = 0..self.grid.count;
        self.points
            .scalar(steps.map(|step| only(step).unwrap_or(f64::NAN)))
    }

    fn absent<'s>(&'s self, asked: &Expr, vector: Vector<'_>) -> Outcome<'s> {
        let selector = match asked {
            Expr::VectorSelector(v) => Some(v),
            Expr::MatrixSelector(m) => Some(&m.vs),
            _ => None,
        };
        let matching = selector.and_then(|s| plan::matching(s).ok());
        let labels = matching.map(|m| functions::labels_of_absent(m.equalities()));
        let labels = labels.unwrap_or_default();
        let claim = self.points.claim(weight(&labels, self.grid.count))?;
        let is_there = |step: usize| vector.series.iter().any(|s| s.points[step].is_some());
        let points = (0..self.grid.count).map(|step| (!is_there(step)).then_some(1.0));
        let points = points.collect();
        let mut vector = vec![VectorSeries { labels, points }];
        vector.retain(|s| !s.is_absent());
        Ok(Vector::of(vector, claim))
    }

    /// A vector of one series without labels.
    fn of_scalar<'s>(&'s self, scalar: Scalar<'s>) -> Outcome<'s> {
        let labels = LabelSet::none();
        let claim = self.points.claim(weight(&labels, self.grid.count))?;
        let points = scalar.values.into_iter().map(Some).collect();
        Ok(Vector::of(vec![VectorSeries { labels, points }], claim))
    }
}

fn each(
    mut vector: Vec<VectorSeries>,
    of: impl Fn(f64) -> f64,
) -> Result<Vec<VectorSeries>, PromFault> {
    for point in vector.iter_mut().flat_map(|s| &mut s.points) {
        *point = point.map(&of);
    }
    relabelled(vector, LabelSet::nameless)
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
