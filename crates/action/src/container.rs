//! Programs in containers: the command line of podman, docker or apptainer.
//!
//! A container has no network, sees the directories that its rule names and nothing else of the
//! node, and has the rights of the rule's owner. It has the name of its action, so that one whose
//! command was killed is found and ended.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::request::ActionOwner;
use crate::template::ActionFields;

/// A container for a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerRun {
    /// Name of the image.
    pub image: String,
    /// Directories of the node that the program sees by the same paths, and whether it writes.
    pub mounts: Vec<(String, bool)>,
}

/// What runs containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerRuntime {
    /// podman or docker, whose command lines are the same as far as they are used here.
    Docker(PathBuf),
    /// apptainer or singularity.
    Apptainer(PathBuf),
}

impl ContainerRuntime {
    /// The runtime of this program, by its name.
    ///
    /// # Errors
    ///
    /// It is none that is known, or its path is not absolute.
    pub fn of(program: &Path) -> Result<Self, String> {
        let name = program.file_name().and_then(|name| name.to_str());
        let found = match name {
            Some("podman" | "docker") => Self::Docker(program.to_owned()),
            Some("apptainer" | "singularity") => Self::Apptainer(program.to_owned()),
            _ => {
                return Err(format!(
                    "{}: podman, docker, apptainer and singularity are known",
                    program.display()
                ));
            }
        };
        match program.is_absolute() || program.components().count() == 1 {
            true => Ok(found),
            false => Err(format!(
                "{}: write an absolute path, or a name alone",
                program.display()
            )),
        }
    }

    /// The words of the command that runs a program in a container.
    pub(crate) fn argv(
        &self,
        container: &ContainerRun,
        (argv, fields): (&[Vec<u8>], &ActionFields),
        owner: ActionOwner,
    ) -> Vec<Vec<u8>> {
        let mut words = vec![];
        let mut put = |word: &str| words.push(word.as_bytes().to_vec());
        put(&self.program());
        match self {
            Self::Docker(_) => {
                put("run");
                put("--rm");
                put("--network=none");
                put(&format!("--name={}", name(&fields.key)));
                put(&format!("--user={}:{}", owner.uid, owner.gid));
                for (variable, _) in fields.variables() {
                    put(&format!("--env={variable}"));
                }
                for (path, is_writable) in &container.mounts {
                    let mode = if *is_writable { "rw" } else { "ro" };
                    put(&format!("--volume={path}:{path}:{mode}"));
                }
            }
            Self::Apptainer(_) => {
                put("exec");
                put("--containall");
                put("--net");
                put("--network=none");
                for (path, is_writable) in &container.mounts {
                    let mode = if *is_writable { "rw" } else { "ro" };
                    put(&format!("--bind={path}:{path}:{mode}"));
                }
            }
        }
        put(&container.image);
        words.extend(argv.iter().cloned());
        words
    }

    /// The words of the command that ends the container of an action; `None` if it ends with the
    /// command that runs it.
    pub(crate) fn end_argv(&self, fields: &ActionFields) -> Option<Vec<Vec<u8>>> {
        match self {
            Self::Docker(_) => {
                let words = [
                    self.program(),
                    "rm".into(),
                    "--force".into(),
                    name(&fields.key),
                ];
                Some(words.map(String::into_bytes).to_vec())
            }
            Self::Apptainer(_) => None,
        }
    }

    /// What stands before the names of the environment variables of the program.
    pub(crate) fn variable_prefix(&self) -> &'static str {
        match self {
            Self::Docker(_) => "",
            // With --containall, only these reach the program.
            Self::Apptainer(_) => "APPTAINERENV_",
        }
    }

    fn program(&self) -> String {
        let (Self::Docker(program) | Self::Apptainer(program)) = self;
        program.to_string_lossy().into_owned()
    }
}

/// The name of the container of an action. Keys have characters that names have not.
fn name(key: &str) -> String {
    format!("baro-{:016x}", barograph_model::fnv1a(key.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands() {
        let fields = ActionFields {
            key: "r.1.s.2".into(),
            ..ActionFields::default()
        };
        let container = ContainerRun {
            image: "img:1".into(),
            mounts: vec![("/data".into(), false), ("/out".into(), true)],
        };
        let owner = ActionOwner { uid: 7, gid: 8 };
        let argv = [b"prog".to_vec(), b"/a b".to_vec()];
        let of = |program: &str| {
            let runtime = ContainerRuntime::of(Path::new(program)).unwrap();
            let words = runtime.argv(&container, (&argv, &fields), owner);
            let words: Vec<_> = words
                .iter()
                .map(|word| String::from_utf8_lossy(word).into_owned())
                .filter(|word| !word.starts_with("--env="))
                .collect();
            words.join("|")
        };
        let name = name("r.1.s.2");
        assert_eq!(
            of("/usr/bin/podman"),
            format!(
                "/usr/bin/podman|run|--rm|--network=none|--name={name}|--user=7:8\
                 |--volume=/data:/data:ro|--volume=/out:/out:rw|img:1|prog|/a b"
            )
        );
        assert_eq!(
            of("apptainer"),
            "apptainer|exec|--containall|--net|--network=none|--bind=/data:/data:ro\
             |--bind=/out:/out:rw|img:1|prog|/a b"
        );
        for odd in ["", "/bin/sh", "./docker", "bin/podman"] {
            assert!(ContainerRuntime::of(Path::new(odd)).is_err(), "{odd}");
        }
    }
}
