//! Workers: actions are done, repeated, ended, and given back.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use barograph_action::{
    ActionExecutor, ActionFields, ActionFilter, ActionHost, ActionJob, ActionKey, ActionOutcome,
    ActionOwner, ActionQueue, ActionRequest, ActionRules, ActionState, ActionWork, ActionWorkers,
    ClaimedAction, Delivery, ExitRetry, FilePlace, FileTransfer, JobExecutor, JobPlace, MailConfig,
    Mailer, ProgramRunner, QueueConfig, RetryPolicy, RuleStart, RunConfig, TransferConfig,
    TransferTask, TransferVerb, WebhookConfig, WebhookSender, WorkersConfig,
};

use crate::support::{RealClock, request, start, until, words};

/// One rule, with a bound of what runs at the same time.
struct OneRule {
    running_max: u64,
    started: AtomicU64,
}

impl OneRule {
    fn new(running_max: u64) -> Arc<Self> {
        let started = AtomicU64::new(0);
        Arc::new(Self {
            running_max,
            started,
        })
    }
}

impl ActionRules for OneRule {
    fn may_start(&self) -> Vec<RuleStart> {
        vec![RuleStart {
            running_max: self.running_max,
            ..start("r")
        }]
    }

    fn started(&self, _: &ActionKey) {
        self.started.fetch_add(1, Ordering::Relaxed);
    }
}

fn queue(folder: &Path) -> Arc<ActionQueue> {
    let clock = Arc::new(RealClock::new());
    Arc::new(ActionQueue::open(&folder.join("queue"), QueueConfig::default(), clock).unwrap())
}

fn config() -> WorkersConfig {
    WorkersConfig {
        look: Duration::from_millis(20),
        stop_wait: Duration::from_millis(100),
        ..WorkersConfig::default()
    }
}

/// A host that tells what it is asked.
struct Nobody;

impl ActionHost for Nobody {
    fn call(&self, request: &str, rule: &str) -> ActionOutcome {
        ActionOutcome::Done {
            output: format!("{rule} calls {request}").into_bytes(),
        }
    }

    fn mark(&self, mark: &str, _: (&ActionJob, ActionOwner), _: &AtomicBool) -> ActionOutcome {
        ActionOutcome::Done {
            output: mark.as_bytes().to_vec(),
        }
    }

    fn hand_over(
        &self,
        place: &JobPlace,
        (key, _): (&ActionKey, Delivery),
        _: &ActionJob,
    ) -> ActionOutcome {
        ActionOutcome::Done {
            output: format!("{key} goes to {}", place.node).into_bytes(),
        }
    }
}

fn jobs() -> Arc<JobExecutor> {
    let config = RunConfig {
        grace: Duration::from_millis(200),
        ..RunConfig::default()
    };
    Arc::new(JobExecutor {
        runner: ProgramRunner::new(config),
        containers: None,
        sender: WebhookSender::new(&WebhookConfig::default()).unwrap(),
        mailer: Mailer::new(&MailConfig::default()).unwrap(),
        transfers: TransferConfig::default(),
        node: "here".into(),
        host: Arc::new(Nobody),
    })
}

fn program(index: u64, argv: &[&str]) -> ActionRequest {
    let job = ActionJob {
        work: ActionWork::Run {
            argv: words(argv),
            time_ns_max: 0,
            retry: ExitRetry::None,
            container: None,
        },
        fields: ActionFields::default(),
        causes: Vec::new(),
        place: None,
    };
    ActionRequest {
        owner: ActionOwner {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        },
        retry: RetryPolicy {
            attempts_max: 5,
            wait_ns_min: 1_000_000,
            wait_ns_max: 1_000_000,
        },
        body: job.encode().unwrap(),
        ..request("r", index)
    }
}

fn states(queue: &ActionQueue) -> Vec<ActionState> {
    let list = queue.list(&ActionFilter::default()).unwrap();
    list.iter().rev().map(|info| info.state).collect()
}

#[test]
fn programs_are_run_and_settled() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("count");
    let file = file.to_str().unwrap();
    let queue = queue(folder.path());
    let twice = "echo x >> \"$0\"; test $(wc -l < \"$0\") = 3 || exit 75";
    let batch = [
        program(0, &["echo", "hello"]),
        program(1, &["sh", "-c", "echo no; echo why >&2; exit 1"]),
        program(2, &["sh", "-c", twice, file]),
        program(3, &["/no/such/program"]),
        ActionRequest {
            body: b"no job".to_vec(),
            ..program(4, &[])
        },
        program(5, &["sh", "-c", "kill -9 $$"]),
    ];
    queue.enqueue(&batch).unwrap();
    let workers = ActionWorkers::start(queue.clone(), OneRule::new(9), jobs(), config()).unwrap();
    until("all are settled", || {
        queue.status().waiting + queue.status().running == 0
    });
    assert_eq!((workers.stop().ended, queue.status().stale), (0, 0));
    use ActionState::{Dead, Done};
    assert_eq!(states(&queue), [Done, Dead, Done, Dead, Dead, Dead]);
    let show = |id| queue.show(id).unwrap().unwrap();
    assert_eq!(show(1).output, b"hello\n");
    assert_eq!(
        show(2).output,
        b"[standard output]\nno\n\n[standard error]\nwhy\n"
    );
    assert_eq!(
        show(2).info.reason.as_deref(),
        Some("the program ended with code 1")
    );
    assert_eq!(show(3).info.attempts, 3);
    assert_eq!((show(4).info.attempts, show(5).info.attempts), (1, 1));
    let reason = show(6).info.reason.unwrap();
    assert_eq!(
        reason,
        "the program was ended by signal 9; that was attempt 5 of 5"
    );
}

