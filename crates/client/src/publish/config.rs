//! Settings with which a program opens its publisher, and labels that its launcher provides.

use std::time::Duration;

use barograph_stream::RunDir;
use barograph_stream::ingest::{
    OverflowPolicy, ProducerConfig, PublicationReaders, RING_RECORDS_DEFAULT,
};

/// Default for the longest wait of one put with [`OverflowPolicy::Block`].
pub const BLOCK_TIME_DEFAULT: Duration = Duration::from_millis(100);

/// Variables in which launchers give the rank of this process; the first that is set counts.
const RANK_VARIABLES: &[&str] = &[
    "OMPI_COMM_WORLD_RANK",
    "PMI_RANK",
    "PMIX_RANK",
    "SLURM_PROCID",
    "FLUX_TASK_RANK",
];
/// Variables in which launchers give the id of the job.
const JOB_VARIABLES: &[&str] = &["SLURM_JOB_ID", "PBS_JOBID", "FLUX_JOB_ID", "LSB_JOBID"];

/// Settings of a publisher.
#[derive(Clone, Debug)]
pub struct PublishConfig {
    /// The agent's run directory; `None`: the one that [`RunDir::find`] finds.
    pub run_dir: Option<RunDir>,
    /// The application's name; if empty, the name of the program's file.
    pub application: String,
    /// Labels of all its streams. `rank` and `job` come from the launcher unless they are given.
    pub labels: Vec<(String, String)>,
    /// The effect of a put when the ring is full.
    pub overflow: OverflowPolicy,
    /// Number of records of each thread's ring, 24 bytes each; rounded up to a power of two.
    pub ring_records: u64,
    /// Most threads that put at the same time, at most 1,024. 0: twice the processors, and at least
    /// 256.
    pub rings_max: u32,
    /// Longest wait of one put with [`OverflowPolicy::Block`].
    pub block_time_max: Duration,
}

impl PublishConfig {
    /// The default settings for an application of this name.
    pub fn of(application: impl Into<String>) -> Self {
        Self {
            application: application.into(),
            ..Self::default()
        }
    }

    pub(super) fn producer(&self) -> ProducerConfig {
        ProducerConfig {
            rings_max: self.rings_max,
            ring_records: self.ring_records,
            overflow: self.overflow,
            incarnation: None,
        }
    }
}

impl Default for PublishConfig {
    fn default() -> Self {
        Self {
            run_dir: None,
            application: String::new(),
            labels: Vec::new(),
            overflow: OverflowPolicy::default(),
            ring_records: RING_RECORDS_DEFAULT,
            rings_max: 0,
            block_time_max: BLOCK_TIME_DEFAULT,
        }
    }
}

/// Settings of a publication.
#[derive(Clone, Debug, Default)]
pub struct PublicationConfig {
    /// The users who may read it.
    pub readers: PublicationReaders,
    /// Labels of its streams, in addition to the application's.
    pub labels: Vec<(String, String)>,
}

/// Whether the user has switched publishing off: `BAROGRAPH=off`.
pub(super) fn is_off() -> bool {
    barograph_stream::environment("BAROGRAPH").is_some_and(|value| value == "off")
}

/// The name of the program's file.
pub(super) fn program_name() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Adds the labels that the launcher provides, unless they are given already.
pub(super) fn add_launcher_labels(
    labels: &mut Vec<(String, String)>,
    variable: &dyn Fn(&str) -> Option<String>,
) {
    for (name, variables) in [("rank", RANK_VARIABLES), ("job", JOB_VARIABLES)] {
        let is_given = labels.iter().any(|(given, _)| given == name);
        let mut found = variables.iter().filter_map(|v| variable(v));
        if let Some(value) = found.find(|value| !is_given && !value.is_empty()) {
            labels.push((name.to_owned(), value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_are_heard_where_nothing_is_said() {
        let none: &[(&str, &str)] = &[];
        let table = [
            (none, none, none),
            (
                none,
                &[("PMI_RANK", "3"), ("SLURM_JOB_ID", "77")],
                &[("rank", "3"), ("job", "77")],
            ),
            (
                none,
                &[
                    ("SLURM_PROCID", "1"),
                    ("OMPI_COMM_WORLD_RANK", "2"),
                    ("PBS_JOBID", ""),
                ],
                &[("rank", "2")],
            ),
            (
                &[("rank", "9")],
                &[("FLUX_TASK_RANK", "1"), ("FLUX_JOB_ID", "f1")],
                &[("rank", "9"), ("job", "f1")],
            ),
        ];
        let owned = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            let pairs = pairs.iter();
            pairs.map(|(n, v)| ((*n).into(), (*v).into())).collect()
        };
        for (given, environment, expect) in table {
            let mut labels = owned(given);
            let variable = |name: &str| {
                let found = environment.iter().find(|(n, _)| *n == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            add_launcher_labels(&mut labels, &variable);
            assert_eq!(labels, owned(expect), "{environment:?}");
        }
    }
}
