//! Tests of the collector by fanotify. Marking a file system needs CAP_SYS_ADMIN, without which they
//! say so and check nothing but that refusal.

use std::path::Path;

use barograph_event::{Collector, FanotifyCollector, FanotifyConfig, FanotifyGroup};

use crate::conformance::conforms;

/// A group for the file system of a directory; `None` if this process may not open one.
fn group(base: &Path) -> Option<FanotifyGroup> {
    match FanotifyGroup::open(base) {
        Ok(group) => {
            assert!(group.lacks.is_empty(), "{:?}", group.lacks);
            Some(group)
        }
        Err(fault) => {
            let fault = fault.to_string();
            assert!(fault.contains("CAP_SYS_ADMIN"), "{fault}");
            eprintln!("not tested: {fault}");
            None
        }
    }
}

fn boxed(group: FanotifyGroup, config: &FanotifyConfig) -> Box<dyn Collector> {
    Box::new(FanotifyCollector::new(group, config).unwrap())
}

#[test]
fn it_conforms() {
    if group(Path::new("/tmp")).is_some() {
        conforms(|root| boxed(group(root).unwrap(), &FanotifyConfig::new(root)));
    }
}
