//! Tasks at their data or elsewhere: rules that know queues and the cost of moving data beside
//! rules that know neither, on simulated nodes.

use std::collections::VecDeque;

use barograph_placement::{
    ClusterState, DataHolder, KeyHash, LocalityConfig, LocationPlace, LocationStrength, NodeState,
    Reading, TaskRequest, WaitingTask, place_task, take_over,
};

use crate::parallel;
use crate::random::{Random, Zipf};
use crate::table::{count, list, median, paragraph, spread};
use crate::targets::{Target, Wanted};

const TASKS: usize = 40_000;
const FILES: usize = 2_000;
const NODES: usize = 32;
/// Seconds of a task at its data, and what it takes longer elsewhere.
const WORK_S: f64 = 1.0;
const MOVE_S: f64 = 0.5;
/// Bytes of a file, and bytes/s of a link: half a second.
const FILE_BYTES: u64 = 500_000_000;
const LINK: f64 = 1e9;

/// When a task is bound to a node: at once, or when a node has nothing to do.
#[derive(Clone, Copy, PartialEq)]
enum Rule {
    /// The shorter queue of two that are drawn; the data does not count.
    TwoChoices,
    /// At the data unless the queue there is above so many times the mean.
    MeanQueue(f64),
    /// At the data.
    Hard,
    /// At the data, or at any node that has nothing to do (Swift/T's soft location).
    AnyIdle,
    /// `place_task`, with so many draws, queues as they were at most so many seconds ago, and
    /// patience.
    Ours {
        choices: usize,
        age_s: f64,
        patience: f64,
    },
    /// The same with two draws, and nodes without work take over what gains by it.
    TakeOver,
}

/// The rule as it is unless configured.
const DEFAULT: Rule = Rule::Ours {
    choices: 2,
    age_s: 0.0,
    patience: 1.0,
};

const RULES: &[(Rule, &str)] = &[
    (Rule::TwoChoices, "two choices"),
    (Rule::MeanQueue(1.0), "at the data up to the mean queue"),
    (Rule::MeanQueue(1.1), "at the data up to 1.1 of it"),
    (Rule::MeanQueue(1.5), "at the data up to 1.5 of it"),
    (Rule::Hard, "hard location"),
    (Rule::AnyIdle, "soft location of Swift/T, bound late"),
    (
        Rule::Ours {
            choices: 2,
            age_s: 0.0,
            patience: 0.0,
        },
        "ours, 2 draws, no patience",
    ),
    (DEFAULT, "ours, 2 draws (default)"),
    (
        Rule::Ours {
            choices: 4,
            age_s: 0.0,
            patience: 1.0,
        },
        "ours, 4 draws",
    ),
    (
        Rule::Ours {
            choices: 2,
            age_s: 5.0,
            patience: 1.0,
        },
        "ours, 2 draws, queues up to 5 s old",
    ),
    (Rule::TakeOver, "ours, 2 draws, idle nodes take over"),
];

struct Task {
    arrives_s: f64,
    holder: usize,
    key: KeyHash,
}

struct Outcome {
    /// The share of tasks that ran at their data.
    local: f64,
    /// The end of the last task, by the ideal.
    makespan: f64,
    /// Time of tasks beyond their work, as a share of the work.
    extra: f64,
    /// Mean and 99th percentile of the time from arrival to end, in seconds.
    mean_s: f64,
    p99_s: f64,
}

/// Prints the tables; the target that they have figures for.
pub(crate) fn print(seeds: u64) -> Target {
    print_model(seeds);
    let target = print_at_once(seeds);
    print_arriving(seeds);
    target
}

fn print_model(seeds: u64) {
    println!("## Locality, simulated\n");
    paragraph(&format!(
        "{} tasks of {WORK_S} s on {NODES} nodes read {} files (Zipf, 0.9), each of which is on one node. Away from it a \
        task takes {MOVE_S} s longer. {seeds} seeds: median, and least to most.",
        count(TASKS),
        count(FILES)
    ));
    list(&[
        "**The ideal** is all work at its data and spread evenly, which no rule can reach where the files of one node \
        are asked for more than those of another.".to_owned(),
        "**The bound** knows all tasks, cuts them as it likes and moves only what is too much at each node: no rule can \
        be below it.".to_owned(),
        "**Two choices** takes the shorter queue of two nodes that are drawn. **At the data up to** a multiple of the \
        mean queue stays there, and takes two choices beyond. **Hard** is always at the data. **Swift/T** binds late: \
        a node that has nothing to do takes the oldest task that waits anywhere.".to_owned(),
        "**Ours** is `place_task`: it moves a task where the wait that is saved exceeds the time of the move, looks at \
        the holder and at some nodes that are drawn, and with *patience* not for a small gain. *Take over* lets idle \
        nodes take what begins earlier there.".to_owned(),
        "**Limits**: the time of a task and of a move is known and the same for all, moves never disturb each other, \
        nothing stays where it was moved, each file has one holder, no node fails, and queues are known exactly, at \
        once unless a row says how old they are.".to_owned(),
    ]);
}

