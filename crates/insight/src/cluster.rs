//! Insights of a cluster: made once, known to all nodes, and computed by one of them.
//!
//! Each node tells the others which insights it knows, and how many of their inputs it has in
//! memory. From what it has heard, each node decides by itself what it computes: the insights for
//! which it has the most inputs ([`choice`]). When a node goes, another one takes its insights over
//! at once. A node that is to compute an insight in place of another begins before the other ends.
//! While a cluster is cut in two, both parts compute, and afterwards one of them stops.
//!
//! Nothing here has a clock or a network: messages and times are arguments.

mod choice;
mod known;

use std::collections::BTreeMap;
use std::sync::Arc;

use barograph_model::{NS_PER_MS, NS_PER_S};
use serde::{Deserialize, Serialize};

pub use choice::InsightOffer;
pub use known::{CLUSTER_INSIGHTS_MAX, ClusterInsight};

use crate::InsightError;
use known::KnownInsights;

/// Time for which a node has to be the best one for an insight before it takes it from another, in
/// ns; and before it takes one that it has never seen anybody compute, because after a start it has
/// not heard from all yet.
const SETTLE_NS: i64 = 5 * NS_PER_S;
/// Time after which a node that has heard everything is asked again, in ns.
const AGAIN_NS: i64 = 10 * NS_PER_S;
/// Time after which an insight that could not be made here is tried again, in ns.
const RETRY_NS: i64 = 60 * NS_PER_S;
/// Most nodes that are asked at a time.
const ASKED_MAX: usize = 16;

/// A message of a node to another one, as JSON.
#[derive(Debug, Serialize, Deserialize)]
struct ClusterMessage {
    /// A number that differs for different insights.
    digest: String,
    /// The offers of the node for the insights that it knows.
    offers: BTreeMap<String, InsightOffer>,
    /// The insights that it knows, if the other one may lack some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    insights: Option<BTreeMap<String, ClusterInsight>>,
    /// Whether it takes no insights from the other one.
    #[serde(default)]
    refuses: bool,
}

/// The insights of a cluster, on one node.
#[derive(Clone, Debug)]
pub struct ClusterInsights {
    node: Arc<str>,
    known: KnownInsights,
    /// Whether this node computes insights that were made on other nodes.
    is_willing: bool,
    /// The nodes that are connected.
    others: BTreeMap<Arc<str>, OtherNode>,
    parts: BTreeMap<String, OwnPart>,
    /// Grows whenever there is something to tell the other nodes.
    news: u64,
    /// Insights of other nodes that were refused.
    refused: u64,
}

/// A connected node.
#[derive(Clone, Debug, Default)]
struct OtherNode {
    offers: BTreeMap<String, InsightOffer>,
    /// The news that it has heard.
    told: Option<u64>,
    asked_ns: Option<i64>,
    /// Questions in a row to which it gave no answer.
    failures: u32,
    /// Whether it lacks insights that this node knows.
    is_behind: bool,
    /// Whether it takes no insights from this node.
    refuses: bool,
}

/// This node's part in an insight.
#[derive(Clone, Debug, Default)]
struct OwnPart {
    /// Streams in memory that it reads, and those of them that are this node's own.
    inputs: (u64, u64),
    /// Whether this node should compute it.
    is_wanted: bool,
    /// Whether this node computes it.
    runs: bool,
    /// The best node, and since when it is.
    best: Option<(Arc<str>, i64)>,
    /// Whether a node that computed it has gone, and nobody has taken it over yet.
    is_orphan: bool,
    /// The reason why it cannot be made here, and the time at which that is tried again.
    fault: Option<(String, i64)>,
}

/// The state of an insight of the cluster, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterInsightReport {
    /// Its name.
    pub name: String,
    /// Its statement, and where and when it was made.
    pub insight: ClusterInsight,
    /// The nodes that compute it: one, unless it is moving or the cluster was cut.
    pub runs_on: Vec<String>,
    /// The offers of the nodes.
    pub offers: BTreeMap<String, InsightOffer>,
    /// The reason why this node cannot compute it; empty if it can.
    pub fault: String,
}

