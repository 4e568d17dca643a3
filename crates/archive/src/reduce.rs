//! Buckets of a view: from tiers where they fit, from samples elsewhere.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use barograph_model::{Buckets, Columns, SeriesId, Span};

use crate::aggregate::{BucketBudget, Fold, FoldRequest, aggregate, hour_of};
use crate::log::LogPart;
use crate::manifest::union;
use crate::parquet::{ParquetIndex, ParquetPart};
use crate::scan::wanted_of;
use crate::sets::{HourSets, OpenSet};
use crate::snapshot::NodeSnapshot;
use crate::{ArchiveError, Tier, View};

/// Hours whose files are open together: enough for every thread to have a row group.
const HOURS_AT_ONCE: usize = 32;

/// Most buckets of a reader that sets no bound of its own.
const BUCKETS_MAX: usize = 8 << 20;

impl View {
    /// Returns the wanted series in buckets of `step_ns` (starts are multiples of it), from the
    /// coarsest tier whose buckets fit into the step and the span, or from raw samples if there is
    /// none; files are read in parallel by at most `threads` threads. The keys are indexes into
    /// [`Self::series`]; the last value of a bucket from a tier is that of its last file.
    ///
    /// Where retention has deleted everything as fine as the step, coarser buckets are used: each
    /// counts as a whole in the bucket in which it begins, and the buckets until its end are
    /// missing.
    ///
    /// More than 8 Mi buckets are an error.
    pub fn buckets(
        &self,
        wanted: &[usize],
        span: Span,
        step_ns: i64,
        threads: usize,
        cancel: &AtomicBool,
    ) -> Result<BTreeMap<usize, Buckets>, ArchiveError> {
        let budget = BucketBudget::of(BUCKETS_MAX);
        let folds = self.folds_within(wanted, span, step_ns, threads, cancel, &budget)?;
        let buckets = folds
            .into_iter()
            .map(|(place, fold)| (place, fold.finish()));
        Ok(buckets.filter(|(_, buckets)| !buckets.is_empty()).collect())
    }

    /// Like [`Self::buckets`], but returns the folds before they are finished. More buckets than
    /// the budget has room for are an error, as soon as it is exceeded.
    #[doc(hidden)] // For `query`, as is the budget.
    pub fn folds_within(
        &self,
        wanted: &[usize],
        span: Span,
        step_ns: i64,
        threads: usize,
        cancel: &AtomicBool,
        budget: &BucketBudget<'_>,
    ) -> Result<BTreeMap<usize, Fold>, ArchiveError> {
        let ask = BucketsRequest {
            wanted,
            span,
            step_ns: step_ns.max(1),
            threads: threads.max(1),
            cancel,
            budget,
        };
        folds(self, &ask)
    }
}

/// The parameters of [`View::buckets`].
pub(crate) struct BucketsRequest<'a> {
    pub(crate) wanted: &'a [usize],
    pub(crate) span: Span,
    pub(crate) step_ns: i64,
    pub(crate) threads: usize,
    pub(crate) cancel: &'a AtomicBool,
    /// Bound of the buckets that are being built.
    pub(crate) budget: &'a BucketBudget<'a>,
}

/// Folds by place in the view's list of series.
pub(crate) type SeriesFolds = BTreeMap<usize, Fold>;

pub(crate) fn folds(view: &View, ask: &BucketsRequest<'_>) -> Result<SeriesFolds, ArchiveError> {
    let mut folds = SeriesFolds::new();
    for node in &view.nodes {
        let wanted = wanted_of(view, node, ask.wanted);
        if wanted.is_empty() {
            continue;
        }
        // Series that have no buckets in the tiers are computed from samples.
        let in_tiers = |place: usize| Tier::Hour.holds(view.series()[place].descriptor.value_type);
        let (tiered, raw): (HashMap<_, _>, HashMap<_, _>) = wanted
            .iter()
            .map(|(id, place)| (*id, *place))
            .partition(|(_, place)| in_tiers(*place));
        sealed(view, node, &tiered, ask, ask.step_ns, &mut folds)?;
        sealed(view, node, &raw, ask, 1, &mut folds)?;
        logs(node, &wanted, ask, &mut folds)?;
    }
    // Later samples come after those that the last section read.
    folds.values_mut().for_each(|fold| fold.reach(ask.span));
    Ok(folds)
}

