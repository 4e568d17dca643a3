//! Snapshots of every source on every machine: its first poll, and one a second later.

use crate::support::{MACHINES, Reader, Tree, source_names};

#[test]
fn every_source_on_every_machine() {
    for machine in MACHINES {
        let tree = Tree::of(machine);
        let mut readers: Vec<_> = source_names()
            .into_iter()
            .map(|name| (Reader::new(tree.source(&name)), name))
            .collect();
        let first: Vec<_> = readers.iter_mut().map(|(r, _)| say(r, &tree)).collect();
        tree.advance();
        let mut silent = Vec::new();
        for ((mut reader, name), (spoke, first)) in readers.into_iter().zip(first) {
            // A scan for control groups is every ten seconds; their files are read at each poll.
            let (speaks, later) = say(&mut reader, &tree);
            if spoke || speaks {
                let both = format!("{first}\n--- one second later\n{later}");
                insta::assert_snapshot!(format!("{machine}-{name}"), both);
            } else {
                silent.push(format!("{name}\n{later}"));
            }
        }
        insta::assert_snapshot!(format!("{machine}-silent"), silent.join("\n\n"));
    }
}

/// Whether a source has facts or faults at its next poll, and their text.
fn say(reader: &mut Reader, tree: &Tree) -> (bool, String) {
    let result = reader.read();
    let speaks = !reader.names.is_empty() || result.is_err();
    (speaks, reader.render(result, tree.path()))
}
