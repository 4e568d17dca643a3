//! What the workers of the queue ask: which rules may start actions now, and how an action is run.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use barograph_action::{
    ActionExecutor, ActionJob, ActionKey, ActionOutcome, ActionRules, ActionWork, ClaimedAction,
    JobExecutor, RuleStart,
};
use barograph_model::NS_PER_S;
use barograph_rule::StartedAction;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::ActionsShared;

/// Most actions that run at the same time of a rule that is gone.
const GONE_RUNNING_MAX: u64 = 4;

/// The rules, as the workers see them.
pub(super) struct RuleStarts(pub(super) Arc<ActionsShared>);

impl ActionRules for RuleStarts {
    fn may_start(&self) -> Vec<RuleStart> {
        let day_ns = time_of_day_ns(self.0.clock.now_ns(), &TimeZone::system());
        let mut starts: Vec<RuleStart> = {
            let rules = self.0.rules();
            let each = rules.list().map(|rule| {
                let quiet = rule.limits.quiet;
                let is_quiet = quiet.is_some_and(|quiet| quiet.left_ns(day_ns) > 0);
                RuleStart {
                    rule: rule.name.clone(),
                    running_max: rule.limits.concurrency_max.into(),
                    start_max: if is_quiet { 0 } else { u64::MAX },
                }
            });
            each.collect()
        };
        // Actions of rules that are gone were asked for, and are done.
        let known: BTreeSet<String> = starts.iter().map(|start| start.rule.clone()).collect();
        let queue = self.0.queue();
        let counts = queue.iter().flat_map(|queue| queue.rules());
        let gone = counts.filter(|counts| {
            (counts.waiting > 0 || counts.running > 0) && !known.contains(&counts.rule)
        });
        starts.extend(gone.map(|counts| RuleStart {
            rule: counts.rule,
            running_max: GONE_RUNNING_MAX,
            start_max: u64::MAX,
        }));
        starts
    }

    fn started(&self, _key: &ActionKey) {}
}

/// The time since midnight, in ns.
fn time_of_day_ns(now_ns: i64, zone: &TimeZone) -> i64 {
    let Ok(now) = Timestamp::from_nanosecond(now_ns.into()) else {
        return 0;
    };
    let time = zone.to_datetime(now).time();
    let seconds =
        i64::from(time.hour()) * 3_600 + i64::from(time.minute()) * 60 + i64::from(time.second());
    seconds * NS_PER_S + i64::from(time.subsec_nanosecond())
}

/// Runs actions, and tells the rules when, so that they know what their own actions do.
pub(super) struct KnownExecutor {
    pub(super) shared: Arc<ActionsShared>,
    pub(super) executor: JobExecutor,
}

impl ActionExecutor for KnownExecutor {
    fn execute(&self, action: &ClaimedAction, stop: &AtomicBool) -> ActionOutcome {
        let id = action.lease.id;
        if let Ok(job) = ActionJob::decode(&action.body) {
            let paths = paths(&job);
            let paths: Vec<&[u8]> = paths.iter().map(Vec::as_slice).collect();
            let started = StartedAction {
                id,
                rule: &action.key.rule,
                causes: &job.causes,
                uid: Some(action.owner.uid),
                paths: &paths,
            };
            let now_ns = self.shared.clock.now_ns();
            self.shared.rules().recent().started(&started, now_ns);
        }
        let outcome = self.executor.execute(action, stop);
        let now_ns = self.shared.clock.now_ns();
        self.shared.rules().recent().ended(id, now_ns);
        outcome
    }
}

/// The paths that an action may write to: those of its event, and the words of its program that
/// are, or end with, an absolute path.
fn paths(job: &ActionJob) -> Vec<Vec<u8>> {
    let mut paths = vec![job.fields.path.clone(), job.fields.old_path.clone()];
    if let ActionWork::Run { argv, .. } = &job.work {
        for word in argv.iter().skip(1) {
            if word.starts_with(b"/") {
                paths.push(word.clone());
            } else if let Some(at) = word.iter().position(|byte| *byte == b'=')
                && word[at + 1..].starts_with(b"/")
            {
                paths.push(word[at + 1..].to_vec());
            }
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use barograph_action::{ActionFields, ExitRetry};

    use super::*;

    #[test]
    fn the_paths_of_an_action() {
        let words = ["/bin/cp", "-v", "/a/b", "--to=/c", "of=/d", "x/y", "=/e"];
        let job = ActionJob {
            work: ActionWork::Run {
                argv: words.iter().map(|word| word.as_bytes().to_vec()).collect(),
                time_ns_max: 0,
                retry: ExitRetry::None,
            },
            fields: ActionFields {
                path: b"/a/b".to_vec(),
                ..ActionFields::default()
            },
            causes: Vec::new(),
        };
        let seen = paths(&job);
        let texts: Vec<_> = seen
            .iter()
            .map(|path| String::from_utf8_lossy(path))
            .collect();
        assert_eq!(texts, ["/a/b", "", "/a/b", "/c", "/d", "/e"]);
    }

    #[test]
    fn times_of_day() {
        let check = |zone: &TimeZone, now_s: i64, expect_s: i64| {
            assert_eq!(time_of_day_ns(now_s * NS_PER_S, zone), expect_s * NS_PER_S);
        };
        check(&TimeZone::UTC, 86_400 + 3_661, 3_661);
        let east = TimeZone::fixed(jiff::tz::offset(2));
        check(&east, 86_400 + 3_661, 3_661 + 7_200);
        check(&east, 23 * 3_600, 3_600);
    }
}
