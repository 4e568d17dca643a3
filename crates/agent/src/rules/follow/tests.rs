//! Tests of rules over streams of all nodes: which of them are followed, and what rules see of
//! them.

use barograph_model::{Clock, Descriptor, ManualClock, NS_PER_S, Name, Unit, ValueType};
use barograph_rule::{Firing, RuleLimits};
use barograph_stream::{Segment, SegmentConfig, StreamWriter};

use super::super::past::PastReaders;
use super::*;
use crate::rules::backfill::RuleBackfill;

const START_NS: i64 = 1_700_000_000 * NS_PER_S;
const HIGH: &str = "CREATE RULE high WHEN latest('cluster.a.level') > 5 CALL 'x'";

/// A segment with the streams `a.level` and `b.level`, of this node or of a mirror.
struct NodeRig {
    segment: Segment,
    writers: Vec<StreamWriter>,
}

impl NodeRig {
    fn new(run_dir: &RunDir, node: &str) -> Self {
        std::fs::create_dir_all(run_dir.path()).unwrap();
        let config = SegmentConfig::new(node);
        let mut segment = Segment::create(&run_dir.segment(), config, START_NS).unwrap();
        let register = |name| segment.register(&level(name), Some(64), START_NS).unwrap();
        let writers = ["a.level", "b.level"].map(register);
        Self {
            segment,
            writers: writers.into(),
        }
    }

    /// Appends a value of `a.level`.
    fn put(&mut self, now_ns: i64, value: i64) {
        self.segment.heartbeat(now_ns);
        let sample = Sample::measured(now_ns, value);
        self.writers[0].append(&sample).unwrap();
    }

    /// Registers `a.level` anew, as a mirror does after a hole, or after a restart of its node.
    fn begin_anew(&mut self, life_ns: i64, number: u64) {
        self.segment.retire(self.writers.remove(0));
        let depth = Some(64);
        let writer = self.segment.register(&level("a.level"), depth, life_ns);
        self.writers.insert(0, writer.unwrap());
        self.segment.begin_at(&mut self.writers[0], number);
    }
}

fn level(name: &str) -> Descriptor {
    let unit = Unit::new("count").unwrap();
    Descriptor::gauge(Name::new(name).unwrap(), ValueType::Int, unit)
}

/// Two nodes, `a` with the rules and `b`, which is mirrored.
struct ClusterRig {
    dir: tempfile::TempDir,
    now_ns: i64,
    own: NodeRig,
    other: NodeRig,
    rules: Rules,
    follower: StreamFollower,
}

impl ClusterRig {
    fn new(is_clustered: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let run_dir = RunDir::new(dir.path());
        Self {
            now_ns: START_NS,
            own: NodeRig::new(&run_dir, "a"),
            other: NodeRig::new(&run_dir.mirror("b"), "b"),
            rules: Rules::new(RuleLimits::default()),
            follower: StreamFollower::new(&run_dir, is_clustered),
            dir,
        }
    }

    fn execute(&mut self, sql: &str) {
        self.rules.execute(sql, self.now_ns).unwrap();
    }