/// The outcomes of each rule, with all tasks at once or at a share of what the nodes can do.
fn outcomes(seeds: u64, load: Option<f64>) -> Vec<(&'static str, Vec<Outcome>)> {
    parallel::each(RULES, |(rule, name)| {
        let outcomes = (0..seeds).map(|seed| run(*rule, &tasks(seed, load), seed));
        (*name, outcomes.collect())
    })
}

fn cells(outcomes: &[Outcome], of: fn(&Outcome) -> f64) -> Vec<f64> {
    outcomes.iter().map(of).collect()
}

fn print_at_once(seeds: u64) -> Target {
    println!(
        "### All tasks at once\n\n| rule | local | makespan by ideal | extra work |\n| --- | ---: | ---: | ---: |"
    );
    let bounds: Vec<f64> = (0..seeds).map(|seed| bound(&tasks(seed, None))).collect();
    println!("| *bound* | | {} | |", spread(&bounds, 3));
    let rows = outcomes(seeds, None);
    for (name, outcomes) in &rows {
        println!(
            "| {name} | {} % | {} | {} % |",
            spread(&cells(outcomes, |it| 100.0 * it.local), 0),
            spread(&cells(outcomes, |it| it.makespan), 3),
            spread(&cells(outcomes, |it| 100.0 * it.extra), 1)
        );
    }
    println!();
    print_better(&rows, "makespan", |it| it.makespan);
    let ours = RULES.iter().position(|it| it.0 == DEFAULT);
    Target {
        name: "makespan by ideal, all tasks at once, ours (default)".to_owned(),
        wanted: Wanted::AtMost(1.14),
        reached: ours.map_or(Vec::new(), |it| cells(&rows[it].1, |it| it.makespan)),
        digits: 3,
        unit: "",
    }
}

fn print_arriving(seeds: u64) {
    println!(
        "### Tasks that arrive at random, at 70 % of what the nodes can do at the data\n\n| rule | local | extra work | arrival to end, mean s | p99 s |\n| --- | ---: | ---: | ---: | ---: |"
    );
    let rows = outcomes(seeds, Some(0.7));
    for (name, outcomes) in &rows {
        println!(
            "| {name} | {} % | {} % | {} | {} |",
            spread(&cells(outcomes, |it| 100.0 * it.local), 0),
            spread(&cells(outcomes, |it| 100.0 * it.extra), 1),
            spread(&cells(outcomes, |it| it.mean_s), 2),
            spread(&cells(outcomes, |it| it.p99_s), 1)
        );
    }
    println!();
    paragraph(
        "Where a rule gives nodes more work than they can do, their queues grow for as long as tasks arrive: such \
        figures show the overload, and would be larger in a longer run.",
    );
    print_better(&rows, "mean time", |it| it.mean_s);
}

/// The rules that are better than ours by a figure of which less is better.
fn print_better(rows: &[(&str, Vec<Outcome>)], what: &str, of: fn(&Outcome) -> f64) {
    let medians = rows.iter().map(|it| median(&cells(&it.1, of)));
    let medians: Vec<f64> = medians.collect();
    let ours = RULES.iter().position(|it| it.0 == DEFAULT);
    let ours = ours.map_or(f64::NAN, |it| medians[it]);
    let better = rows.iter().zip(&medians).filter(|it| *it.1 < ours);
    let better = better.map(|((name, _), value)| format!("*{name}* ({value:.3})"));
    let better: Vec<String> = better.collect();
    let names = match better.is_empty() {
        true => "none".to_owned(),
        false => better.join(", "),
    };
    paragraph(&format!(
        "Rules with a lower {what} than the default, by the median ({ours:.3}): {names}."
    ));
}

/// Tasks of a seed: all at once, or at a share of what the nodes can do.
fn tasks(seed: u64, load: Option<f64>) -> Vec<Task> {
    let mut random = Random(seed * 7_919 + 1);
    let zipf = Zipf::new(FILES, 0.9);
    let holders: Vec<usize> = (0..FILES).map(|_| random.below(NODES)).collect();
    let mut arrives_s = 0.0;
    let tasks = (0..TASKS).map(|number| {
        if let Some(load) = load {
            arrives_s += random.exponential(WORK_S / (load * NODES as f64));
        }
        Task {
            arrives_s,
            holder: holders[zipf.draw(&mut random)],
            key: KeyHash::of(format!("{seed}/{number}").as_bytes()),
        }
    });
    tasks.collect()
}

