//! Facts that cargo knows about the crates of this project and their dependencies, as far as the
//! checks need them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use serde_json::Value;

/// Manifests of the cargo workspaces in this repository.
pub(crate) const MANIFESTS: [&str; 2] = ["Cargo.toml", "crates/query/extension/Cargo.toml"];

/// The way in which one package uses another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DependencyUse {
    /// In the shipped code, or in building it.
    Build,
    /// In tests, examples and benchmarks only.
    Test,
}

/// One package of this project.
#[derive(Clone, Debug)]
pub(crate) struct Package {
    /// The name in its manifest.
    pub(crate) name: String,
    /// The folder of its sources.
    pub(crate) sources: PathBuf,
    /// Names and uses of the packages that it depends on.
    pub(crate) dependencies: Vec<(String, DependencyUse)>,
}

/// The root folder of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask/ lies in the repository")
}

/// Loads all packages of the repository.
pub(crate) fn load() -> anyhow::Result<Vec<Package>> {
    let mut packages = Vec::new();
    for manifest in MANIFESTS {
        let metadata = metadata(manifest, &["--no-deps"])?;
        packages.extend(array(&metadata, "packages")?.iter().map(package));
    }
    Ok(packages)
}

/// Runs `cargo metadata` on one manifest.
pub(crate) fn metadata(manifest: &str, arguments: &[&str]) -> anyhow::Result<Value> {
    let cargo = std::env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from);
    let output = Command::new(cargo)
        .args([
            "metadata",
            "--format-version=1",
            "--manifest-path",
            manifest,
        ])
        .args(arguments)
        .current_dir(root())
        .output()
        .with_context(|| format!("{manifest}: cargo metadata does not start"))?;
    if !output.status.success() {
        bail!(
            "{manifest}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("{manifest}: cargo metadata is not JSON"))
}

/// The array under `key`.
///
/// # Errors
///
/// The key, if its value is not an array.
pub(crate) fn array<'a>(value: &'a Value, key: &str) -> anyhow::Result<&'a Vec<Value>> {
    value[key]
        .as_array()
        .with_context(|| format!("cargo metadata has no array {key:?}"))
}

fn package(value: &Value) -> Package {
    let dependencies = value["dependencies"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    Package {
        name: text(&value["name"]),
        sources: Path::new(&text(&value["manifest_path"])).with_file_name("src"),
        dependencies: dependencies
            .iter()
            .map(|it| (text(&it["name"]), usage(it)))
            .collect(),
    }
}

fn usage(dependency: &Value) -> DependencyUse {
    if dependency["kind"] == "dev" {
        DependencyUse::Test
    } else {
        DependencyUse::Build
    }
}

/// The text of a JSON string; empty if the value is something else.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