    /// Feeds the rules two seconds later, evaluates them, and gives what has fired.
    fn step(&mut self) -> Vec<String> {
        let fired = self.fire();
        let names = fired.iter().map(|f| format!("{}{}", f.rule, f.subject));
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    /// The same, with all that is known of the firings.
    fn fire(&mut self) -> Vec<Firing> {
        self.now_ns += 2 * NS_PER_S;
        self.follower.feed(&mut self.rules, self.now_ns);
        let mut fired = Vec::new();
        self.rules
            .evaluate(self.now_ns, &mut |firing| fired.push(firing));
        fired
    }

    /// The number of followed segments, of streams by their own names, and by their names in the
    /// cluster.
    fn followed(&self) -> (usize, usize, usize) {
        let parts = &self.follower.parts;
        let own = parts.iter().map(|part| part.streams.len()).sum();
        let of_cluster = parts.iter().map(|part| part.of_cluster.len()).sum();
        assert_eq!(self.follower.room.held(), of_cluster);
        (parts.len(), own, of_cluster)
    }
}

#[test]
fn mirrors_are_followed_while_a_rule_reads_them() {
    let mut rig = ClusterRig::new(true);
    rig.execute("CREATE RULE own WHEN latest('*') > 5 CALL 'x'");
    rig.own.put(rig.now_ns, 1);
    rig.other.put(rig.now_ns, 9);
    assert_eq!(rig.step(), [] as [&str; 0]);
    assert_eq!(rig.followed(), (1, 2, 0));
    rig.execute(HIGH);
    assert_eq!(rig.step(), ["high{node=b}"]);
    assert_eq!(rig.followed(), (2, 2, 2), "b.level is read by nobody");
    // Streams of other nodes are no streams of this one.
    let own = &rig.rules.reports()[1];
    assert_eq!((own.name.as_str(), own.subjects), ("own", 2));
    rig.own.put(rig.now_ns, 8);
    assert_eq!(rig.step(), ["high{node=a}", "own"]);
    let narrow = HIGH.replace("level'", "level{node=b}'");
    rig.execute(&narrow.replace("CREATE", "CREATE OR REPLACE"));
    rig.step();
    assert_eq!(rig.followed(), (2, 2, 1));
    rig.execute("DROP RULE high");
    rig.step();
    assert_eq!(rig.followed(), (1, 2, 0));
}

#[test]
fn a_node_in_no_cluster_has_no_streams_of_all_nodes() {
    let mut rig = ClusterRig::new(false);
    rig.own.put(rig.now_ns, 9);
    rig.execute(HIGH);
    assert_eq!(rig.step(), [] as [&str; 0]);
    assert_eq!(rig.followed(), (1, 2, 0));
}

#[test]
fn a_hole_in_a_mirror_is_counted_and_no_new_stream() {
    let mut rig = ClusterRig::new(true);
    // The mirror begins in the middle of the stream's life: nothing is lost by that.
    rig.other.begin_anew(START_NS, 1_000);
    rig.execute(HIGH);
    assert_eq!(rig.step(), [] as [&str; 0]);
    rig.other.put(rig.now_ns, 9);
    assert_eq!(rig.step(), ["high{node=b}"]);
    assert_eq!(rig.rules.reports()[0].missed, 0);
    rig.other.begin_anew(START_NS, 1_011);
    assert_eq!(rig.step(), [] as [&str; 0]);
    rig.other.put(rig.now_ns, 9);
    assert_eq!(rig.step(), [] as [&str; 0], "it has been true all the time");
    assert_eq!(rig.rules.reports()[0].missed, 10);
    // Another life is another stream.
    rig.other.begin_anew(rig.now_ns, 1);
    rig.other.put(rig.now_ns, 9);
    assert_eq!(rig.step(), ["high{node=b}"]);
    assert_eq!(rig.rules.reports()[0].missed, 10);
}

#[test]
fn a_node_that_is_gone_is_absent() {
    let mut rig = ClusterRig::new(true);
    rig.execute("CREATE RULE gone WHEN absent('cluster.a.level{node=b}', '5 s') CALL 'x'");
    rig.execute("CREATE RULE old WHEN age('cluster.a.level') > 5 CALL 'x'");
    for _ in 0..3 {
        rig.own.put(rig.now_ns, 1);
        rig.other.put(rig.now_ns, 1);
        assert_eq!(rig.step(), [] as [&str; 0]);
    }
    // Nothing is heard of it: its streams stay, and age.
    rig.own.put(rig.now_ns, 1);
    assert_eq!(rig.step(), [] as [&str; 0]);
    rig.own.put(rig.now_ns, 1);
    assert_eq!(rig.step(), ["gone{node=b}", "old{node=b}"]);
    // It is back, and then its mirror is removed.
    rig.own.put(rig.now_ns, 1);
    rig.other.put(rig.now_ns, 1);
    assert_eq!(rig.step(), [] as [&str; 0]);
    let mirror = RunDir::new(rig.dir.path()).mirror("b");
    std::fs::remove_dir_all(mirror.path()).unwrap();
    let fired: Vec<Vec<String>> = (0..3)
        .map(|_| {
            rig.own.put(rig.now_ns, 1);
            rig.step()
        })
        .collect();
    assert_eq!(rig.followed(), (1, 2, 1));
    assert_eq!(fired.concat(), ["gone{node=b}"]);
}

#[test]
fn the_past_of_a_window_is_that_of_the_mirror() {
    let mut rig = ClusterRig::new(true);
    let wait = |rig: &mut ClusterRig, value| {
        rig.other.put(rig.now_ns, value);
        rig.now_ns += NS_PER_S;
    };
    (0..20).for_each(|_| wait(&mut rig, 9));
    wait(&mut rig, 0);
    rig.own.put(rig.now_ns, 1);
    rig.execute("CREATE RULE mean WHEN avg_over('cluster.a.level', '60 s') > 5 CALL 'x'");
    rig.follower.feed(&mut rig.rules, rig.now_ns);
    let wanted = rig.follower.take_wanted(&rig.rules);
    assert_eq!(wanted.len(), 2);
    let backfill = RuleBackfill::new(wanted, 0);
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(rig.now_ns));
    let mut found = FoundPasts::new();
    let mut take = |part: FoundPasts| {
        found.extend(part);
        true
    };
    PastReaders::new(&clock).read(backfill.order(), &mut take);
    let counts: Vec<usize> = found.iter().map(|(_, past)| past.samples.len()).collect();
    assert_eq!(counts, [1, 21], "of this node and of the other one");
    let asked = backfill.streams().to_vec();
    rig.follower.seed(&mut rig.rules, &asked, found, rig.now_ns);
    assert_eq!(rig.step(), ["mean{node=b}"]);
    let reason = &rig.rules.reports()[0].reason;
    assert!(
        reason.contains("keeps no history of the other node"),
        "{reason}"
    );
}

