//! Questions to other nodes over a network that loses, doubles, delays and reorders messages, on
//! virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use barograph_fabric::transport::{MemoryNetwork, Transport as _};
use barograph_fabric::{AskedQuestion, NodeAnswer, NodeReply, QuestionKind};
use barograph_model::NS_PER_S;

use crate::cluster::{BadTransport, Dice, Member, START_NS, hello};

/// Time between two rounds, in ns.
const ROUND_NS: i64 = NS_PER_S / 20;
/// Rounds in which questions are asked, and by which all of them are over.
const ASKING: i64 = 250;
const ROUNDS: i64 = ASKING + 420;
/// Round in which a node restarts.
const RESTART: i64 = 120;
/// A patience in which a question surely arrives, and its answer: a score of attempts, of which two
/// thirds fail at most. Other questions may be late.
const LONG_NS: i64 = 20 * NS_PER_S;
const NAMES: [&str; 3] = ["a", "b", "c"];
const KINDS: [QuestionKind; 4] = [
    QuestionKind::Statement,
    QuestionKind::Call,
    QuestionKind::Action,
    QuestionKind::Insights,
];

/// A question that was asked.
struct Asked {
    by: usize,
    text: String,
    at_ns: i64,
    until_ns: i64,
}

/// Three nodes that ask each other.
struct Askers {
    network: MemoryNetwork,
    dice: Dice,
    members: Vec<Member<BadTransport>>,
    /// The questions that are being answered, by node, with the round of their answer.
    under_way: [Vec<(i64, AskedQuestion)>; 3],
    /// The questions that are open, by node and number.
    open: BTreeMap<(usize, u64), Asked>,
    /// The calls that were made, by node and text.
    made: BTreeSet<(usize, String)>,
    number: u64,
    restarted_ns: i64,
    which: String,
    answered: u64,
}

impl Askers {
    fn new(seed: u64) -> Self {
        let mut askers = Self {
            network: MemoryNetwork::default(),
            dice: Dice(seed | 1),
            members: Vec::new(),
            under_way: Default::default(),
            open: BTreeMap::new(),
            made: BTreeSet::new(),
            number: 0,
            restarted_ns: 0,
            which: format!("seed {seed}"),
            answered: 0,
        };
        for at in 0..3 {
            let member = askers.member(at, at as u8 + 1, START_NS);
            askers.members.push(member);
        }
        askers
    }

    fn member(&mut self, at: usize, life: u8, now_ns: i64) -> Member<BadTransport> {
        let inner = self.network.join(hello("rack", NAMES[at], life)).unwrap();
        let transport = BadTransport::new(inner, self.dice.roll(u64::MAX));
        Member::over(transport, NAMES[at], life, now_ns, 16, 64)
    }

    /// A killed agent, with what it had asked and was about to answer; another one takes its place.
    fn restart(&mut self, now_ns: i64) {
        drop(self.members.remove(1));
        self.under_way[1].clear();
        self.open.retain(|(by, _), _| *by != 1);
        let member = self.member(1, 9, now_ns);
        self.members.insert(1, member);
        self.restarted_ns = now_ns;
    }

    fn ask(&mut self, by: usize, now_ns: i64) {
        self.number += 1;
        let kind = KINDS[self.dice.roll(3) as usize];
        let patience_ns = match self.dice.roll(3) {
            0 => self.dice.roll(2 * NS_PER_S as u64) as i64,
            _ => LONG_NS,
        };
        let (text, until_ns) = (format!("{kind:?} {}", self.number), now_ns + patience_ns);
        let node = &mut self.members[by].node;
        if let Some(number) = node.ask((kind, &text), &[], (now_ns, until_ns)) {
            let asked = Asked {
                by,
                text,
                at_ns: now_ns,
                until_ns,
            };
            self.open.insert((by, number), asked);
        }
    }

