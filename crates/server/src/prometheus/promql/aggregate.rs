//! Aggregations: series are put into groups, and each group is reduced at each instant.

use std::collections::HashMap;

use promql_parser::parser::LabelModifier;
use promql_parser::parser::token::{self, TokenId};

use super::functions::{ascending, quantile};
use super::range::{mean, sum, variance};
use super::{LabelSet, PromFault, VectorSeries};

/// The function that is applied to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aggregation {
    Sum,
    Avg,
    Min,
    Max,
    Count,
    Group,
    Stddev,
    Stdvar,
    Quantile,
    Topk,
    Bottomk,
}

impl Aggregation {
    /// The aggregation of a parser's token.
    pub(super) fn of(id: TokenId) -> Result<Self, PromFault> {
        Ok(match id {
            token::T_SUM => Self::Sum,
            token::T_AVG => Self::Avg,
            token::T_MIN => Self::Min,
            token::T_MAX => Self::Max,
            token::T_COUNT => Self::Count,
            token::T_GROUP => Self::Group,
            token::T_STDDEV => Self::Stddev,
            token::T_STDVAR => Self::Stdvar,
            token::T_QUANTILE => Self::Quantile,
            token::T_TOPK => Self::Topk,
            token::T_BOTTOMK => Self::Bottomk,
            _ => {
                return Err(PromFault::bad(
                    "this aggregation is not supported: use sum, avg, min, max, count, group, stddev, \
                     stdvar, quantile, topk or bottomk",
                ));
            }
        })
    }
}

/// The labels by which series are grouped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grouping<'a>(pub Option<&'a LabelModifier>);

impl Grouping<'_> {
    fn labels(&self, of: &LabelSet) -> LabelSet {
        match self.0 {
            None => LabelSet::none(),
            Some(LabelModifier::Include(names)) => of.only(&names.labels),
            Some(LabelModifier::Exclude(names)) => of.without(&names.labels),
        }
    }

    fn groups(&self, vector: Vec<VectorSeries>) -> Vec<(LabelSet, Vec<VectorSeries>)> {
        let mut groups: Vec<(LabelSet, Vec<VectorSeries>)> = Vec::new();
        let mut places: HashMap<LabelSet, usize> = HashMap::new();
        for series in vector {
            let labels = self.labels(&series.labels);
            let at = *places.entry(labels).or_insert_with_key(|labels| {
                groups.push((labels.clone(), Vec::new()));
                groups.len() - 1
            });
            groups[at].1.push(series);
        }
        groups
    }
}

/// Reduces every group to one series; `argument` is the scalar at each instant, for quantiles.
pub(super) fn reduce(
    vector: Vec<VectorSeries>,
    aggregation: Aggregation,
    grouping: Grouping<'_>,
    argument: &[f64],
) -> Vec<VectorSeries> {
    let groups = grouping.groups(vector).into_iter();
    let mut values = Vec::new();
    let reduced = groups.map(|(labels, members)| {
        let steps = members.first().map_or(0, |m| m.points.len());
        let points = (0..steps).map(|step| {
            values.clear();
            values.extend(members.iter().filter_map(|m| m.points[step]));
            let argument = argument.get(step).copied().unwrap_or(f64::NAN);
            (!values.is_empty()).then(|| value_of(&mut values, aggregation, argument))
        });
        VectorSeries {
            labels,
            points: points.collect(),
        }
    });
    reduced.filter(|s| !s.is_absent()).collect()
}

fn value_of(values: &mut [f64], aggregation: Aggregation, argument: f64) -> f64 {
    let extreme = |better: fn(f64, f64) -> bool| {
        let best = |a: f64, b: f64| if better(b, a) || a.is_nan() { b } else { a };
        values.iter().copied().reduce(best).unwrap_or(f64::NAN)
    };
    match aggregation {
        Aggregation::Sum => sum(values),
        Aggregation::Avg => mean(values),
        Aggregation::Min => extreme(|new, old| new < old),
        Aggregation::Max => extreme(|new, old| new > old),
        Aggregation::Count => values.len() as f64,
        Aggregation::Stdvar => variance(values),
        Aggregation::Stddev => variance(values).sqrt(),
        Aggregation::Quantile => quantile(argument, values),
        // `choose` handles topk and bottomk.
        Aggregation::Group | Aggregation::Topk | Aggregation::Bottomk => 1.0,
    }
}

/// The k largest or smallest of every group at each instant, with their own labels, best first.
pub(super) fn choose(
    vector: Vec<VectorSeries>,
    largest: bool,
    grouping: Grouping<'_>,
    argument: &[f64],
) -> Vec<VectorSeries> {
    let mut chosen = Vec::new();
    for (_, mut members) in grouping.groups(vector) {
        let steps = members.first().map_or(0, |m| m.points.len());
        let mut best_first = Vec::new();
        for step in 0..steps {
            let wanted = argument.get(step).copied().unwrap_or(f64::NAN);
            let k = if wanted >= 1.0 { wanted as usize } else { 0 };
            let value = |m: &VectorSeries| m.points[step].unwrap_or(f64::NAN);
            best_first.clear();
            best_first.extend((0..members.len()).filter(|&m| members[m].points[step].is_some()));
            best_first.sort_by(|&a, &b| {
                let (a, b) = (value(&members[a]), value(&members[b]));
                // A NaN comes after all numbers.
                let of_nan = a.is_nan().cmp(&b.is_nan());
                of_nan.then(if largest {
                    ascending(&b, &a)
                } else {
                    ascending(&a, &b)
                })
            });
            for &loser in best_first.iter().skip(k) {
                members[loser].points[step] = None;
            }
        }
        // This order is visible in an answer of one instant; in others it does not matter.
        let mut members: Vec<Option<VectorSeries>> = members.into_iter().map(Some).collect();
        chosen.extend(best_first.iter().filter_map(|&m| members[m].take()));
        chosen.extend(members.into_iter().flatten());
    }
    chosen.retain(|s| !s.is_absent());
    chosen
}
