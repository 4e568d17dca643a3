//! Exports of an archive that is written to meanwhile: each sample of one moment, once.

use std::cell::Cell;
use std::path::Path;

use barograph_archive::{ArchiveExport, ArchiveReader, ArchivedSeries, ExportTo, Keeper};
use barograph_model::{NS_PER_S, Span};

use crate::seal::append;
use crate::support::{
    assert_sound, config, dir_in_memory, everything, export_all, parquet_files, start,
};

/// Interval of samples: two of each stream per hour.
const STEP_NS: i64 = 1_800 * NS_PER_S;

/// Makes an archive of more files than a view holds open by default, and of log segments.
fn prepare(root: &Path) -> Keeper {
    let keeper = start(config(root)).unwrap();
    for life in 1..=2 {
        append(&keeper, life, 1..=120, STEP_NS);
        keeper.seal().unwrap();
    }
    append(&keeper, 3, 1..=40, STEP_NS);
    assert!(parquet_files(root).len() > 300);
    keeper
}

/// Runs an export while the archive changes: everything is sealed and merged once it has begun, and
/// samples are added at each call of `wanted`.
fn disturbed(root: &Path, keeper: &Keeper, to: ExportTo<'_>) -> u64 {
    let begun = Cell::new(false);
    let wanted = |_: &ArchivedSeries| {
        if !begun.replace(true) {
            append(keeper, 4, 1..=40, STEP_NS);
            keeper.compact().unwrap();
        }
        true
    };
    let mut life = 4;
    let mut of = ArchiveExport::new(Span::ALL);
    of.add(&ArchiveReader::open(root), None, &wanted).unwrap();
    of.write(to, &mut |_| {
        if life < 7 {
            life += 1;
            append(keeper, life, 1..=9, STEP_NS);
            keeper.compact().unwrap();
        }
    })
    .unwrap()
}

#[test]
fn an_export_has_each_sample_once_though_all_is_merged_meanwhile() {
    let dir = dir_in_memory();
    let (root, out) = (dir.path().join("archive"), dir.path().join("out"));
    let keeper = prepare(&root);
    let before = everything(&root);
    let samples = disturbed(&root, &keeper, ExportTo::Parquet(&out));
    assert_eq!(samples, 3 * (120 + 120 + 40));
    assert!(everything(&out) == before);
    // Other programs that read by a pattern find only this archive.
    assert_sound(&out);
}

#[test]
fn a_text_has_each_sample_once_though_all_is_merged_meanwhile() {
    let dir = dir_in_memory();
    let keeper = prepare(dir.path());
    let mut text = Vec::new();
    let samples = disturbed(dir.path(), &keeper, ExportTo::JsonLines(&mut text));
    assert_eq!(samples, 3 * (120 + 120 + 40));
    let text = String::from_utf8(text).unwrap();
    assert_eq!(text.lines().count() as u64, samples);
}

#[test]
fn what_other_hands_removed_is_left_out() {
    let dir = dir_in_memory();
    let (root, out) = (dir.path().join("archive"), dir.path().join("out"));
    let keeper = prepare(&root);
    drop(keeper);
    let raw = parquet_files(&root.join("raw"));
    // The file is of the oldest hour, which no view holds open.
    std::fs::remove_file(&raw[0]).unwrap();
    let to = ExportTo::Parquet(&out);
    let samples = export_all(&root, to);
    // One sample of each stream is missing.
    assert_eq!(samples, 3 * (120 + 120 + 40 - 1));
    assert_sound(&out);
}

/// Both archives have the same hours, series and sequences of log segments: no file of one replaces
/// a file of the other.
#[test]
fn archives_of_applications_lie_beside_the_nodes() {
    let dir = dir_in_memory();
    let (node, scope) = (dir.path().join("node"), dir.path().join("scope"));
    for root in [&node, &scope] {
        let keeper = start(config(root)).unwrap();
        append(&keeper, 1, 1..=9, STEP_NS);
        keeper.seal().unwrap();
    }
    let selected = |wanted: &dyn Fn(&ArchivedSeries) -> bool, span| {
        let mut of = ArchiveExport::new(span);
        of.add(&ArchiveReader::open(&node), None, wanted).unwrap();
        of.add(&ArchiveReader::open(&scope), Some("u7"), wanted)
            .unwrap();
        of
    };
    let all = selected(&|_| true, Span::ALL);
    assert_eq!((all.series(), all.has_samples().unwrap()), (6, true));
    let out = dir.path().join("out");
    let samples = all.write(ExportTo::Parquet(&out), &mut |_| {}).unwrap();
    assert_eq!(samples, 2 * 3 * 9);
    assert!(everything(&out) == everything(&node));
    assert!(everything(&out.join("applications/u7")) == everything(&scope));
    let mut text = Vec::new();
    let samples = all.write(ExportTo::Csv(&mut text), &mut |_| {}).unwrap();
    let lines = String::from_utf8(text).unwrap().lines().count() as u64;
    assert_eq!(lines, samples + 1);
    let later = Span {
        from: i64::MAX,
        to: i64::MAX,
    };
    assert_eq!(selected(&|_| false, Span::ALL).series(), 0);
    assert!(!selected(&|_| true, later).has_samples().unwrap());
}
