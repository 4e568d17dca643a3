//! Checks the licences of all dependencies against the list in deny.toml. cargo-deny checks this
//! and more, but this check needs no installed tool, so that it runs wherever the tests run.

use std::collections::BTreeSet;

use anyhow::Context;
use toml::Table;

use crate::spdx::satisfied;
use crate::workspace::{MANIFESTS, array, metadata, root, text};

/// Lists every package whose licence deny.toml does not accept.
pub(crate) fn check() -> anyhow::Result<Vec<String>> {
    let file = root().join("deny.toml");
    let deny = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let accepted = accepted(&deny)?;
    let mut faults = BTreeSet::new();
    for manifest in MANIFESTS {
        for package in array(&metadata(manifest, &[])?, "packages")? {
            let name = format!("{} {}", text(&package["name"]), text(&package["version"]));
            faults.extend(fault(&name, &text(&package["license"]), &accepted));
        }
    }
    Ok(faults.into_iter().collect())
}

fn fault(name: &str, license: &str, accepted: &BTreeSet<String>) -> Option<String> {
    if license.is_empty() {
        return Some(format!("{name}: names no licence"));
    }
    match satisfied(license, &|it| accepted.contains(it)) {
        Ok(true) => None,
        Ok(false) => Some(format!("{name}: {license}: not accepted by deny.toml")),
        Err(error) => Some(format!("{name}: {error}")),
    }
}

fn accepted(deny: &str) -> anyhow::Result<BTreeSet<String>> {
    let table: Table = deny.parse().context("deny.toml")?;
    let allow = table
        .get("licenses")
        .and_then(|it| it.get("allow"))
        .and_then(toml::Value::as_array);
    let allow = allow.context("deny.toml: no licenses.allow")?;
    Ok(allow
        .iter()
        .filter_map(toml::Value::as_str)
        .map(str::to_owned)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_list_names_passes() {
        let accepted = accepted("[licenses]\nallow = ['MIT']\n").expect("well formed");
        let table = [
            ("MIT", None),
            ("MIT OR GPL-3.0", None),
            ("GPL-3.0", Some("a 1.0: GPL-3.0: not accepted by deny.toml")),
            ("", Some("a 1.0: names no licence")),
        ];
        for (license, expect) in table {
            assert_eq!(
                fault("a 1.0", license, &accepted).as_deref(),
                expect,
                "{license}"
            );
        }
        assert!(super::accepted("[bans]").is_err());
    }
}
