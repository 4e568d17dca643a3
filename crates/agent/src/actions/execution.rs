//! What the workers of the queue ask: which rules may start actions now, and how an action is run.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use barograph_action::{
    ActionExecutor, ActionJob, ActionKey, ActionOutcome, ActionRules, ActionWork, ClaimedAction,
    FilePlace, JobExecutor, RuleStart,
};
use barograph_model::NS_PER_S;
use barograph_rule::{ActionLimits, ActionRate, StartedAction};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::{ActionsShared, lock};

/// Most actions that run at the same time of a rule that is gone.
const GONE_RUNNING_MAX: u64 = 4;

/// The rules, as the workers see them.
pub(super) struct RuleStarts {
    shared: Arc<ActionsShared>,
    /// Of each rule with a rate, the times of its last starts by the monotonic clock, in ns.
    starts: Mutex<BTreeMap<String, VecDeque<i64>>>,
}

impl RuleStarts {
    pub(super) fn new(shared: &Arc<ActionsShared>) -> Self {
        Self {
            shared: Arc::clone(shared),
            starts: Mutex::default(),
        }
    }
}

impl ActionRules for RuleStarts {
    fn may_start(&self) -> Vec<RuleStart> {
        let day_ns = time_of_day_ns(self.shared.clock.now_ns(), &TimeZone::system());
        let monotonic_ns = self.shared.clock.monotonic_ns();
        let mut starts: Vec<RuleStart> = {
            let rules = self.shared.rules();
            let conditions = lock(&self.shared.conditions);
            let on_events = rules.list().map(|rule| (&*rule.name, &rule.limits));
            let on_streams = conditions.iter().map(|(rule, limits)| (&**rule, limits));
            let limits: BTreeMap<&str, &ActionLimits> = on_events.chain(on_streams).collect();
            let mut before = lock(&self.starts);
            before.retain(|rule, _| limits.get(&**rule).is_some_and(|it| it.rate.is_some()));
            let each = limits.into_iter().map(|(rule, limits)| {
                let is_quiet = limits.quiet.is_some_and(|quiet| quiet.left_ns(day_ns) > 0);
                let start_max = match limits.rate {
                    _ if is_quiet => 0,
                    None => u64::MAX,
                    Some(rate) => {
                        let before = before.entry(rule.to_owned()).or_default();
                        left_of(rate, before, monotonic_ns)
                    }
                };
                RuleStart {
                    rule: rule.to_owned(),
                    running_max: limits.concurrency_max.into(),
                    start_max,
                }
            });
            each.collect()
        };
        // Actions of rules that are gone were asked for, and are done.
        let known: BTreeSet<String> = starts.iter().map(|start| start.rule.clone()).collect();
        let queue = self.shared.queue();
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

    fn started(&self, key: &ActionKey) {
        if let Some(before) = lock(&self.starts).get_mut(&key.rule) {
            before.push_back(self.shared.clock.monotonic_ns());
        }
    }
}

/// The number of starts that a rate allows now. Starts that do not count any more are forgotten.
fn left_of(rate: ActionRate, before: &mut VecDeque<i64>, now_ns: i64) -> u64 {
    while before
        .front()
        .is_some_and(|start_ns| now_ns.saturating_sub(*start_ns) >= rate.per_ns)
    {
        before.pop_front();
    }
    u64::from(rate.count_max).saturating_sub(before.len() as u64)
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
/// are, or end with, an absolute path, or those of its transfer.
fn paths(job: &ActionJob) -> Vec<Vec<u8>> {
    let mut paths = vec![job.fields.path.clone(), job.fields.old_path.clone()];
    if let ActionWork::Transfer { transfer, .. } = &job.work {
        let places = std::iter::once(&transfer.from).chain(&transfer.to);
        paths.extend(places.filter_map(|place| match place {
            FilePlace::Path { path } => Some(path.clone()),
            FilePlace::Store { .. } => None,
        }));
    }
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
                container: None,
            },
            fields: ActionFields {
                path: b"/a/b".to_vec(),
                ..ActionFields::default()
            },
            causes: Vec::new(),
            place: None,
        };
        let seen = paths(&job);
        let texts: Vec<_> = seen
            .iter()
            .map(|path| String::from_utf8_lossy(path))
            .collect();
        assert_eq!(texts, ["/a/b", "", "/a/b", "/c", "/d", "/e"]);
    }

    #[test]
    fn rates() {
        let rate = ActionRate {
            count_max: 3,
            per_ns: 10,
        };
        let mut before = VecDeque::from([0, 4, 4]);
        for (now_ns, left) in [(4, 0), (9, 0), (10, 1), (13, 1), (14, 3)] {
            assert_eq!(left_of(rate, &mut before, now_ns), left, "{now_ns}");
        }
        assert!(before.is_empty());
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
