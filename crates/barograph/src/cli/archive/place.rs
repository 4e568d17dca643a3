//! The archives that a command works on: the node's, and those of applications that this user may
//! read.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use barograph_agent::{AGENT_DOCUMENT, AgentDocument, Config};
use barograph_archive::{ArchiveReader, scope_path};
use barograph_client::{RunDir, SCOPES_MAX, is_scope};
use clap::Args;

use crate::cli::documents::document;
use crate::cli::{Target, Usage};

/// The choice of archives.
#[derive(Args)]
pub(super) struct ArchiveChoice {
    /// Directory of the archive; archives of applications are in `applications` below it [default:
    /// the archives of the agent of the run directory, or else this user's]
    #[arg(long, value_name = "DIR")]
    pub archive_dir: Option<PathBuf>,
    #[command(flatten)]
    pub target: Target,
}

pub(super) struct ChosenArchive {
    /// Scope of applications; `None` for the node's own archive.
    pub scope: Option<String>,
    pub dir: PathBuf,
    /// The user who must own it, if an agent has named it.
    owner: Option<u32>,
}

/// The archives that were found.
pub(super) struct ChosenArchives {
    /// The archives, the node's first, if it exists.
    pub kept: Vec<ChosenArchive>,
    /// Scopes of applications whose archives this user may not read.
    pub closed: Vec<String>,
}

impl ChosenArchive {
    /// Name of the archive in listings.
    pub(super) fn name(&self) -> &str {
        self.scope.as_deref().unwrap_or("node")
    }

    pub(super) fn open(&self) -> ArchiveReader {
        match self.owner {
            Some(owner) => ArchiveReader::of_user(&self.dir, owner),
            None => ArchiveReader::open(&self.dir),
        }
    }
}

impl ChosenArchives {
    /// Prints which archives are missing from the answer, on standard error.
    pub(super) fn tell_closed(&self) {
        if let Some(words) = closed_words(&self.closed) {
            crate::cli::output::tell(&words);
        }
    }
}

/// The scopes of applications that this user may not read, in words.
pub(super) fn closed_words(closed: &[String]) -> Option<String> {
    let scopes = closed.join(", ");
    (!closed.is_empty()).then(|| {
        format!(
            "left out: applications of {scopes}, which this user may not read (they or root may)"
        )
    })
}

impl ArchiveChoice {
    pub(super) fn json(&self) -> bool {
        self.target.json
    }

    /// Finds the archives: from the option, or else the agent's documents, or else the defaults. It
    /// is an error if there are none at all.
    pub(super) fn archives(&self) -> anyhow::Result<ChosenArchives> {
        if let Some(dir) = &self.archive_dir {
            let at = |scope: &str| dir.join(scope_path(scope));
            return ChosenArchives::at(dir, &dir.join("applications"), &at)?.or_fail(|| {
                let dir = dir.display();
                Usage(format!(
                    "there is no archive at {dir}: give --archive-dir, or --run-dir of the agent"
                ))
                .into()
            });
        }
        let run_dir = self.target.run_dir();
        if let Some(agent) = document(&run_dir, AGENT_DOCUMENT)? {
            return ChosenArchives::of_agent(&run_dir, agent);
        }
        let (dir, scopes) = (Config::default_archive_dir(), Config::default_scopes_dir());
        let at = |scope: &str| scopes.join(scope).join("archive");
        ChosenArchives::at(&dir, &scopes, &at)?.or_fail(|| {
            let dir = dir.display();
            anyhow::anyhow!(
                "there is no archive at {dir}: give --archive-dir, or --run-dir of the agent"
            )
        })
    }
}

impl ChosenArchives {
    /// The archives that the agent of a run directory names, whether it lives or not.
    fn of_agent(run_dir: &RunDir, agent: AgentDocument) -> anyhow::Result<Self> {
        // Only an agent that exists has named them, and they must belong to its user.
        let owner = run_dir.open().ok().map(|place| place.owner());
        let Some(dir) = agent.archive else {
            let run_dir = run_dir.path().display();
            anyhow::bail!("the agent of {run_dir} keeps no history: give --archive-dir");
        };
        if !dir.is_dir() {
            let dir = dir.display();
            anyhow::bail!(
                "there is no archive at {dir}: give --archive-dir, or --run-dir of the agent"
            );
        }
        let node = ChosenArchive {
            scope: None,
            dir,
            owner,
        };
        let mut all = Self {
            kept: vec![node],
            closed: Vec::new(),
        };
        for scope in run_dir.scope_names() {
            match document::<AgentDocument>(&run_dir.scope(&scope), AGENT_DOCUMENT) {
                Ok(Some(agent)) => {
                    if let Some(dir) = agent.archive {
                        all.add(scope, dir, owner);
                    }
                }
                Ok(None) => {}
                Err(_) => all.closed.push(scope),
            }
        }
        Ok(all)
    }

    /// The archive in a directory, and those of the scopes that have a directory in `scopes`.
    fn at(dir: &Path, scopes: &Path, at: &dyn Fn(&str) -> PathBuf) -> anyhow::Result<Self> {
        let mut all = Self {
            kept: Vec::new(),
            closed: Vec::new(),
        };
        if dir.is_dir() {
            all.kept.push(ChosenArchive {
                scope: None,
                dir: dir.to_owned(),
                owner: None,
            });
        }
        let entries = match fs::read_dir(scopes) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(all),
            entries => entries?,
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.filter(|name| is_scope(name)).collect();
        names.sort();
        for scope in names.into_iter().take(SCOPES_MAX) {
            let dir = at(&scope);
            all.add(scope, dir, None);
        }
        Ok(all)
    }

    /// Adds the archive of a scope, if it exists and this user may read it.
    fn add(&mut self, scope: String, dir: PathBuf, owner: Option<u32>) {
        match fs::read_dir(&dir).map_err(|error| error.kind()) {
            Ok(_) => self.kept.push(ChosenArchive {
                scope: Some(scope),
                dir,
                owner,
            }),
            Err(io::ErrorKind::PermissionDenied) => self.closed.push(scope),
            Err(_) => {}
        }
    }

    fn or_fail(self, error: impl FnOnce() -> anyhow::Error) -> anyhow::Result<Self> {
        match self.kept.is_empty() {
            true => Err(error()),
            false => Ok(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_below_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        let names = |all: &ChosenArchives| -> Vec<String> {
            all.kept.iter().map(|kept| kept.name().to_owned()).collect()
        };
        let look = || {
            let scopes = dir.path().join("applications");
            let at = |scope: &str| dir.path().join(scope_path(scope));
            ChosenArchives::at(&dir.path().join("archive"), &scopes, &at).unwrap()
        };
        assert!(names(&look()).is_empty());
        assert!(look().or_fail(|| anyhow::anyhow!("none")).is_err());
        fs::create_dir(dir.path().join("archive")).unwrap();
        for scope in ["u7", "all", "other", "u07"] {
            fs::create_dir_all(dir.path().join(scope_path(scope))).unwrap();
        }
        assert_eq!(names(&look()), ["node", "all", "u7"]);
        assert!(look().closed.is_empty());
    }

    #[test]
    fn what_is_closed_is_named() {
        assert_eq!(closed_words(&[]), None);
        assert_eq!(
            closed_words(&["g1".into(), "u7".into()]).unwrap(),
            "left out: applications of g1, u7, which this user may not read (they or root may)"
        );
    }
}