fn sealed(
    view: &View,
    node: &NodeSnapshot,
    wanted: &HashMap<SeriesId, usize>,
    ask: &BucketsRequest<'_>,
    tiers_step_ns: i64,
    folds: &mut SeriesFolds,
) -> Result<(), ArchiveError> {
    if wanted.is_empty() {
        return Ok(());
    }
    let parts = node.sealed.manifest.parts.values();
    let Some(known) = parts.map(|part| part.span).reduce(union) else {
        return Ok(());
    };
    let mut sections = sections(ask.span, known, tiers_step_ns);
    let logged = node.logs.iter().map(|log| log.span());
    if let Some(first) = logged
        .filter(|span| span.from <= span.to)
        .map(|span| span.from)
        .min()
    {
        // A bucket does not contain the value that held at its end: hours that continue in the log
        // are read as samples.
        samples_from(hour_of(first).from, &mut sections);
    }
    for (span, level) in sections {
        // The values that held at the ends of a section are read beside it.
        #[expect(clippy::iter_over_hash_type, reason = "each fold forgets by itself")]
        for place in wanted.values() {
            if let Some(fold) = folds.get_mut(place) {
                fold.forget_newest();
            }
        }
        let reading = match level {
            Tier::Minute | Tier::Hour => span,
            Tier::Raw | Tier::Second => around(span),
        };
        let hours = HourSets::of(&node.sealed.manifest, &|sets| sets.meets(reading));
        for hours in hours.chunks(HOURS_AT_ONCE) {
            let mut open = Vec::new();
            for sets in hours {
                open.extend(sets.open(node, &view.handles, &|there| choose(there, level))?);
            }
            read(node, &open, wanted, (span, reading), ask, folds)?;
        }
    }
    Ok(())
}

/// Folds the open files, in order.
fn read(
    node: &NodeSnapshot,
    open: &[OpenSet],
    wanted: &HashMap<SeriesId, usize>,
    (span, reading): (Span, Span),
    ask: &BucketsRequest<'_>,
    folds: &mut SeriesFolds,
) -> Result<(), ArchiveError> {
    let mut parts: Vec<&ParquetPart> = Vec::new();
    // For each file, the series that it is not read for: those that its set's first choice holds.
    let mut without: Vec<Option<Arc<ParquetIndex>>> = Vec::new();
    let (beyond, open): (Vec<&OpenSet>, Vec<&OpenSet>) = open.iter().partition(|set| set.beyond);
    for set in open {
        let first = set.parts.first().filter(|_| set.parts.len() > 1);
        let first = first.map(|(_, part)| part.index()).transpose()?;
        for (at, (_, part)) in set.parts.iter().enumerate() {
            parts.push(part);
            without.push(first.clone().filter(|_| at > 0));
        }
    }
    let known: Vec<Option<std::collections::HashSet<SeriesId>>> = without
        .iter()
        .map(|index| {
            let index = index.as_ref()?;
            Some(index.series.iter().map(|series| series.id).collect())
        })
        .collect();
    let request = FoldRequest {
        span,
        read: reading,
        step_ns: ask.step_ns,
        threads: ask.threads,
        cancel: ask.cancel,
        budget: ask.budget,
    };
    let of = |part: usize, series: &crate::parquet::IndexSeries| {
        let elsewhere = known[part].as_ref();
        let elsewhere = elsewhere.is_some_and(|known| known.contains(&series.id));
        wanted.get(&series.id).copied().filter(|_| !elsewhere)
    };
    merge(folds, aggregate(&parts, &of, &request)?, ask.budget)?;
    // Files that also hold what the view reads from the log are the newest.
    for set in beyond {
        read_beyond(node, set, wanted, (span, reading), ask, folds)?;
    }
    Ok(())
}

/// Folds samples of a file that was merged after the view was taken with segments that the view
/// reads from the log.
fn read_beyond(
    node: &NodeSnapshot,
    set: &OpenSet,
    wanted: &HashMap<SeriesId, usize>,
    (span, reading): (Span, Span),
    ask: &BucketsRequest<'_>,
    folds: &mut SeriesFolds,
) -> Result<(), ArchiveError> {
    for (_, part) in &set.parts {
        let index = part.index()?;
        part.read(
            &|series| wanted.contains_key(&series.id),
            reading,
            ask.cancel,
            &mut |at, life, mut columns| {
                let series = &index.series[at];
                node.cut_beyond(series.id, life, &mut columns);
                if let Some(place) = wanted.get(&series.id) {
                    let value_type = series.descriptor.value_type;
                    let fold = folds.entry(*place);
                    let fold = fold.or_insert_with(|| Fold::new(value_type, ask.step_ns, span));
                    add(fold, life, &columns, ask)?;
                }
                Ok(())
            },
        )?;
    }
    Ok(())
}

