//! Programs of other languages, built against the headers and the library that cargo has just
//! built.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A language and its compiler.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Language {
    C,
    Cpp,
    Fortran,
}

impl Language {
    /// The compiler that the environment names, or the default one.
    fn compiler(self) -> String {
        let (variable, usual) = match self {
            Self::C => ("CC", "cc"),
            Self::Cpp => ("CXX", "c++"),
            Self::Fortran => ("FC", "gfortran"),
        };
        std::env::var(variable).unwrap_or_else(|_| usual.into())
    }

    fn options(self) -> &'static [&'static str] {
        match self {
            Self::C => &[
                "-std=c99",
                "-D_GNU_SOURCE",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-O2",
            ],
            Self::Cpp => &["-std=c++17", "-Wall", "-Wextra", "-Werror", "-O2"],
            Self::Fortran => &["-std=f2008", "-Wall", "-O2"],
        }
    }
}

/// The folder of this crate.
pub(crate) fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A folder to build in, with the library under the names that linkers and loaders look for.
pub(crate) fn workshop() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let built = built("libbaro.so");
    for name in ["libbaro.so", "libbaro.so.1"] {
        std::os::unix::fs::symlink(&built, dir.path().join(name)).unwrap();
    }
    dir
}

/// Path of a file that cargo has built beside this test.
pub(crate) fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.with_file_name(name);
    assert!(path.exists(), "{} was not built", path.display());
    path
}

/// Builds a program; `None`, with a message, if there is no compiler for it.
pub(crate) fn program(
    workshop: &Path,
    language: Language,
    sources: &[PathBuf],
    libraries: &[&str],
) -> Option<PathBuf> {
    let program = workshop.join(sources.last().unwrap().file_name().unwrap());
    let program = program.with_extension(format!("{language:?}"));
    let compiler = language.compiler();
    let built = Command::new(&compiler)
        .args(language.options())
        .arg("-I")
        .arg(here().join("include"))
        .args(sources)
        .arg("-o")
        .arg(&program)
        .arg(format!("-L{}", workshop.display()))
        .arg(format!("-Wl,-rpath,{}", workshop.display()))
        .args(libraries)
        .current_dir(workshop)
        .output();
    match built {
        Ok(output) => {
            must(&output);
            Some(program)
        }
        Err(error) => {
            eprintln!("SKIPPED: {language:?}: {compiler}: {error}");
            None
        }
    }
}

/// A command whose environment contains only the run directory.
pub(crate) fn command(program: &Path, run_dir: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("BAROGRAPH_RUN_DIR", run_dir);
    command
}

/// Checks that a program has succeeded.
pub(crate) fn must(output: &Output) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
}
