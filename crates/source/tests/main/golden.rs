//! Every source on every machine: what it gives on the first read, and one second later.

use crate::support::{MACHINES, Reader, Tree, source_names};

#[test]
fn every_source_on_every_machine() {
    for machine in MACHINES {
        let mut silent = Vec::new();
        for name in source_names() {
            let tree = Tree::of(machine);
            let mut reader = Reader::new(tree.source(&name));
            let result = reader.read();
            let mut speaks = !reader.names.is_empty() || result.is_err();
            let first = reader.render(result, tree.path());
            tree.advance();
            // Control groups are looked for every ten seconds only; their files are read each time.
            let result = reader.read();
            speaks |= !reader.names.is_empty() || result.is_err();
            let later = reader.render(result, tree.path());
            if speaks {
                let both = format!("{first}\n--- one second later\n{later}");
                insta::assert_snapshot!(format!("{machine}-{name}"), both);
            } else {
                silent.push(format!("{name}\n{later}"));
            }
        }
        insta::assert_snapshot!(format!("{machine}-silent"), silent.join("\n\n"));
    }
}
