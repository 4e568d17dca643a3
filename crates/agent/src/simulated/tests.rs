//! Two whole agents in one thread for hours of virtual time, twice with the same seed to the same
//! bytes.

use std::path::Path;

use barograph_archive::verify;

use super::*;

const HOUR_S: i64 = 3_600;
/// Hours of the simulation: a day where the code is optimized, and few hours in a development
/// build.
const HOURS: i64 = if cfg!(debug_assertions) { 4 } else { 24 };
/// Longest time between two events of one machine, in seconds.
const EVENT_S_MAX: u64 = 600;

/// The statements that people make, at random.
const STATEMENTS: [&str; 8] = [
    "CREATE OR REPLACE INSIGHT twice.bytes AS SELECT 2 * value FROM filesystem_available_bytes",
    "CREATE OR REPLACE INSIGHT twice.bytes AS SELECT value / 2 FROM filesystem_free_bytes",
    "DROP INSIGHT twice.bytes",
    "CREATE OR REPLACE POLICY more FOR 'filesystem.*' ERROR '1 GiB'",
    "DROP POLICY more",
    "CREATE OR REPLACE RULE busy WHEN rate('disk.write.bytes', '5 min') > 1.1e6 \
     CALL 'slow.down' COOLDOWN '10 min'",
    "CREATE OR REPLACE RULE full WHEN min_over('filesystem.available.bytes', '1 h') < 5.497e11 \
     CALL 'clean.up' COOLDOWN '10 min'",
    "DROP RULE busy",
];

/// Everything that a simulation leaves behind.
struct Outcome {
    files: BTreeMap<PathBuf, Vec<u8>>,
    samples: BTreeMap<String, String>,
    told: String,
    steps: u64,
}

/// Runs two machines for [`HOURS`], and lets things happen to them.
fn simulate(dir: &Path, seed: u64) -> Outcome {
    let clock = virtual_time();
    let nodes = ["first", "second"];
    let nodes = nodes.map(|name| SimulatedNode::new(name, &dir.join(name), &clock, seed));
    let mut agents: Vec<_> = nodes.iter().map(SimulatedNode::start).collect();
    for agent in &mut agents {
        for sql in STATEMENTS.iter().filter(|sql| sql.starts_with("CREATE")) {
            agent.execute(sql).unwrap();
        }
    }
    let mut random = Random(seed);
    let end_ns = START_NS + HOURS * HOUR_S * NS_PER_S;
    while clock.now_ns() < end_ns {
        let pause_s = 1 + random.below(EVENT_S_MAX) as i64;
        let until_ns = clock.now_ns() + pause_s * NS_PER_S;
        run(&clock, until_ns.min(end_ns), &mut agents);
        let at = random.below(2) as usize;
        let agent = agents.remove(at);
        agents.insert(at, meet_chance(&nodes[at], agent, &mut random, at == 1));
    }
    let mut outcome = Outcome {
        files: BTreeMap::new(),
        samples: BTreeMap::new(),
        told: String::new(),
        steps: 0,
    };
    for (node, agent) in nodes.iter().zip(agents) {
        let samples = agent.samples().into_iter();
        let samples = samples.map(|(name, text)| (format!("{} {name}", node.config.node), text));
        outcome.samples.extend(samples);
        outcome.steps += agent.steps;
        agent.stop();
        outcome.files.extend(node.files());
        outcome.told += &node.told();
        for archive in node.archives() {
            let verified = verify(&archive, &mut |_, _| {}).unwrap();
            assert_eq!(verified.findings, []);
            assert!(verified.samples > 0 && verified.twice == 0, "{verified:?}");
        }
    }
    outcome
}

/// Does to an agent what chance wants.
fn meet_chance<'n>(
    node: &'n SimulatedNode,
    mut agent: SimulatedAgent<'n>,
    random: &mut Random,
    may_be_cut: bool,
) -> SimulatedAgent<'n> {
    match random.below(12) {
        0 if may_be_cut => {
            node.tell("the power is cut");
            agent.cut();
            node.restart_after_power_cut();
            return node.start();
        }
        1 => {
            node.tell("a restart");
            agent.stop();
            return node.start();
        }
        2 => {
            let mut config = node.config.clone();
            config.policy[0].error = Some(format!("{} MiB", 1 + random.below(256)));
            let answer = agent.reload(&config);
            node.tell(&format!("{answer:?}"));
        }
        3 => agent.event_loop.apply(Event::Wake),
        4 => node.replace_program(),
        _ => {
            let sql = STATEMENTS[random.below(STATEMENTS.len() as u64) as usize];
            let answer = agent.execute(sql);
            node.tell(&format!("{sql} {answer:?}"));
        }
    }
    agent
}

#[test]
fn two_agents_live_through_hours_twice_to_the_same_bytes() {
    let dir = memory_dir();
    let dir = dir.path().join("machines");
    // In the same directory, since documents have paths.
    let outcome = |seed: u64| {
        let outcome = simulate(&dir, seed);
        fs::remove_dir_all(&dir).unwrap();
        outcome
    };
    let first = outcome(7);
    for happened in ["the power is cut", "a restart", "clean.up", "slow.down"] {
        assert!(first.told.contains(happened), "{happened}: {}", first.told);
    }
    let again = outcome(7);
    let mut lines = first.told.lines().zip(again.told.lines());
    assert_eq!(lines.find(|(line, other)| line != other), None);
    assert_eq!(first.told.len(), again.told.len());
    assert_eq!(first.samples, again.samples);
    assert_eq!(first.steps, again.steps);
    assert!(first.files.keys().eq(again.files.keys()));
    for (path, bytes) in &first.files {
        assert!(*bytes == again.files[path], "{}", path.display());
    }
}

/// The power fails after each number of operations while statements are executed.
#[test]
fn what_was_answered_survives_a_power_failure_and_what_was_refused_does_not() {
    let made = "CREATE INSIGHT made.bytes AS SELECT 2 * value FROM filesystem_free_bytes";
    let refused =
        "CREATE INSIGHT refused.bytes AS SELECT nothing(value) FROM filesystem_free_bytes";
    let dropped = "CREATE INSIGHT dropped.bytes AS SELECT value FROM filesystem_free_bytes";
    let mut is_cut = true;
    for operations in 0.. {
        if !std::mem::replace(&mut is_cut, false) {
            assert!(operations > 10, "statements write: {operations}");
            break;
        }
        let dir = memory_dir();
        let node = SimulatedNode::new("n1", dir.path(), &virtual_time(), operations);
        let mut agent = node.start();
        agent.execute(dropped).unwrap();
        node.disk.disk.fail_after(operations);
        let is_made = agent.execute(made).is_ok();
        assert!(agent.execute(refused).is_err());
        let is_dropped = agent.execute("DROP INSIGHT dropped.bytes").is_ok();
        is_cut = node.disk.disk.is_off();
        agent.cut();
        node.restart_after_power_cut();
        let agent = node.start();
        let kept = agent.statements.of(StatementKind::Insight);
        assert!(kept.contains_key("made.bytes") || !is_made, "{operations}");
        assert!(!kept.contains_key("refused.bytes"), "{operations}");
        assert!(
            !(kept.contains_key("dropped.bytes") && is_dropped),
            "{operations}"
        );
        agent.stop();
    }
}
