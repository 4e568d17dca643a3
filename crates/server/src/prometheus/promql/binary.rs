//! Binary operators: arithmetic, comparisons, set operators, and the matching of series of two
//! vectors.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use promql_parser::parser::token::{self, TokenId};
use promql_parser::parser::{BinModifier, LabelModifier, VectorMatchCardinality};

use super::live::{PointClaim, PointCounter, Vector, weight};
use super::series::{Merged, relabelled};
use super::{LabelSet, PromFault, VectorSeries};

/// The result of an operator for two values: a value, and whether a comparison holds.
type Operation = fn(f64, f64) -> (f64, bool);

/// An arithmetic operator or a comparison.
#[derive(Clone, Copy)]
pub(super) struct Operator {
    apply: Operation,
    compares: bool,
    /// Whether a comparison gives 0 or 1 instead of filtering.
    as_bool: bool,
}

impl Operator {
    /// The operator of a parser's token.
    pub(super) fn of(id: TokenId, modifier: Option<&BinModifier>) -> Result<Self, PromFault> {
        let apply: Operation = match id {
            token::T_ADD => |a, b| (a + b, true),
            token::T_SUB => |a, b| (a - b, true),
            token::T_MUL => |a, b| (a * b, true),
            token::T_DIV => |a, b| (a / b, true),
            token::T_MOD => |a, b| (a % b, true),
            token::T_POW => |a, b| (a.powf(b), true),
            token::T_ATAN2 => |a, b| (a.atan2(b), true),
            token::T_EQLC => |a, b| (a, a == b),
            token::T_NEQ => |a, b| (a, a != b),
            token::T_GTR => |a, b| (a, a > b),
            token::T_LSS => |a, b| (a, a < b),
            token::T_GTE => |a, b| (a, a >= b),
            token::T_LTE => |a, b| (a, a <= b),
            _ => return Err(PromFault::bad("this operator is not supported")),
        };
        let compares = [
            token::T_EQLC,
            token::T_NEQ,
            token::T_GTR,
            token::T_LSS,
            token::T_GTE,
            token::T_LTE,
        ];
        Ok(Self {
            apply,
            compares: compares.contains(&id),
            as_bool: modifier.is_some_and(|m| m.return_bool),
        })
    }

    /// Applies the operator to two scalars; the parser ensures that comparisons of scalars are
    /// `bool`.
    pub(super) fn scalars(&self, a: f64, b: f64) -> f64 {
        let (value, holds) = (self.apply)(a, b);
        if self.compares {
            f64::from(u8::from(holds))
        } else {
            value
        }
    }

    fn point(&self, a: f64, b: f64) -> Option<f64> {
        if self.as_bool {
            return Some(self.scalars(a, b));
        }
        let (value, holds) = (self.apply)(a, b);
        holds.then_some(value)
    }

    fn keeps_name(&self) -> bool {
        self.compares && !self.as_bool
    }

    /// Applies the operator to a vector and a scalar at each instant; `scalar_first` if the scalar
    /// is on the left.
    pub(super) fn with_scalar(
        &self,
        mut vector: Vec<VectorSeries>,
        scalar: &[f64],
        scalar_first: bool,
    ) -> Result<Vec<VectorSeries>, PromFault> {
        for series in &mut vector {
            for (point, &scalar) in series.points.iter_mut().zip(scalar) {
                *point = point.and_then(|value| match scalar_first {
                    false => self.point(value, scalar),
                    // A comparison keeps the vector's value, whichever side the vector is on.
                    true if self.keeps_name() => self.point(scalar, value).map(|_| value),
                    true => self.point(scalar, value),
                });
            }
        }
        if self.keeps_name() {
            vector.retain(|s| !s.is_absent());
            return Ok(vector);
        }
        relabelled(vector, LabelSet::nameless)
    }

