//! Views over memory: the reference that those over files are compared with.

use std::sync::atomic::AtomicBool;

use barograph_archive::View;
use barograph_model::Span;

#[test]
fn an_empty_view_has_nothing() {
    let view = View::in_memory(Vec::new(), Vec::new());
    assert!(view.series().is_empty() && view.stretches(Span::ALL).is_empty());
    let cancel = AtomicBool::new(false);
    assert_eq!(view.scan(&[], Span::ALL, &cancel).count(), 0);
}
