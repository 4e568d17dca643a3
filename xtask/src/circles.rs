//! Checks that the files of a crate do not import each other in circles. A module counts as one
//! with all that is below it, so a module and its children may use each other; modules of the same
//! parent must have an order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::imports::{ModulePath, Modules, read_crate, used_by};
use crate::workspace::Package;

/// Imports from one module of a parent to another, each with the files at both ends.
type Arrows = BTreeMap<ModulePath, BTreeMap<ModulePath, (String, String)>>;

/// Reports the circles of every package.
///
/// # Errors
///
/// The path of a file that cannot be read.
pub(crate) fn check(packages: &[Package]) -> anyhow::Result<Vec<String>> {
    let mut faults = Vec::new();
    for package in packages {
        for root_file in ["lib.rs", "main.rs"] {
            if package.sources.join(root_file).is_file() {
                let circles = circles(&arrows(&read_crate(&package.sources, root_file)?));
                let named = circles
                    .iter()
                    .map(|it| format!("{}: circle: {it}", package.name));
                faults.extend(named);
            }
        }
    }
    Ok(faults)
}

/// The imports between modules that have the same parent.
fn arrows(modules: &Modules) -> Arrows {
    let mut arrows = Arrows::new();
    for (from, file) in modules {
        for to in used_by(from, modules) {
            let same = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
            // One of the two is the other or above it.
            if same == from.len() || same == to.len() {
                continue;
            }
            arrows
                .entry(from[..=same].to_vec())
                .or_default()
                .entry(to[..=same].to_vec())
                .or_insert_with(|| (file.path.clone(), modules[&to].path.clone()));
        }
    }
    arrows
}

/// The circles, shortest first. Each is opened at its last import before the next one is looked
/// for, so there are as many as imports that have to go.
fn circles(arrows: &Arrows) -> Vec<String> {
    let mut arrows = arrows.clone();
    let mut circles = Vec::new();
    while let Some(circle) = shortest_circle(&arrows) {
        let files: Vec<String> = circle
            .windows(2)
            .map(|pair| {
                let (from, to) = &arrows[&pair[0]][&pair[1]];
                format!("{from} imports {to}")
            })
            .collect();
        circles.push(files.join(", "));
        let last = &circle[circle.len() - 2..];
        if let Some(targets) = arrows.get_mut(&last[0]) {
            targets.remove(&last[1]);
        }
    }
    circles
}

/// The modules of a shortest circle, the first of which is also the last.
fn shortest_circle(arrows: &Arrows) -> Option<Vec<ModulePath>> {
    arrows
        .keys()
        .filter_map(|start| way_back(start, arrows))
        .min_by_key(Vec::len)
}

/// The shortest way along the arrows from a module to itself.
fn way_back(start: &ModulePath, arrows: &Arrows) -> Option<Vec<ModulePath>> {
    let mut seen = BTreeSet::new();
    let mut ways = VecDeque::from([vec![start.clone()]]);
    while let Some(way) = ways.pop_front() {
        let from = &way[way.len() - 1];
        for to in arrows.get(from).into_iter().flat_map(BTreeMap::keys) {
            let mut longer = way.clone();
            longer.push(to.clone());
            if to == start {
                return Some(longer);
            }
            if seen.insert(to) {
                ways.push_back(longer);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::imports::ModuleFile;

    /// The circles of a crate of which each file is given by its path and its text.
    fn circles_of(files: &[(&str, &str)]) -> Vec<String> {
        let modules = files
            .iter()
            .map(|(path, text)| {
                let stem = path.trim_end_matches(".rs");
                let place = match stem {
                    "lib" => Vec::new(),
                    _ => stem.split('/').map(str::to_owned).collect(),
                };
                (place, ModuleFile::parse(path, text))
            })
            .collect();
        circles(&arrows(&modules))
    }

    const ROOT: &str = "mod a; mod b; mod c; pub use b::B; use c::C;";

    #[test]
    fn planted_circles_are_found() {
        let two = [
            ("lib.rs", ROOT),
            ("a.rs", "use crate::b;"),
            ("b.rs", "fn f() { crate::a::g(); }"),
            ("c.rs", ""),
        ];
        assert_eq!(circles_of(&two), ["a.rs imports b.rs, b.rs imports a.rs"]);

        let three_by_names_of_the_root = [
            ("lib.rs", ROOT),
            ("a.rs", "use crate::B;"),
            ("b.rs", "use super::C;"),
            ("c.rs", "use crate::a::{A, D};"),
        ];
        assert_eq!(
            circles_of(&three_by_names_of_the_root),
            ["a.rs imports b.rs, b.rs imports c.rs, c.rs imports a.rs"]
        );

        let through_a_child = [
            ("lib.rs", ROOT),
            ("a.rs", "mod d;"),
            ("a/d.rs", "use crate::b::B;"),
            ("b.rs", "use crate::a::A;"),
            ("c.rs", ""),
        ];
        assert_eq!(
            circles_of(&through_a_child),
            ["a/d.rs imports b.rs, b.rs imports a.rs"]
        );

        let two_circles = [
            ("lib.rs", ROOT),
            ("a.rs", "use crate::b; use crate::c;"),
            ("b.rs", "use crate::a;"),
            ("c.rs", "use crate::a;"),
        ];
        assert_eq!(circles_of(&two_circles).len(), 2);
    }

    #[test]
    fn a_module_and_its_children_may_use_each_other() {
        let files = [
            ("lib.rs", "mod a; mod b; pub use a::A; const N: u8 = 1;"),
            (
                "a.rs",
                "mod c; mod d; use c::C; pub struct A; use crate::b;",
            ),
            ("a/c.rs", "use super::A; use crate::N; use super::d::D;"),
            ("a/d.rs", "use crate::A;"),
            (
                "b.rs",
                "use super::N; #[cfg(test)] mod tests { use crate::a; }",
            ),
        ];
        assert_eq!(circles_of(&files), [""; 0]);
    }
}
