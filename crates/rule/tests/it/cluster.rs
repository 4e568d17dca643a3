//! Tests of rules over the streams of all nodes of a cluster.

use std::sync::Arc;

use barograph_model::{Sample, StreamKey};

use crate::rig::{RuleRig, described};

#[test]
fn streams_of_all_nodes_are_matched_by_their_selectors_alone() {
    let mut rig = RuleRig::default();
    rig.create("r WHEN latest('cluster.disk.busy') > 1 AND latest('load') > 1 CALL 'x'");
    rig.create("w WHEN latest('*.busy') > 1 CALL 'x'");
    let reads = Arc::clone(rig.rules.cluster_reads());
    assert_eq!(reads.len(), 1);
    for (at, node) in ["a", "b"].into_iter().enumerate() {
        let key = StreamKey(100 + at as u32);
        let stream = described(&format!("cluster.disk.busy{{node={node}}}"));
        rig.rules.cluster_stream_added(key, &stream, &"".into());
        rig.rules.sample(key, &Sample::measured(rig.now, 2.0));
    }
    rig.set("load", 2.0);
    rig.set("disk.busy", 2.0);
    assert_eq!(rig.run(), ["r{node=a}", "r{node=b}", "w"]);
    assert_eq!((rig.report("r").subjects, rig.report("w").subjects), (2, 1));
    rig.execute("DROP RULE w").unwrap();
    assert!(Arc::ptr_eq(&reads, rig.rules.cluster_reads()));
    rig.execute("DROP RULE r").unwrap();
    assert!(rig.rules.cluster_reads().is_empty());
}