    /// Applies the operator to the matching series of two vectors.
    pub(super) fn vectors<'a>(
        &self,
        left: Vector<'a>,
        right: Vector<'a>,
        modifier: &BinModifier,
    ) -> Result<Vector<'a>, PromFault> {
        if modifier.fill_values.lhs.is_some() || modifier.fill_values.rhs.is_some() {
            return Err(PromFault::bad("fill modifiers are not supported"));
        }
        let swapped = matches!(modifier.card, VectorMatchCardinality::OneToMany(_));
        let (mut many, one) = if swapped {
            (right, left)
        } else {
            (left, right)
        };
        let points = many.claim.points();
        let matching = Matching(modifier.matching.as_ref());
        let side = if swapped { "left" } else { "right" };
        let partners = Partners::of(&one.series, matching, side, points)?;
        let pairs = Pairs {
            operator: *self,
            modifier,
            swapped,
            one: &one.series,
        };
        let mut claim = points.claim(0)?;
        let mut merged = Merged::default();
        // With one-to-one matching, a partner may be used once per instant.
        let mut taken: HashMap<LabelSet, Vec<bool>> = HashMap::new();
        for series in many.series {
            // The claim of a series of the many side is given back as soon as its results exist.
            many.claim.give(series.weight());
            let key = matching.key(&series.labels);
            let Some(partner) = partners.of_key.get(&key) else {
                continue;
            };
            let taken = taken
                .entry(key)
                .or_insert_with(|| vec![false; partner.len()]);
            for result in pairs.join(&series, partner, taken, &mut claim)? {
                let points = result.weight();
                let is_new = merged.add(result).map_err(|_| {
                    PromFault::execution(
                        "multiple matches for labels: grouping labels must ensure unique matches",
                    )
                })?;
                if !is_new {
                    claim.give(points);
                }
            }
        }
        Ok(Vector::of(merged.done(), claim))
    }
}

struct Pairs<'a> {
    operator: Operator,
    modifier: &'a BinModifier,
    swapped: bool,
    one: &'a [VectorSeries],
}

impl Pairs<'_> {
    /// Joins a series of the many side with its partners; there are several if they have values at
    /// different instants.
    fn join(
        &self,
        many: &VectorSeries,
        partner: &[Option<usize>],
        taken: &mut [bool],
        claim: &mut PointClaim<'_>,
    ) -> Result<Vec<VectorSeries>, PromFault> {
        let one_to_one = self.modifier.card == VectorMatchCardinality::OneToOne;
        let mut results: Vec<(usize, VectorSeries)> = Vec::new();
        for (step, value) in many.points.iter().enumerate() {
            let (Some(value), Some(at)) = (*value, partner[step]) else {
                continue;
            };
            let other = self.one[at].points[step].unwrap_or(f64::NAN);
            let (a, b) = if self.swapped {
                (other, value)
            } else {
                (value, other)
            };
            let Some(point) = self.operator.point(a, b) else {
                continue;
            };
            if one_to_one && std::mem::replace(&mut taken[step], true) {
                return Err(PromFault::execution(
                    "multiple matches for labels: many-to-one matching must be explicit \
                     (group_left/group_right)",
                ));
            }
            let place = match results.iter().position(|(with, _)| *with == at) {
                Some(place) => place,
                None => {
                    let labels = self.labels(&many.labels, &self.one[at].labels);
                    claim.grow(weight(&labels, many.points.len()))?;
                    let points = vec![None; many.points.len()];
                    results.push((at, VectorSeries { labels, points }));
                    results.len() - 1
                }
            };
            results[place].1.points[step] = Some(point);
        }
        Ok(results.into_iter().map(|(_, series)| series).collect())
    }

    fn labels(&self, many: &LabelSet, one: &LabelSet) -> LabelSet {
        let mut labels = match self.operator.keeps_name() {
            true => many.clone(),
            false => many.nameless(),
        };
        match &self.modifier.card {
            VectorMatchCardinality::OneToOne => match &self.modifier.matching {
                Some(LabelModifier::Include(on)) => labels = labels.only(&on.labels),
                Some(LabelModifier::Exclude(off)) => labels = labels.drop_only(&off.labels),
                None => {}
            },
            VectorMatchCardinality::ManyToOne(include)
            | VectorMatchCardinality::OneToMany(include) => {
                for name in &include.labels {
                    labels.set(name, one.get(name).unwrap_or(""));
                }
            }
            VectorMatchCardinality::ManyToMany => {}
        }
        labels
    }
}