#[test]
fn transfers_know_whether_they_were_tried_before() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("count");
    let queue = queue(folder.path());
    let place = |path: &str| FilePlace::Path {
        path: path.as_bytes().to_vec(),
    };
    let job = ActionJob {
        work: ActionWork::Transfer {
            transfer: FileTransfer {
                verb: TransferVerb::Move,
                from: place("/a"),
                to: Some(place("/b")),
            },
            time_ns_max: 0,
        },
        fields: ActionFields::default(),
        causes: Vec::new(),
        place: None,
    };
    let request = ActionRequest {
        body: job.encode().unwrap(),
        ..program(0, &[])
    };
    queue.enqueue(std::slice::from_ref(&request)).unwrap();
    // A program that keeps what it is given, and fails for the time being at first.
    let keep = "cat >> \"$0\"; echo >> \"$0\"; test $(wc -l < \"$0\") = 2 || exit 75";
    let mut jobs = Arc::into_inner(jobs()).unwrap();
    jobs.transfers.argv = words(&["sh", "-c", keep, file.to_str().unwrap()]);
    let rules = OneRule::new(9);
    let workers = ActionWorkers::start(queue.clone(), rules, Arc::new(jobs), config()).unwrap();
    until("it is done", || states(&queue) == [ActionState::Done]);
    workers.stop();
    let text = std::fs::read_to_string(file).unwrap();
    let tasks = text.lines().map(serde_json::from_str::<TransferTask>);
    let since: Vec<Option<i64>> = tasks.map(|task| task.unwrap().tried_since_ns).collect();
    let enqueued_ns = queue.show(1).unwrap().unwrap().info.enqueued_ns;
    assert_eq!(since, [None, Some(enqueued_ns)]);
}

/// Takes note of the actions that run at the same time.
#[derive(Default)]
struct Counting {
    now: AtomicU64,
    most: AtomicU64,
    done: Mutex<Vec<u64>>,
}

impl ActionExecutor for Counting {
    fn execute(&self, action: &ClaimedAction, _: &AtomicBool) -> ActionOutcome {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        std::thread::yield_now();
        self.done.lock().unwrap().push(action.key.index);
        self.now.fetch_sub(1, Ordering::SeqCst);
        assert!(
            action.key.index != 13 || action.attempt > 1,
            "a planted panic"
        );
        ActionOutcome::Done { output: Vec::new() }
    }
}

#[test]
fn each_action_is_done_and_no_more_at_once_than_the_rule_allows() {
    let folder = tempfile::tempdir().unwrap();
    let queue = queue(folder.path());
    let rules = OneRule::new(2);
    let executor = Arc::new(Counting::default());
    let workers =
        ActionWorkers::start(queue.clone(), rules.clone(), executor.clone(), config()).unwrap();
    let mut batch: Vec<_> = (0..200).map(|index| request("r", index)).collect();
    for request in &mut batch {
        request.retry.wait_ns_min = 1;
    }
    queue.enqueue(&batch).unwrap();
    workers.wake();
    until("all are settled", || {
        queue.status().waiting + queue.status().running == 0
    });
    workers.stop();
    assert!(executor.most.load(Ordering::SeqCst) <= 2);
    let mut done = executor.done.lock().unwrap().clone();
    done.sort_unstable();
    let mut expect: Vec<u64> = (0..200).collect();
    expect.insert(13, 13);
    assert_eq!(done, expect);
    assert_eq!(rules.started.load(Ordering::Relaxed), 201);
}

#[test]
fn stopping_ends_what_runs_and_gives_it_back() {
    let folder = tempfile::tempdir().unwrap();
    let queue = queue(folder.path());
    let once = ActionRequest {
        delivery: Delivery::AtMostOnce,
        ..program(1, &["sleep", "60"])
    };
    queue
        .enqueue(&[program(0, &["sleep", "60"]), once])
        .unwrap();
    let workers = ActionWorkers::start(queue.clone(), OneRule::new(9), jobs(), config()).unwrap();
    until("both run", || queue.status().running == 2);
    let report = workers.stop();
    assert_eq!((report.ended, report.left), (2, 0));
    assert_eq!(states(&queue), [ActionState::Waiting, ActionState::Dead]);
}

#[test]
fn leases_of_long_actions_are_extended() {
    let folder = tempfile::tempdir().unwrap();
    let queue = queue(folder.path());
    queue.enqueue(&[program(0, &["sleep", "1.5"])]).unwrap();
    let config = WorkersConfig {
        lease: Duration::from_millis(400),
        ..config()
    };
    let workers = ActionWorkers::start(queue.clone(), OneRule::new(9), jobs(), config).unwrap();
    until("it is done", || states(&queue) == [ActionState::Done]);
    workers.stop();
    let status = queue.status();
    assert_eq!((status.claimed, status.stale), (1, 0));
}