/// The least makespan by the ideal: what is above it at each holder is done elsewhere, at the price
/// of moving, by nodes that are below it.
fn bound(tasks: &[Task]) -> f64 {
    let mut held = [0.0; NODES];
    for task in tasks {
        held[task.holder] += WORK_S;
    }
    let ideal = tasks.len() as f64 * WORK_S / NODES as f64;
    let (mut low, mut high) = (ideal, ideal * (1.0 + MOVE_S));
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        let above: f64 = held.iter().map(|it| (it - middle).max(0.0)).sum();
        let below: f64 = held.iter().map(|it| (middle - it).max(0.0)).sum();
        match above * (1.0 + MOVE_S / WORK_S) <= below {
            true => high = middle,
            false => low = middle,
        }
    }
    high / ideal
}

/// Nodes that do tasks in the order of their queues.
struct Nodes {
    /// When each will have done what it has begun.
    free_s: [f64; NODES],
    queues: Vec<VecDeque<(usize, f64)>>,
    /// Seconds of work in each queue.
    queued_s: [f64; NODES],
    ends_s: Vec<f64>,
    local: usize,
    extra_s: f64,
}

impl Nodes {
    fn wait_s(&self, node: usize, now_s: f64) -> f64 {
        (self.free_s[node] - now_s).max(0.0) + self.queued_s[node]
    }

    fn push(&mut self, node: usize, task: usize, tasks: &[Task]) {
        let cost_s = cost_s(node, &tasks[task]);
        self.queues[node].push_back((task, cost_s));
        self.queued_s[node] += cost_s;
    }

    fn start(&mut self, node: usize, now_s: f64, task: usize, tasks: &[Task]) {
        let cost_s = cost_s(node, &tasks[task]);
        self.free_s[node] = now_s + cost_s;
        self.ends_s[task] = now_s + cost_s;
        self.local += usize::from(node == tasks[task].holder);
        self.extra_s += cost_s - WORK_S;
    }

    fn pop(&mut self, node: usize, is_last: bool) -> Option<usize> {
        let queue = &mut self.queues[node];
        let taken = if is_last {
            queue.pop_back()
        } else {
            queue.pop_front()
        };
        let (task, cost_s) = taken?;
        self.queued_s[node] -= cost_s;
        Some(task)
    }
}

fn cost_s(node: usize, task: &Task) -> f64 {
    match node == task.holder {
        true => WORK_S,
        false => WORK_S + MOVE_S,
    }
}

fn run(rule: Rule, tasks: &[Task], seed: u64) -> Outcome {
    let mut nodes = Nodes {
        free_s: [0.0; NODES],
        queues: vec![VecDeque::new(); NODES],
        queued_s: [0.0; NODES],
        ends_s: vec![0.0; tasks.len()],
        local: 0,
        extra_s: 0.0,
    };
    let mut random = Random(seed);
    let (mut seen, mut seen_s) = ([0.0; NODES], f64::NEG_INFINITY);
    for (number, task) in tasks.iter().enumerate() {
        let now_s = task.arrives_s;
        catch_up(&mut nodes, now_s, rule, tasks);
        let age_max_s = match rule {
            Rule::Ours { age_s, .. } => age_s,
            _ => 0.0,
        };
        // Where all come at once, the clock of the readings is the number of tasks.
        let clock_s = if now_s > 0.0 {
            now_s
        } else {
            number as f64 / NODES as f64
        };
        if clock_s - seen_s >= age_max_s {
            seen = std::array::from_fn(|node| nodes.wait_s(node, now_s));
            seen_s = clock_s;
        }
        let node = choose(rule, task, &seen, clock_s - seen_s, &mut random);
        nodes.push(node, number, tasks);
        catch_up(&mut nodes, now_s, rule, tasks);
    }
    catch_up(&mut nodes, f64::INFINITY, rule, tasks);
    outcome(&nodes, tasks)
}

