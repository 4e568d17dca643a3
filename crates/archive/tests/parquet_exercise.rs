//! Reads a Parquet file in every way that the archive has: whatever its bytes, nothing panics.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use barograph_archive::aggregate::{BucketBudget, FoldRequest, aggregate};
use barograph_archive::parquet::ParquetPart;
use barograph_model::{NS_PER_S, Span};

pub(super) fn read_everything(path: &Path) {
    let Ok(part) = ParquetPart::open(path) else {
        return;
    };
    if part.index().is_err() {
        return;
    }
    let _ = part.check();
    let cancel = AtomicBool::new(false);
    let some = Span {
        from: 0,
        to: 10 * NS_PER_S,
    };
    for span in [Span::ALL, some] {
        let mut rows = 0;
        let _ = part.read(&|_| true, span, &cancel, &mut |_, _, columns| {
            rows += columns.len();
            assert_eq!(columns.len(), columns.values.len());
            Ok(())
        });
        let _ = part.read_buckets(&|_| true, span, &cancel, &mut |_, buckets| {
            rows += buckets.len();
            Ok(())
        });
        assert!(rows as u64 <= part.index().map_or(0, |index| index.rows()));
        let budget = BucketBudget::of(usize::MAX);
        let ask = FoldRequest {
            span,
            read: span,
            step_ns: NS_PER_S,
            threads: 1,
            cancel: &cancel,
            budget: &budget,
        };
        for fold in aggregate(&[&part], &|_, _| Some(0), &ask)
            .into_iter()
            .flatten()
        {
            fold.1.finish();
        }
    }
}
