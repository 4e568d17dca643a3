//! `baro io`: runs a command and publishes its I/O, by preloading `libbaro_io.so`; with
//! `--schedule`, the command takes turns with others.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use barograph_agent::{AGENT_DOCUMENT, AgentDocument};
use barograph_client::{Observer, RunDir, SystemClock};
use clap::Args;

use super::documents::document;
use super::output;

/// Name of the library; `make install` puts it beside libbaro.
const LIBRARY: &str = "libbaro_io.so";
/// Largest size of the library's file, without and with `--each`.
const FILE_BYTES: u64 = 2 << 20;
const FILE_BYTES_EACH: u64 = 27 << 20;
/// Variable with the path of the library, if it is not where `make install` puts it.
const VARIABLE: &str = "BAROGRAPH_IO_LIBRARY";
/// Variables of the library: the volumes on which the command takes turns, each as the agent has it
/// and, if that is another one, as the kernel does; and a job, for commands that no launcher gives
/// one.
const SCHEDULE_VARIABLE: &str = "BAROGRAPH_IO_SCHEDULE";
const JOB_VARIABLE: &str = "BAROGRAPH_IO_JOB";
/// Most volumes on which a program under `baro io --schedule` takes turns.
const VOLUMES_MAX: usize = 16;
/// Longest path of such a volume.
const PATH_BYTES_MAX: usize = 255;

/// Arguments of `baro io`.
#[derive(Args)]
pub(super) struct Io {
    /// Run directory of the agent [default: $BAROGRAPH_RUN_DIR, or else this user's agent's, or
    /// else the node's]
    #[arg(long, value_name = "DIR")]
    run_dir: Option<PathBuf>,
    /// Publish the time of every read, write and sync as well
    #[arg(long)]
    each: bool,
    /// Time between two frames, 1 to 3600000
    #[arg(long, value_name = "MS", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=3_600_000))]
    interval: u32,
    /// Take turns with other programs to read and write much on the volumes that the agent
    /// schedules
    #[arg(long)]
    schedule: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Io {
    /// Replaces this process by the command; returns only if that fails.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let library = library()?;
        let [program, arguments @ ..] = &self.command[..] else {
            anyhow::bail!("no command");
        };
        let mut command = Command::new(program);
        command.args(arguments);
        command.env(
            "LD_PRELOAD",
            preload(&library, std::env::var_os("LD_PRELOAD")),
        );
        command.env("BAROGRAPH_IO_INTERVAL_MS", self.interval.to_string());
        if self.each {
            command.env("BAROGRAPH_IO_EACH", "1");
        }
        if let Some(run_dir) = &self.run_dir {
            // An absolute path, because the command may change its directory.
            command.env("BAROGRAPH_RUN_DIR", std::path::absolute(run_dir)?);
        }
        let hindrance = self.hindrance();
        if let Some(reason) = &hindrance {
            output::tell(&format!(
                "baro: the I/O of {program:?} is not published: {reason}\n"
            ));
        }
        // What holds for this command is not that of one around it.
        command.env_remove(SCHEDULE_VARIABLE);
        match self.schedule.then(|| self.volumes()) {
            Some(Ok(volumes)) => {
                command.env(SCHEDULE_VARIABLE, volumes);
                if std::env::var_os(JOB_VARIABLE).is_none() {
                    command.env(JOB_VARIABLE, format!("io-{}", std::process::id()));
                }
            }
            // Who is not published is not scheduled, and knows why.
            Some(Err(reason)) if hindrance.is_none() => output::tell(&format!(
                "baro: {program:?} does its I/O without turns: {reason}\n"
            )),
            Some(Err(_)) | None => {}
        }
        let error = command.exec();
        anyhow::bail!("cannot run {}: {error}", Path::new(program).display());
    }
}

impl Io {
    /// The scheduled volumes, for the library; or the reason why there are none.
    fn volumes(&self) -> Result<OsString, String> {
        let run_dir = self.run_dir.as_ref().map_or_else(RunDir::find, RunDir::new);
        let place = run_dir.path().display();
        let observer = Observer::open(run_dir.clone(), Arc::new(SystemClock::new()));
        let status = observer.and_then(|observer| observer.status());
        if !status.is_ok_and(|status| status.alive) {
            return Err(format!("no agent runs in {place}: start it with `baro up`"));
        }
        let agent: Option<AgentDocument> =
            document(&run_dir, AGENT_DOCUMENT).map_err(|error| error.to_string())?;
        let paths = agent.unwrap_or_default().schedules;
        if paths.is_empty() {
            return Err(format!(
                "the agent in {place} schedules no volume: name one in [schedule.volumes] of its configuration"
            ));
        }
        let (entries, left_out) = entries(&paths);
        for path in left_out {
            let path = output::plain(&path.to_string_lossy()).into_owned();
            output::tell(&format!(
                "baro: no turns on {path}: the library knows {VOLUMES_MAX} volumes, of paths of up to {PATH_BYTES_MAX} bytes without ':' and '='\n"
            ));
        }
        match entries.is_empty() {
            true => Err("there is no volume that the library can know".to_owned()),
            false => Ok(entries),
        }
    }