/// Lets all nodes begin what they can begin up to a time, in the order of time.
fn catch_up(nodes: &mut Nodes, now_s: f64, rule: Rule, tasks: &[Task]) {
    let is_late = matches!(rule, Rule::AnyIdle | Rule::TakeOver);
    loop {
        let queued = (0..NODES).filter(|node| !nodes.queues[*node].is_empty());
        let has_work = queued.clone().count() > 0;
        let able =
            (0..NODES).filter(|node| !nodes.queues[*node].is_empty() || (is_late && has_work));
        // The time at which each is idle; of those without a queue only if there is something.
        let start = |node: usize| match nodes.queues[node].front() {
            Some((task, _)) => nodes.free_s[node].max(tasks[*task].arrives_s),
            None => nodes.free_s[node],
        };
        let starts = able.map(|node| (start(node), node));
        let mut order: Vec<(f64, usize)> = starts.filter(|it| it.0 <= now_s).collect();
        order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let took = order.into_iter().find_map(|(at_s, node)| {
            let own = nodes.pop(node, false);
            let task = own.or_else(|| taken(nodes, node, at_s, rule, tasks))?;
            Some((node, at_s.max(tasks[task].arrives_s), task))
        });
        let Some((node, at_s, task)) = took else {
            return;
        };
        nodes.start(node, at_s, task, tasks);
    }
}

/// What a node without work takes from another one.
fn taken(nodes: &mut Nodes, idle: usize, now_s: f64, rule: Rule, tasks: &[Task]) -> Option<usize> {
    let waiting = (0..NODES).filter_map(|node| match rule {
        // The oldest of all, wherever it is.
        Rule::AnyIdle => {
            let (task, _) = nodes.queues[node].front()?;
            Some(WaitingTask {
                task: node as u64,
                wait_s: 1e9 - *task as f64,
                move_s: 0.0,
            })
        }
        _ => {
            let (task, own_s) = nodes.queues[node].back()?;
            let now_s = now_s.max(tasks[*task].arrives_s);
            Some(WaitingTask {
                task: node as u64,
                wait_s: nodes.wait_s(node, now_s),
                move_s: cost_s(idle, &tasks[*task]),
            })
            .map(|it| WaitingTask {
                wait_s: it.wait_s.max(*own_s),
                ..it
            })
        }
    });
    let waiting: Vec<_> = waiting.collect();
    let from = take_over(&waiting)?.task as usize;
    nodes.pop(from, rule != Rule::AnyIdle)
}

fn choose(
    rule: Rule,
    task: &Task,
    queues: &[f64; NODES],
    age_s: f64,
    random: &mut Random,
) -> usize {
    let two = |random: &mut Random| {
        let (a, b) = (random.below(NODES), random.below(NODES));
        if queues[a] <= queues[b] { a } else { b }
    };
    match rule {
        Rule::TwoChoices => two(random),
        Rule::Hard | Rule::AnyIdle => task.holder,
        Rule::MeanQueue(factor) => {
            let mean = queues.iter().sum::<f64>() / NODES as f64;
            match queues[task.holder] <= factor * mean {
                true => task.holder,
                false => two(random),
            }
        }
        Rule::Ours {
            choices, patience, ..
        } => ours(task, queues, age_s, (choices, patience)),
        Rule::TakeOver => ours(task, queues, 0.0, (2, 1.0)),
    }
}

fn ours(task: &Task, queues: &[f64; NODES], age_s: f64, config: (usize, f64)) -> usize {
    let nodes: [NodeState; NODES] = std::array::from_fn(|node| NodeState {
        node: node as u64,
        is_open: true,
        queue_s: Some(Reading::measured(queues[node], age_s)),
        link_bytes_per_s: Some(Reading::measured(LINK, age_s)),
        link_latency_s: None,
    });
    let request = TaskRequest {
        key: task.key,
        place: LocationPlace::Data,
        strength: LocationStrength::Soft {
            cost_s: 0.0,
            wait_s_max: f64::INFINITY,
        },
        bytes: FILE_BYTES,
        holders: &[DataHolder {
            node: task.holder as u64,
            bytes: FILE_BYTES,
        }],
        now_ns: 0,
    };
    let cluster = ClusterState {
        nodes: &nodes,
        rank_nodes: &[],
    };
    let config = LocalityConfig {
        choices: config.0,
        patience: config.1,
        ..LocalityConfig::default()
    };
    let decision = place_task(&request, &cluster, &config);
    decision.node.expect("all nodes are open") as usize
}

fn outcome(nodes: &Nodes, tasks: &[Task]) -> Outcome {
    let work_s = tasks.len() as f64 * WORK_S;
    let last_s = nodes.ends_s.iter().copied().fold(0.0, f64::max);
    let ends = nodes.ends_s.iter().zip(tasks);
    let mut times: Vec<f64> = ends.map(|(end_s, task)| end_s - task.arrives_s).collect();
    times.sort_by(f64::total_cmp);
    Outcome {
        local: nodes.local as f64 / tasks.len() as f64,
        makespan: last_s / (work_s / NODES as f64),
        extra: nodes.extra_s / work_s,
        mean_s: times.iter().sum::<f64>() / times.len() as f64,
        p99_s: times[times.len() * 99 / 100],
    }
}
