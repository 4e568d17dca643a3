//! Checks that a steady poll allocates nothing.

use crate::support::{MACHINES, Reader, Tree, source_names};
use barograph_testing::allocations;

/// The container has no list of disks: each poll reads the directory there, which allocates.
#[test]
fn a_steady_poll_allocates_nothing() {
    const STEP_NS: i64 = 50_000_000;
    for machine in MACHINES {
        let tree = Tree::of(machine);
        let mut readers: Vec<_> = source_names()
            .into_iter()
            .map(|name| (Reader::new(tree.source(&name)), name))
            // A slow source has a thread of its own; one that runs programs has to allocate.
            .filter(|(reader, name)| !reader.source.is_slow() || name == "filesystem")
            .collect();
        readers.retain_mut(|(reader, name)| {
            let absent = reader.read_after(STEP_NS).is_err() || reader.names.is_empty();
            !absent && (machine, &**name) != ("container", "disk")
        });
        tree.advance();
        for (mut reader, name) in readers {
            // Two seconds, after which the highest bandwidth is known.
            for _ in 0..40 {
                reader.read_after(STEP_NS).unwrap();
            }
            for _ in 0..20 {
                let at_ns = reader.reads * STEP_NS;
                reader.reads += 1;
                let made = allocations(|| {
                    reader.batch.begin(at_ns);
                    reader.source.read(at_ns, &mut reader.batch).unwrap();
                });
                assert_eq!(made, 0, "{name} on {machine}");
                // `power` publishes one reading per second, however often it is polled.
                assert!(name == "power" || !reader.batch.samples().is_empty());
            }
        }
    }
}