    /// The reason why the library will not publish, if any; as a guest, it prints nothing itself.
    fn hindrance(&self) -> Option<String> {
        let named = std::env::var_os("BAROGRAPH_RUN_DIR").map(PathBuf::from);
        if let Some(dir) = self.run_dir.clone().or(named)
            && !dir.join("ingest").is_dir()
        {
            let dir = dir.display();
            return Some(format!(
                "there is no agent's ingest directory in {dir}: start the agent, or correct the name"
            ));
        }
        let needed = if self.each {
            FILE_BYTES_EACH
        } else {
            FILE_BYTES
        };
        let limit = file_size_limit(&std::fs::read_to_string("/proc/self/limits").ok()?)?;
        (limit < needed).then(|| {
            format!(
                "files may have {limit} bytes (ulimit -f), and the library's has up to {needed}"
            )
        })
    }
}

/// The list of volumes for the library, and the volumes that it cannot know.
fn entries(paths: &[PathBuf]) -> (OsString, Vec<&PathBuf>) {
    let (mut list, mut left_out, mut count) = (Vec::new(), Vec::new(), 0);
    for path in paths {
        // The kernel tells the paths of open files without links.
        let place = path.canonicalize().unwrap_or_else(|_| path.clone());
        let is_known = |path: &Path| {
            let bytes = path.as_os_str().as_bytes();
            bytes.len() <= PATH_BYTES_MAX && !bytes.contains(&b':') && !bytes.contains(&b'=')
        };
        if count >= VOLUMES_MAX || !is_known(path) || !is_known(&place) {
            left_out.push(path);
            continue;
        }
        count += 1;
        if !list.is_empty() {
            list.push(b':');
        }
        list.extend_from_slice(path.as_os_str().as_bytes());
        if place != *path {
            list.push(b'=');
            list.extend_from_slice(place.as_os_str().as_bytes());
        }
    }
    (OsString::from_vec(list), left_out)
}

/// The soft limit on the size of files in a text like /proc/self/limits; `None` if there is none.
fn file_size_limit(limits: &str) -> Option<u64> {
    let mut lines = limits.lines();
    let rest = lines.find_map(|line| line.strip_prefix("Max file size"))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// Puts the library before those that are preloaded already.
fn preload(library: &Path, before: Option<OsString>) -> OsString {
    let mut all = library.as_os_str().to_owned();
    if let Some(before) = before.filter(|before| !before.is_empty()) {
        all.push(":");
        all.push(before);
    }
    all
}

fn library() -> anyhow::Result<PathBuf> {
    if let Some(path) = std::env::var_os(VARIABLE) {
        let path = PathBuf::from(path);
        anyhow::ensure!(
            path.is_file(),
            "{VARIABLE}: there is no file {}",
            path.display()
        );
        return Ok(std::path::absolute(path)?);
    }
    let program = std::env::current_exe()?;
    let beside = program.parent().unwrap_or(Path::new("/"));
    let places = [beside.join("../lib").join(LIBRARY), beside.join(LIBRARY)];
    let found = places.iter().find(|place| place.is_file());
    let found = found.map(|place| place.canonicalize().unwrap_or_else(|_| place.clone()));
    found.ok_or_else(|| {
        let dir = places[0].display();
        anyhow::anyhow!(
            "there is no {LIBRARY} at {dir}: `make install` puts it there, or set {VARIABLE}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_the_first_number_of_its_line() {
        let text = "Limit  Soft Limit  Hard Limit  Units\n\
            Max cpu time              unlimited            unlimited            seconds\n\
            Max file size             10240                unlimited            bytes\n";
        assert_eq!(file_size_limit(text), Some(10_240));
        let unlimited = text.replace("10240", "unlimited");
        assert_eq!(file_size_limit(&unlimited), None);
        assert_eq!(file_size_limit(""), None);
    }

    #[test]
    fn volumes_are_told_with_the_places_of_their_files() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        std::fs::create_dir(dir.join("real")).unwrap();
        std::os::unix::fs::symlink(dir.join("real"), dir.join("link")).unwrap();
        let paths = [
            PathBuf::from("/"),
            dir.join("link"),
            dir.join("not there"),
            dir.join("a:b"),
            dir.join("a=b"),
            dir.join("x".repeat(PATH_BYTES_MAX)),
        ];
        let (list, left_out) = entries(&paths);
        let dir = dir.display();
        assert_eq!(
            list.to_str().unwrap(),
            format!("/:{dir}/link={dir}/real:{dir}/not there")
        );
        assert_eq!(left_out.len(), 3);
        let many: Vec<PathBuf> = (0..20).map(|n| format!("/none/{n}").into()).collect();
        let (list, left_out) = entries(&many);
        let known = list.to_str().unwrap().split(':').count();
        assert_eq!((known, left_out.len()), (VOLUMES_MAX, 4));
    }

    #[test]
    fn what_is_preloaded_already_stays() {
        let library = Path::new("/lib/libbaro_io.so");
        for (before, expect) in [
            (None, "/lib/libbaro_io.so"),
            (Some(""), "/lib/libbaro_io.so"),
            (Some("a.so b.so"), "/lib/libbaro_io.so:a.so b.so"),
        ] {
            assert_eq!(preload(library, before.map(OsString::from)), expect);
        }
    }
}