    /// Takes questions to a node, and answers those of which it is time.
    fn attend(&mut self, at: usize, round: i64, now_ns: i64) {
        let node = &mut self.members[at].node;
        while let Some(asked) = node.asked(now_ns) {
            if asked.kind == QuestionKind::Call {
                let is_new = self.made.insert((at, asked.text.clone()));
                assert!(is_new, "{}: {} was made twice", self.which, asked.text);
            }
            let takes = match self.dice.roll(3) {
                0 => self.dice.roll(60) as i64,
                _ => 0,
            };
            self.under_way[at].push((round + takes, asked));
        }
        let is_due = |(due, _): &mut (i64, AskedQuestion)| *due <= round;
        for (_, asked) in self.under_way[at].extract_if(.., is_due) {
            let answer = format!("{} of {}", asked.text, NAMES[at]);
            // Now and then an answer is larger than what is kept.
            let padding = self.dice.roll(4) / 3 * 300_000;
            let answer = answer + &" ".repeat(padding as usize);
            node.answer(&asked, Ok(answer.as_bytes()), now_ns);
        }
    }

    /// Checks the answers to the questions of a node that are over.
    fn check(&mut self, by: usize, now_ns: i64) {
        while let Some((number, replies)) = self.members[by].node.answers(now_ns) {
            let asked = self.open.remove(&(by, number)).unwrap();
            for NodeReply { node, answer, .. } in replies {
                self.check_answer(&asked, &node, &answer);
            }
        }
    }

    fn check_answer(&mut self, asked: &Asked, node: &Arc<str>, answer: &NodeAnswer) {
        let at = NAMES.iter().position(|name| **name == **node).unwrap();
        let which = format!("{}: {} to {node}: {answer:?}", self.which, asked.text);
        let has_long = asked.until_ns - asked.at_ns == LONG_NS;
        // The end of a question shows in the round after it.
        let over_ns = asked.until_ns + ROUND_NS;
        let has_restarted = (asked.at_ns..=over_ns).contains(&self.restarted_ns);
        match answer {
            NodeAnswer::Answered(bytes) => {
                let text = String::from_utf8_lossy(bytes);
                assert_eq!(
                    text.trim_end(),
                    format!("{} of {node}", asked.text),
                    "{which}"
                );
                self.answered += 1;
            }
            // Its answer was not kept.
            NodeAnswer::Failed(reason) => {
                assert!(reason.contains("was taken before"), "{which}");
                assert!(self.made.contains(&(at, asked.text.clone())), "{which}");
            }
            NodeAnswer::Late => assert!(!has_long || has_restarted, "{which}"),
            NodeAnswer::Gone => assert!(has_restarted && at == 1, "{which}"),
        }
        assert_ne!(asked.by, at, "{which}");
    }
}

/// Three nodes over a bad network, of which one restarts: each question is answered if it has
/// patience, and no call is made twice.
fn check_questions(seed: u64) {
    let mut askers = Askers::new(seed);
    let mut now_ns = START_NS;
    for round in 0..ROUNDS {
        now_ns += ROUND_NS;
        if round >= ASKING && askers.open.is_empty() {
            break;
        }
        if round == RESTART {
            askers.restart(now_ns);
        }
        for at in 0..3 {
            askers.members[at].node.step(now_ns);
            askers.attend(at, round, now_ns);
            askers.check(at, now_ns);
            // Before they know each other, they ask nobody.
            if (1..ASKING).contains(&round) && askers.dice.roll(20) == 0 {
                askers.ask(at, now_ns);
            }
        }
    }
    let Askers {
        open,
        answered,
        which,
        mut members,
        ..
    } = askers;
    assert!(open.is_empty() && answered > 20, "{which}: {answered}");
    for member in &mut members {
        // Nothing that came of a question counts as a fault of a peer.
        let refused = member.node.status().unreceived;
        let unreceived = member.node.transport().counts().unreceived;
        assert_eq!(refused, unreceived, "{which}");
    }
}

#[test]
fn each_question_is_answered_over_a_bad_network_and_no_call_is_made_twice() {
    crate::seeds(20).for_each(check_questions);
}
