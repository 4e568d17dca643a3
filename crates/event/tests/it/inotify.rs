//! Tests of inotify.

use std::path::Path;

use barograph_event::{Collector, InotifyCollector, InotifyConfig};

use crate::conformance::conforms;

fn open(root: &Path, config: InotifyConfig) -> Box<dyn Collector> {
    Box::new(InotifyCollector::open(&[root.to_owned()], config).unwrap())
}

#[test]
fn inotify_conforms() {
    let state = tempfile::tempdir().unwrap();
    let mut count = 0;
    conforms(|root| {
        count += 1;
        open(
            root,
            InotifyConfig::new(state.path().join(count.to_string())),
        )
    });
}