/// The labels by which series are matched.
#[derive(Clone, Copy)]
struct Matching<'a>(Option<&'a LabelModifier>);

impl Matching<'_> {
    fn key(&self, labels: &LabelSet) -> LabelSet {
        match self.0 {
            None => labels.nameless(),
            Some(LabelModifier::Include(on)) => labels.only(&on.labels),
            Some(LabelModifier::Exclude(off)) => labels.without(&off.labels),
        }
    }
}

/// The series that has a value, for each key and instant.
struct Partners<'a> {
    of_key: HashMap<LabelSet, Vec<Option<usize>>>,
    _claim: PointClaim<'a>,
}

impl<'a> Partners<'a> {
    fn of(
        vector: &[VectorSeries],
        matching: Matching<'_>,
        side: &str,
        points: &'a PointCounter<'a>,
    ) -> Result<Self, PromFault> {
        let mut claim = points.claim(0)?;
        let mut partners: HashMap<LabelSet, Vec<Option<usize>>> = HashMap::new();
        for (at, series) in vector.iter().enumerate() {
            let steps = series.points.len();
            let there = match partners.entry(matching.key(&series.labels)) {
                Entry::Occupied(there) => there.into_mut(),
                Entry::Vacant(place) => {
                    claim.grow(weight(place.key(), steps))?;
                    place.insert(vec![None; steps])
                }
            };
            for (there, point) in there.iter_mut().zip(&series.points) {
                match (&there, point) {
                    (Some(first), Some(_)) => {
                        return Err(PromFault::execution(format!(
                            "found duplicate series for the match group on the {side} hand-side of \
                             the operation: [{}, {}];many-to-many matching not allowed: matching \
                             labels must be unique on one side",
                            series.labels, vector[*first].labels
                        )));
                    }
                    (None, Some(_)) => *there = Some(at),
                    _ => {}
                }
            }
        }
        Ok(Self {
            of_key: partners,
            _claim: claim,
        })
    }
}

/// Evaluates `and`, `or` and `unless`.
pub(super) fn sets<'a>(
    id: TokenId,
    left: Vector<'a>,
    right: Vector<'a>,
    modifier: &BinModifier,
) -> Result<Vector<'a>, PromFault> {
    let mut claim = left.claim;
    claim.join(right.claim);
    let (mut left, mut right) = (left.series, right.series);
    let matching = Matching(modifier.matching.as_ref());
    // `or` adds the points of the right that the left lacks; `and` and `unless` filter the left by
    // the right.
    let (chosen, by, wanted) = match id {
        token::T_LAND => (&mut left, &right, true),
        token::T_LUNLESS => (&mut left, &right, false),
        _ => (&mut right, &left, false),
    };
    let mut present: HashMap<LabelSet, Vec<bool>> = HashMap::new();
    for series in by {
        let key = matching.key(&series.labels);
        let steps = series.points.len();
        let there = present.entry(key).or_insert_with(|| vec![false; steps]);
        for (there, point) in there.iter_mut().zip(&series.points) {
            *there |= point.is_some();
        }
    }
    for series in chosen.iter_mut() {
        let there = present.get(&matching.key(&series.labels));
        for (step, point) in series.points.iter_mut().enumerate() {
            if there.is_some_and(|there| there[step]) != wanted {
                *point = None;
            }
        }
    }
    let mut merged = Merged::default();
    let others = if id == token::T_LOR {
        right
    } else {
        Vec::new()
    };
    for series in left.into_iter().chain(others) {
        merged.add(series)?;
    }
    Ok(Vector::of(merged.done(), claim))
}