/// Folds the log segments: each thread reads one at a time, since a segment is read from its
/// beginning.
fn logs(
    node: &NodeSnapshot,
    wanted: &HashMap<SeriesId, usize>,
    ask: &BucketsRequest<'_>,
    folds: &mut SeriesFolds,
) -> Result<(), ArchiveError> {
    let logs: Vec<&Arc<LogPart>> = node
        .logs
        .iter()
        .filter(|log| log.span().meets(&around(ask.span)))
        .collect();
    for batch in logs.chunks(ask.threads) {
        let done: Vec<Result<SeriesFolds, ArchiveError>> = std::thread::scope(|scope| {
            let readers: Vec<_> = batch
                .iter()
                .map(|log| scope.spawn(|| read_log(log, wanted, ask)))
                .collect();
            let done = readers.into_iter().map(|reader| {
                let done = reader.join();
                done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            done.collect()
        });
        for of_log in done {
            merge(folds, of_log?, ask.budget)?;
        }
    }
    Ok(())
}

fn read_log(
    log: &LogPart,
    wanted: &HashMap<SeriesId, usize>,
    ask: &BucketsRequest<'_>,
) -> Result<SeriesFolds, ArchiveError> {
    let mut folds = SeriesFolds::new();
    log.read(
        &|series| wanted.contains_key(&series.id),
        around(ask.span),
        ask.cancel,
        &mut |at, columns| {
            let series = &log.series()[at];
            if let Some(place) = wanted.get(&series.id) {
                let value_type = series.descriptor.value_type;
                let fold = folds.entry(*place);
                let fold = fold.or_insert_with(|| Fold::new(value_type, ask.step_ns, ask.span));
                add(fold, series.life, &columns, ask)?;
            }
            Ok(())
        },
    )?;
    // Later samples come after those that the last section read.
    folds.values_mut().for_each(|fold| fold.reach(ask.span));
    Ok(folds)
}

/// Adds samples of one life; those outside the span show which values held in it.
fn add(
    fold: &mut Fold,
    life: i64,
    columns: &Columns,
    ask: &BucketsRequest<'_>,
) -> Result<(), ArchiveError> {
    let add = |fold: &mut Fold, at| fold.add(life, columns, at);
    ask.budget.add(fold, columns.len(), add)
}

/// Returns the hours that a span meets: samples in them show which values held at its ends.
fn around(span: Span) -> Span {
    Span {
        from: hour_of(span.from).from,
        to: hour_of(span.to).to,
    }
}

/// Merges folds with those of later samples.
fn merge(
    folds: &mut SeriesFolds,
    later: SeriesFolds,
    budget: &BucketBudget<'_>,
) -> Result<(), ArchiveError> {
    for (place, fold) in later {
        match folds.get_mut(&place) {
            Some(earlier) => budget.merge(earlier, fold)?,
            None => {
                folds.insert(place, fold);
            }
        }
    }
    Ok(())
}

/// Chooses the tier that is read of a set: the wanted one, else the coarsest that is finer, else,
/// if retention deleted those, the finest that is coarser. The tier of seconds does not hold every
/// series: for the others the next tier is the second choice.
fn choose(there: &dyn Fn(Tier) -> bool, level: Tier) -> (Tier, Option<Tier>) {
    let finer = Tier::ALL.into_iter().rev().filter(|tier| *tier <= level);
    let coarser = Tier::ALL.into_iter().filter(|tier| *tier > level);
    let mut found = finer.chain(coarser).filter(|tier| there(*tier));
    match (found.next(), found.next()) {
        (Some(Tier::Second), next) => (Tier::Second, next),
        (first, _) => (first.unwrap_or(Tier::Raw), None),
    }
}

/// Splits the span into sections in order of time, each with the coarsest tier whose buckets fit
/// into the step and do not cross the section's ends. Ends beyond the known samples cut nothing.
fn sections(span: Span, known: Span, step_ns: i64) -> Vec<(Span, Tier)> {
    const HOUR_NS: i64 = crate::tier::HOUR_NS;
    let from = match span.from <= known.from {
        true => known.from.saturating_sub(known.from.rem_euclid(HOUR_NS)),
        false => span.from,
    };
    let to = match span.to >= known.to {
        true => {
            let start = known.to.saturating_sub(known.to.rem_euclid(HOUR_NS));
            start.saturating_add(HOUR_NS - 1)
        }
        false => span.to,
    };
    let fitting = |tier: &Tier| tier.step_ns().is_some_and(|of_tier| step_ns % of_tier == 0);
    let tiers: Vec<Tier> = Tier::ALL.into_iter().rev().filter(fitting).collect();
    let mut sections = Vec::new();
    if from <= to {
        cut(Span { from, to }, &tiers, &mut sections);
    }
    sections
}

/// Makes the sections from this time on read samples only.
fn samples_from(from: i64, sections: &mut Vec<(Span, Tier)>) {
    let ends = sections.first().zip(sections.last());
    let Some((first, to)) = ends.map(|((first, _), (last, _))| (first.from, last.to)) else {
        return;
    };
    let from = from.max(first);
    sections.retain(|(span, _)| span.from < from);
    if let Some((span, _)) = sections.last_mut() {
        span.to = span.to.min(from - 1);
    }
    if from <= to {
        sections.push((Span { from, to }, Tier::Raw));
    }
}

/// Appends whole buckets of the first tier, and the rest before and after them from the other
/// tiers.
fn cut(span: Span, tiers: &[Tier], sections: &mut Vec<(Span, Tier)>) {
    let Some((tier, finer)) = tiers.split_first() else {
        sections.push((span, Tier::Raw));
        return;
    };
    let step_ns = tier.step_ns().unwrap_or(1);
    let after = span.from.saturating_sub(1);
    let from = after
        .saturating_sub(after.rem_euclid(step_ns))
        .saturating_add(step_ns);
    let end = span.to.saturating_add(1);
    let to = end
        .saturating_sub(end.rem_euclid(step_ns))
        .saturating_sub(1);
    if from > to {
        cut(span, finer, sections);
        return;
    }
    if span.from < from {
        let to = from - 1;
        cut(Span { to, ..span }, finer, sections);
    }
    sections.push((Span { from, to }, *tier));
    if to < span.to {
        let from = to + 1;
        cut(Span { from, ..span }, finer, sections);
    }
}

#[cfg(test)]
mod tests {
    use barograph_model::NS_PER_S;

    use super::*;

    #[test]
    fn sections_are_as_coarse_as_they_may_be() {
        let seconds = |from: i64, to: i64| Span {
            from: from * NS_PER_S,
            to: to * NS_PER_S - 1,
        };
        let known = seconds(0, 100 * 3_600);
        use Tier::{Hour, Minute, Raw, Second};
        for (span, step, expect) in [
            (Span::ALL, 3_600, vec![(known, Hour)]),
            (Span::ALL, 60, vec![(known, Minute)]),
            (Span::ALL, 7, vec![(known, Second)]),
            (seconds(60, 120), 3_600, vec![(seconds(60, 120), Minute)]),
            (
                seconds(3_590, 7_261),
                3_600,
                vec![
                    (seconds(3_590, 3_600), Second),
                    (seconds(3_600, 7_200), Hour),
                    (seconds(7_200, 7_260), Minute),
                    (seconds(7_260, 7_261), Second),
                ],
            ),
        ] {
            assert_eq!(
                sections(span, known, step * NS_PER_S),
                expect,
                "{span:?} {step}"
            );
        }
        assert_eq!(sections(Span::ALL, known, 1_000), [(known, Raw)]);
        assert_eq!(sections(Span { from: 5, to: 4 }, known, 1_000), []);
    }

    #[test]
    fn what_is_there_is_chosen() {
        use Tier::{Hour, Minute, Raw, Second};
        for (there, level, expect) in [
            (&Tier::ALL[..], Hour, (Hour, None)),
            (&[Raw, Minute], Hour, (Minute, None)),
            (&[Raw, Second, Minute], Second, (Second, Some(Raw))),
            (&[Second, Minute, Hour], Second, (Second, Some(Minute))),
            (&[Minute, Hour], Raw, (Minute, None)),
            (&[Hour], Second, (Hour, None)),
        ] {
            assert_eq!(choose(&|tier| there.contains(&tier), level), expect);
        }
    }
}