#[test]
fn publications_of_all_nodes_fire_for_their_readers() {
    let mut rig = ClusterRig::new(true);
    let own = RunDir::new(rig.dir.path());
    let places = [own.scope("all"), own.mirror("b").scope("all")];
    let private = [own.scope("u1000"), own.mirror("b").scope("u1000")];
    let mut published = Vec::new();
    for (at, dir) in places.iter().chain(&private).enumerate() {
        let mut segment = NodeRig::new(dir, ["a", "b"][at % 2]);
        segment.put(rig.now_ns, 9);
        published.push(segment);
    }
    rig.execute(HIGH);
    let told = |fired: Vec<Firing>| {
        let one = |f: &Firing| format!("{} for {:?}", f.subject, f.scopes);
        let mut told: Vec<String> = fired.iter().map(one).collect();
        told.sort();
        told
    };
    let each = [
        "{node=a} for {\"all\"}",
        "{node=a} for {\"u1000\"}",
        "{node=b} for {\"all\"}",
        "{node=b} for {\"u1000\"}",
    ];
    assert_eq!(told(rig.fire()), each);
    let (_, own, of_cluster) = rig.followed();
    assert_eq!(
        (own, of_cluster),
        (6, 6),
        "a.level of both nodes and of their scopes"
    );
    // What a rule tells beside the subject counts as well, also when that is of a node.
    let both = "CREATE RULE both WHEN latest('cluster.b.level{node=b}') = 1 CALL 'x' \
                PAYLOAD latest('cluster.a.level{node=b}')";
    rig.execute("DROP RULE high");
    rig.execute(both);
    assert_eq!(rig.fire(), []);
    published[3].put(rig.now_ns, 10);
    let sample = Sample::measured(rig.now_ns, 1);
    rig.other.segment.heartbeat(rig.now_ns);
    rig.other.writers[1].append(&sample).unwrap();
    assert_eq!(told(rig.fire()), ["{node=b} for {\"\", \"u1000\"}"]);
    // A program that has ended is told to its readers alone.
    for segment in [1, 3] {
        published[segment].put(rig.now_ns, 9);
    }
    rig.other.put(rig.now_ns, 9);
    rig.execute(
        "CREATE OR REPLACE RULE both WHEN absent('cluster.a.level{node=b}', '3 s') CALL 'x'",
    );
    assert_eq!(rig.fire(), []);
    drop(published.pop());
    std::fs::remove_dir_all(private[1].path()).unwrap();
    let mut fired = Vec::new();
    for _ in 0..5 {
        published[1].put(rig.now_ns, 9);
        rig.other.put(rig.now_ns, 9);
        fired.extend(rig.fire());
    }
    assert_eq!(told(fired), ["{node=b} for {\"u1000\"}"]);
    rig.execute("DROP RULE both");
    rig.step();
    assert_eq!(rig.followed().2, 0);
}
