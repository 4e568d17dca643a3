//! The insights of a cluster that a node knows: every node has the same ones once it has heard from
//! the others, whatever the order of their messages.
//!
//! Of two changes of one insight the later one counts. A dropped insight is remembered, so that a
//! node that was away does not bring it back.

use std::collections::BTreeMap;

use barograph_model::{NAME_BYTES_MAX, Name, fnv1a};
use barograph_statement::{StatementAction, StatementHead, StatementKind};
use serde::{Deserialize, Serialize};

use crate::{InsightError, TestQuery};

/// Most insights of a cluster.
pub const CLUSTER_INSIGHTS_MAX: usize = 64;
/// Most dropped insights that are remembered.
const DROPPED_MAX: usize = 64;
/// Most bytes of all insights as nodes send them, in JSON.
const BYTES_MAX: usize = 56 << 10;
/// Most milliseconds by which the time of a change may be ahead of this node's clock.
const AHEAD_MS_MAX: u64 = 24 * 3_600_000;
/// Beginning of the names of tables over all nodes.
const OVER_NODES: &str = "cluster_";

/// An insight of the cluster, as nodes tell it to each other and keep it on disk.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ClusterInsight {
    /// Time of the newest change, in ms since the epoch by the clock of the node that made it;
    /// later than every change that this node knew.
    pub version: u64,
    /// Name of the node on which the change was made.
    pub by: String,
    /// The CREATE statement; `None` if the insight was dropped.
    pub sql: Option<String>,
}

/// The insights of a cluster by name, with those that were dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KnownInsights {
    all: BTreeMap<String, ClusterInsight>,
    /// The tables that each insight reads.
    tables: BTreeMap<String, Vec<String>>,
}

impl KnownInsights {
    pub(crate) fn all(&self) -> &BTreeMap<String, ClusterInsight> {
        &self.all
    }

    /// The insights that are not dropped, with their statements.
    pub(crate) fn live(&self) -> impl Iterator<Item = (&String, &str)> {
        let all = self.all.iter();
        all.filter_map(|(name, insight)| Some((name, insight.sql.as_deref()?)))
    }

    pub(crate) fn is_live(&self, name: &str) -> bool {
        self.all.get(name).is_some_and(|one| one.sql.is_some())
    }

    /// The tables that each insight reads, by name.
    pub(crate) fn tables(&self) -> &BTreeMap<String, Vec<String>> {
        &self.tables
    }

    /// A number that differs for different insights.
    pub(crate) fn digest(&self) -> String {
        format!("{:016x}", fnv1a(self.json().as_bytes()))
    }

    /// Makes, replaces or drops an insight on this node. Nothing changes on an error.
    pub(crate) fn change(
        &mut self,
        name: &str,
        (sql, by): (Option<&str>, &str),
        now_ms: u64,
    ) -> Result<(), InsightError> {
        let newest = self.all.values().map(|one| one.version).max();
        let insight = ClusterInsight {
            version: now_ms.max(newest.unwrap_or_default() + 1),
            by: by.to_owned(),
            sql: sql.map(|sql| sql.trim().to_owned()),
        };
        self.put(name.to_owned(), insight)
    }

    /// Takes in what another node knows. Returns how many of them were refused: they are no
    /// insights, or there is no room for them.
    pub(crate) fn merge(&mut self, theirs: BTreeMap<String, ClusterInsight>, now_ms: u64) -> u64 {
        let mut refused = 0;
        for (name, insight) in theirs {
            if self.all.get(&name).is_some_and(|known| *known >= insight) {
                continue;
            }
            let is_sound = insight.version <= now_ms.saturating_add(AHEAD_MS_MAX)
                && insight.by.len() <= NAME_BYTES_MAX;
            if !is_sound || self.put(name, insight).is_err() {
                refused += 1;
            }
        }
        refused
    }

    /// Takes in an insight that is sound and for which there is room. Nothing changes on an error.
    fn put(&mut self, name: String, insight: ClusterInsight) -> Result<(), InsightError> {
        let tables = match &insight.sql {
            Some(sql) => Some(tables_of(&name, sql)?),
            None => Name::new(name.as_str()).map(|_| None)?,
        };
        let before = self.all.insert(name.clone(), insight);
        if let Some(error) = self.excess() {
            match before {
                Some(before) => self.all.insert(name, before),
                None => self.all.remove(&name),
            };
            return Err(error);
        }
        match tables {
            Some(tables) => self.tables.insert(name, tables),
            None => self.tables.remove(&name),
        };
        self.forget_dropped();
        Ok(())
    }

    /// The bound that is exceeded, if one is.
    fn excess(&self) -> Option<InsightError> {
        let live = self.live().count();
        if live > CLUSTER_INSIGHTS_MAX {
            let what = format!("{live} insights of the cluster");
            return Some(InsightError::limit(
                what,
                CLUSTER_INSIGHTS_MAX,
                "CLUSTER_INSIGHTS_MAX",
            ));
        }
        let bytes = self.json().len();
        (bytes > BYTES_MAX).then(|| {
            let what = format!("{bytes} bytes of insights of the cluster");
            InsightError::limit(what, BYTES_MAX, "BYTES_MAX")
        })
    }

    /// Forgets the dropped insights that are too many, oldest first.
    fn forget_dropped(&mut self) {
        let dropped = self.all.iter().filter(|(_, one)| one.sql.is_none());
        let mut dropped: Vec<(u64, String)> = dropped
            .map(|(name, one)| (one.version, name.clone()))
            .collect();
        if dropped.len() <= DROPPED_MAX {
            return;
        }
        dropped.sort_unstable();
        for (_, name) in &dropped[..dropped.len() - DROPPED_MAX] {
            self.all.remove(name);
        }
    }

    fn json(&self) -> String {
        serde_json::to_string(&self.all).expect("names and texts are JSON")
    }
}

/// The tables that the statement of an insight reads. Fails unless it makes an insight of the
/// cluster of this name, and reads tables over all nodes alone: on another node any other table has
/// other contents.
fn tables_of(name: &str, sql: &str) -> Result<Vec<String>, InsightError> {
    let head = StatementHead::read(sql)?;
    let is_create = matches!(head.action, StatementAction::Create { .. });
    if !is_create || head.kind != StatementKind::Insight || !head.on_cluster || head.name != name {
        return Err(InsightError::statement(
            "expected CREATE INSIGHT name ON CLUSTER AS SELECT …",
        ));
    }
    Name::new(name)?;
    let tables = TestQuery::parse(sql)?.tables().to_vec();
    let is_table = |table: &String| Name::new(table.as_str()).is_ok();
    if let Some(table) = tables.iter().find(|table| !is_table(table)) {
        return Err(InsightError::statement(format!(
            "no metric has the table {table}"
        )));
    }
    match tables.iter().find(|table| !table.starts_with(OVER_NODES)) {
        Some(table) => Err(InsightError::statement(format!(
            "an insight of the cluster reads tables over all nodes, such as {OVER_NODES}{table}; {table} is of \
             one node"
        ))),
        None if tables.is_empty() => Err(InsightError::statement(
            "an insight of the cluster reads at least one table over all nodes, such as \
             cluster_disk_busy_ratio",
        )),
        None => Ok(tables),
    }
}