impl ClusterInsights {
    /// Begins with the insights that an earlier life of this node has kept.
    pub fn new(node: &str, kept: BTreeMap<String, ClusterInsight>) -> Self {
        let mut known = KnownInsights::default();
        // What is kept was checked when it came; a later version of this program may refuse some of
        // it.
        let refused = known.merge(kept, u64::MAX);
        Self {
            node: node.into(),
            known,
            is_willing: false,
            others: BTreeMap::new(),
            parts: BTreeMap::new(),
            news: 0,
            refused,
        }
    }

    /// Has this node compute insights that were made on other nodes too, or only those that were
    /// made on it, as in the beginning.
    pub fn set_willing(&mut self, is_willing: bool) {
        self.is_willing = is_willing;
        self.news += 1;
    }

    /// The insights as they are to be kept on disk, with those that were dropped.
    pub fn kept(&self) -> &BTreeMap<String, ClusterInsight> {
        self.known.all()
    }

    /// Whether the cluster has an insight of this name.
    pub fn has(&self, name: &str) -> bool {
        self.known.is_live(name)
    }

    /// Insights of other nodes that were refused, because they are none or there is no room for
    /// them.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Makes an insight of the cluster, or replaces it. This node computes it until another is
    /// better.
    pub fn create(&mut self, name: &str, sql: &str, now_ns: i64) -> Result<(), InsightError> {
        let change = (Some(sql), &*Arc::clone(&self.node));
        self.known.change(name, change, milliseconds(now_ns))?;
        let part = self.parts.entry(name.to_owned()).or_default();
        (part.is_wanted, part.fault) = (true, None);
        self.news += 1;
        Ok(())
    }

    /// Drops an insight of the cluster, which must be there.
    pub fn drop(&mut self, name: &str, now_ns: i64) -> Result<(), InsightError> {
        let change = (None, &*Arc::clone(&self.node));
        self.known.change(name, change, milliseconds(now_ns))?;
        self.news += 1;
        Ok(())
    }

    /// Notes which other nodes are connected now.
    pub fn set_connected<'a>(&mut self, nodes: impl Iterator<Item = &'a Arc<str>>) {
        let mut before = std::mem::take(&mut self.others);
        for node in nodes {
            let other = before.remove(node).unwrap_or_default();
            self.others.insert(Arc::clone(node), other);
        }
        for (name, _) in before
            .values()
            .flat_map(|gone| &gone.offers)
            .filter(|(_, offer)| offer.runs)
        {
            if let Some(part) = self.parts.get_mut(name) {
                part.is_orphan = true;
            }
        }
    }

    /// Notes how many streams each insight reads in memory of this node: all, and this node's own.
    /// `count` gives both for the name of a table.
    pub fn set_inputs(&mut self, count: impl Fn(&str) -> (u64, u64)) {
        for (name, tables) in self.known.tables() {
            let add = |sum: (u64, u64), one: (u64, u64)| (sum.0 + one.0, sum.1 + one.1);
            let inputs = tables.iter().map(|table| count(table)).fold((0, 0), add);
            let part = self.parts.entry(name.clone()).or_default();
            if part.inputs != inputs {
                part.inputs = inputs;
                self.news += 1;
            }
        }
    }

    /// The insights by name, with the tables that each reads.
    pub fn tables(&self) -> &BTreeMap<String, Vec<String>> {
        self.known.tables()
    }

    /// Decides which insights this node computes; [`Self::wanted`] lists them.
    pub fn decide(&mut self, now_ns: i64) {
        let known = &self.known;
        self.parts.retain(|name, _| known.is_live(name));
        let names: Vec<String> = known.live().map(|(name, _)| name.clone()).collect();
        for name in names {
            self.parts.entry(name.clone()).or_default();
            let offers = self.offers(&name);
            let best = choice::best(&name, offers.iter().map(|(node, offer)| (node, *offer)));
            let is_runner =
                |(node, offer): (&Arc<str>, &InsightOffer)| offer.runs && *node != self.node;
            let is_elsewhere = offers.iter().any(is_runner);
            let runs_best = best.as_ref().is_some_and(|best| offers[best].runs);
            let (node, part) = (&self.node, self.parts.get_mut(&name).expect("it was made"));
            if part
                .fault
                .as_ref()
                .is_some_and(|(_, retry_ns)| now_ns >= *retry_ns)
            {
                part.fault = None;
            }
            let since_ns = match &part.best {
                Some((before, since_ns)) if Some(before) == best.as_ref() => *since_ns,
                _ => now_ns,
            };
            let is_settled = now_ns.saturating_sub(since_ns) >= SETTLE_NS;
            part.is_wanted = match &best {
                // Nobody can compute it.
                None => false,
                Some(best) if best == node => {
                    part.is_wanted || is_settled || (part.is_orphan && !is_elsewhere)
                }
                // The other one begins before this one ends.
                Some(_) => part.is_wanted && !runs_best,
            };
            part.is_orphan &= !is_elsewhere && !part.is_wanted;
            part.best = best.map(|best| (best, since_ns));
        }
    }

    /// The insights that this node should compute, with their statements.
    pub fn wanted(&self) -> BTreeMap<String, String> {
        let is_wanted = |name: &str| self.parts.get(name).is_some_and(|part| part.is_wanted);
        let wanted = self.known.live().filter(|(name, _)| is_wanted(name));
        wanted
            .map(|(name, sql)| (name.clone(), sql.to_owned()))
            .collect()
    }

    /// Notes that this node computes the insights of `wanted` now, apart from those with a fault.
    pub fn set_running(
        &mut self,
        wanted: &BTreeMap<String, String>,
        faults: &BTreeMap<String, String>,
        now_ns: i64,
    ) {
        for (name, part) in &mut self.parts {
            let fault = faults.get(name).filter(|_| wanted.contains_key(name));
            let runs = wanted.contains_key(name) && fault.is_none();
            if let Some(fault) = fault {
                part.fault = Some((fault.clone(), now_ns.saturating_add(RETRY_NS)));
                part.is_wanted = false;
            }
            if part.runs != runs || fault.is_some() {
                part.runs = runs;
                self.news += 1;
            }
        }
    }

    /// The messages that are to be sent now, with the nodes to which they go. Each is a question
    /// that the node answers.
    pub fn due(&mut self, now_ns: i64) -> Vec<(Vec<Arc<str>>, String)> {
        let news = self.news;
        let is_due = |other: &OtherNode| {
            let wait_ns = match other.told == Some(news) && !other.is_behind {
                true => AGAIN_NS,
                false => (NS_PER_S << other.failures.min(4)).min(AGAIN_NS),
            };
            other
                .asked_ns
                .is_none_or(|asked_ns| now_ns.saturating_sub(asked_ns) >= wait_ns)
        };
        let due = self.others.iter_mut().filter(|(_, other)| is_due(other));
        let mut due: Vec<(&Arc<str>, &mut OtherNode)> = due.collect();
        due.sort_by_key(|(_, other)| (other.told == Some(news), other.asked_ns));
        let (mut behind, mut others) = (Vec::new(), Vec::new());
        for (node, other) in due.into_iter().take(ASKED_MAX) {
            other.asked_ns = Some(now_ns);
            other.failures = other.failures.saturating_add(1);
            match other.is_behind && !other.refuses {
                true => behind.push(Arc::clone(node)),
                false => others.push(Arc::clone(node)),
            }
        }
        let messages = [(behind, true), (others, false)];
        let messages = messages.into_iter().filter(|(nodes, _)| !nodes.is_empty());
        let text = |(nodes, is_whole)| (nodes, self.message(is_whole, false));
        messages.map(text).collect()
    }

    /// The number of the news that messages made now have: see [`Self::answered`].
    pub fn news(&self) -> u64 {
        self.news
    }

    /// Takes in a message of another node, and returns the answer. `is_trusted` says whether
    /// insights may come from it.
    pub fn asked(
        &mut self,
        from: &str,
        (text, is_trusted): (&str, bool),
        now_ns: i64,
    ) -> Result<String, InsightError> {
        let message = read(text)?;
        let their_digest = message.digest.clone();
        self.take_in(from, message, is_trusted, now_ns);
        Ok(self.message(self.known.digest() != their_digest, !is_trusted))
    }

    /// Takes in the answer of another node to a message with these news.
    pub fn answered(
        &mut self,
        from: &str,
        (text, is_trusted): (&str, bool),
        news: u64,
        now_ns: i64,
    ) -> Result<(), InsightError> {
        let message = read(text)?;
        let (their_digest, refuses) = (message.digest.clone(), message.refuses);
        self.take_in(from, message, is_trusted, now_ns);
        let digest = self.known.digest();
        if let Some(other) = self.others.get_mut(from) {
            (other.told, other.failures, other.refuses) = (Some(news), 0, refuses);
            other.is_behind = digest != their_digest && !refuses;
        }
        Ok(())
    }

    /// The state of each insight.
    pub fn reports(&self) -> Vec<ClusterInsightReport> {
        let live = self.known.all().iter().filter(|(_, one)| one.sql.is_some());
        let report = |(name, insight): (&String, &ClusterInsight)| {
            let offers = self.offers(name).into_iter();
            let offers: BTreeMap<_, _> =
                offers.map(|(node, one)| (node.to_string(), one)).collect();
            let runs_on = offers.iter().filter(|(_, offer)| offer.runs);
            let fault = self.parts.get(name).and_then(|part| part.fault.as_ref());
            ClusterInsightReport {
                name: name.clone(),
                insight: insight.clone(),
                runs_on: runs_on.map(|(node, _)| node.clone()).collect(),
                fault: fault.map(|(fault, _)| fault.clone()).unwrap_or_default(),
                offers,
            }
        };
        live.map(report).collect()
    }

    fn take_in(&mut self, from: &str, message: ClusterMessage, is_trusted: bool, now_ns: i64) {
        if is_trusted && let Some(insights) = message.insights {
            let before = self.known.clone();
            self.refused += self.known.merge(insights, milliseconds(now_ns));
            if self.known != before {
                self.forget_replaced(&before);
                self.news += 1;
            }
        }
        if let Some(other) = self.others.get_mut(from) {
            let offers = message.offers.into_iter();
            let offers = offers.filter(|(name, _)| self.known.is_live(name));
            other.offers = offers.collect();
        }
    }

    /// Forgets the faults of statements that another node has replaced.
    fn forget_replaced(&mut self, before: &KnownInsights) {
        for (name, part) in &mut self.parts {
            if before.all().get(name) != self.known.all().get(name) {
                part.fault = None;
            }
        }
    }

    /// The offers of all nodes for an insight. A node that cannot compute it makes none.
    fn offers(&self, name: &str) -> BTreeMap<Arc<str>, InsightOffer> {
        let others = self.others.iter();
        let others =
            others.filter_map(|(node, other)| Some((Arc::clone(node), *other.offers.get(name)?)));
        let own = self
            .own_offer(name)
            .map(|offer| (Arc::clone(&self.node), offer));
        others.chain(own).collect()
    }

    fn own_offer(&self, name: &str) -> Option<InsightOffer> {
        let part = self.parts.get(name).filter(|part| part.fault.is_none())?;
        let is_mine = self
            .known
            .all()
            .get(name)
            .is_some_and(|one| *one.by == *self.node);
        (self.is_willing || is_mine).then_some(InsightOffer {
            inputs: part.inputs.0,
            own: part.inputs.1,
            runs: part.runs,
        })
    }

    fn message(&self, is_whole: bool, refuses: bool) -> String {
        let names = self.known.live().map(|(name, _)| name);
        let offer = |name: &String| Some((name.clone(), self.own_offer(name)?));
        let message = ClusterMessage {
            digest: self.known.digest(),
            offers: names.filter_map(offer).collect(),
            insights: is_whole.then(|| self.known.all().clone()),
            refuses,
        };
        serde_json::to_string(&message).expect("names and texts are JSON")
    }
}

fn read(text: &str) -> Result<ClusterMessage, InsightError> {
    serde_json::from_str(text)
        .map_err(|why| InsightError::statement(format!("no message about insights: {why}")))
}

fn milliseconds(now_ns: i64) -> u64 {
    u64::try_from(now_ns / NS_PER_MS).unwrap_or_default()
}

#[cfg(test)]
mod tests;
