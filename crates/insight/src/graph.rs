//! The graph of insights: statements change it, samples run through it.
//!
//! It reads no clock, file or socket: samples and times are arguments, and results go to a
//! [`Sink`]. An insight runs at most once per [`Graph::evaluate`], after all insights that it
//! reads.

mod tell;
mod wanted;

use std::sync::Arc;

use barograph_model::{CLUSTER_PREFIX, Clock, Descriptor, Name, Sample, Sink, StreamKey, Unit};
use barograph_statement::StatementOutcome;
use barograph_statement::ast::Query;

use crate::insight::{Insight, InsightParts, InsightRun};
use crate::plan::InsightPlan;
use crate::report::InsightReport;
use crate::slot::{OVER_NODES, SlotStore, StreamSlot};
use crate::statement::{self, CreateInsight, InsightStatement};
use crate::{GraphLimits, InsightError, names};

/// Largest stream key that is followed. Keys are dense, so this only bounds the size of an index.
const KEYS_MAX: u32 = 1 << 22;
/// Entry of the index from keys to slots for a key without a slot.
const NO_SLOT: u32 = u32::MAX;

/// All insights of a node.
pub struct Graph {
    limits: GraphLimits,
    node: Arc<str>,
    clock: Option<Arc<dyn Clock>>,
    store: SlotStore,
    insights: Vec<Option<Insight>>,
    /// Insights in the order in which they run.
    order: Vec<u32>,
    /// The slot of each stream key.
    slot_of: Vec<u32>,
    /// Slots with a new sample.
    changed: Vec<u32>,
    /// Streams of replaced insights, to be retired.
    retiring: Vec<StreamKey>,
    ignored: u64,
}

impl Graph {
    /// Makes an empty graph.
    pub fn new(limits: GraphLimits) -> Self {
        Self {
            node: Arc::from(limits.node.as_str()),
            limits,
            clock: None,
            store: SlotStore::default(),
            insights: Vec::new(),
            order: Vec::new(),
            slot_of: Vec::new(),
            changed: Vec::new(),
            retiring: Vec::new(),
            ignored: 0,
        }
    }

    /// Gives the graph a clock to measure the cost of its insights; the clock decides nothing else.
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Carries out `CREATE INSIGHT …` or `DROP INSIGHT …`.
    pub fn execute(
        &mut self,
        sql: &str,
        sink: &mut dyn Sink,
    ) -> Result<StatementOutcome, InsightError> {
        match statement::parse(sql)? {
            InsightStatement::Create(create) => self
                .install(*create, sql, false)
                .map(StatementOutcome::Created),
            InsightStatement::Drop { name, if_exists } => self
                .remove(name, if_exists, sink)
                .map(StatementOutcome::Dropped),
        }
    }

    /// Returns what [`Graph::execute`] would do, from the text alone; the graph may still refuse
    /// it.
    pub fn intent(&self, sql: &str) -> Result<StatementOutcome, InsightError> {
        Ok(match statement::parse(sql)? {
            InsightStatement::Create(create) => StatementOutcome::Created(create.name.to_string()),
            InsightStatement::Drop { name, .. } => StatementOutcome::Dropped(name),
        })
    }

    /// Carries out `CREATE [OR REPLACE] INSIGHT name [UNIT 'u'] [HELP 'h'] AS SELECT …` and returns
    /// the insight's name. The insight has its first values at the next [`Graph::evaluate`].
    pub fn create(&mut self, sql: &str, builtin: bool) -> Result<String, InsightError> {
        match statement::parse(sql)? {
            InsightStatement::Create(create) => self.install(*create, sql, builtin),
            InsightStatement::Drop { .. } => Err(InsightError::statement(
                "expected CREATE INSIGHT, found DROP INSIGHT",
            )),
        }
    }

    /// Carries out `DROP INSIGHT [IF EXISTS] name`; the insight's streams are retired. A built-in
    /// insight, or one that others read, cannot be dropped.
    pub fn drop(&mut self, sql: &str, sink: &mut dyn Sink) -> Result<String, InsightError> {
        match statement::parse(sql)? {
            InsightStatement::Drop { name, if_exists } => self.remove(name, if_exists, sink),
            InsightStatement::Create(_) => Err(InsightError::statement(
                "expected DROP INSIGHT, found CREATE INSIGHT",
            )),
        }
    }

    pub(crate) fn store(&self) -> &SlotStore {
        &self.store
    }

    pub(crate) fn limits(&self) -> &GraphLimits {
        &self.limits
    }

    /// Announces a metric that may appear later, so that insights can already read it.
    pub fn know_metric(&mut self, name: &Name) {
        let table = self.store.table_or_new(name);
        self.store.tables[table as usize].known = true;
    }

    /// Adds a stream of another writer. A stream that has the name of an insight, or is beyond the
    /// bounds, is ignored and counted in [`Graph::ignored`].
    pub fn stream_added(&mut self, key: StreamKey, descriptor: &Descriptor) {
        self.stream_removed(key);
        let table = self.store.table(&descriptor.name.table());
        let taken = table.is_some_and(|t| self.store.tables[t as usize].made_by.is_some());
        if taken || key.0 >= KEYS_MAX {
            self.ignored += 1;
            return;
        }
        let table = self.store.table_or_new(&descriptor.name);
        let slot = self
            .store
            .add_slot(table, &descriptor.labels, descriptor.value_type);
        let at = key.0 as usize;
        if at >= self.slot_of.len() {
            self.slot_of.resize(at + 1, NO_SLOT);
        }
        self.slot_of[at] = slot;
        self.reserve();
        self.mark_readers_stale(table);
    }

    /// Removes a stream.
    pub fn stream_removed(&mut self, key: StreamKey) {
        let Some(slot) = self.slot_of.get_mut(key.0 as usize) else {
            return;
        };
        let slot = std::mem::replace(slot, NO_SLOT);
        if slot == NO_SLOT {
            return;
        }
        let table = self.store.remove_slot(slot);
        self.mark_readers_stale(table);
        self.store.drop_table_if_unused(table);
    }

    /// Sets the newest sample of a stream. Takes constant time and allocates nothing.
    pub fn sample(&mut self, key: StreamKey, sample: &Sample) {
        let Some(&slot) = self.slot_of.get(key.0 as usize) else {
            return;
        };
        let Some(state) = self.store.slots.get_mut(slot as usize) else {
            return;
        };
        state.newest = Some(sample.into());
        state.looked_ns = sample.ts;
        if !state.dirty && !state.readers.is_empty() {
            state.dirty = true;
            self.changed.push(slot);
        }
    }

    /// Notes a look at a stream that found its newest sample unchanged. Takes constant time.
    pub fn looked(&mut self, key: StreamKey, looked_ns: i64) {
        if let Some(slot) = self.slot_mut(key) {
            slot.looked_ns = looked_ns;
        }
    }

    /// Sets the interval between looks at a stream, in ns.
    pub fn interval(&mut self, key: StreamKey, interval_ns: i64) {
        if let Some(slot) = self.slot_mut(key) {
            slot.interval_ns = interval_ns;
        }
    }

    fn slot_mut(&mut self, key: StreamKey) -> Option<&mut StreamSlot> {
        let slot = *self.slot_of.get(key.0 as usize)?;
        self.store.slots.get_mut(slot as usize)
    }

    /// Passes the freshness of each insight's values to the sink: they are as fresh as their
    /// stalest input. Should be called about once a second, after [`Graph::evaluate`].
    pub fn confirm(&mut self, sink: &mut dyn Sink) {
        for &id in &self.order {
            if let Some(insight) = &mut self.insights[id as usize]
                && !insight.stale
            {
                insight.confirm(&mut self.store, sink);
            }
        }
    }

    /// Runs every insight that has something new to read, each once, and appends the results.
    pub fn evaluate(&mut self, now_ns: i64, sink: &mut dyn Sink) {
        for key in self.retiring.drain(..) {
            sink.retire(key);
        }
        self.reserve();
        self.pass_on();
        let mut since = self.clock.as_ref().map_or(0, |c| c.monotonic_ns());
        for at in 0..self.order.len() {
            let id = self.order[at] as usize;
            let Some(insight) = &mut self.insights[id] else {
                continue;
            };
            if !insight.dirty && !insight.stale {
                continue;
            }
            let mut run = InsightRun {
                store: &mut self.store,
                sink,
                limits: &self.limits,
                now_ns,
                changed: &mut self.changed,
                reshaped: false,
            };
            insight.run(&mut run);
            let (reshaped, table) = (run.reshaped, insight.table);
            if let Some(clock) = &self.clock {
                let until = clock.monotonic_ns();
                insight.cost_ns += u64::try_from(until - since).unwrap_or(0);
                since = until;
            }
            if reshaped {
                self.mark_readers_stale(table);
            }
            self.pass_on();
        }
    }

    /// Reports on all insights, in the order in which they run.
    pub fn reports(&self) -> Vec<InsightReport> {
        self.order
            .iter()
            .filter_map(|&id| self.report(id))
            .collect()
    }

    /// Returns the number of ignored streams: they have an insight's name, or are beyond the
    /// bounds.
    pub fn ignored(&self) -> u64 {
        self.ignored
    }

    /// Plans a SELECT. Tables over all nodes may be read before any node has been seen.
    fn plan(&mut self, query: &Query) -> Result<InsightPlan, InsightError> {
        loop {
            let plan = InsightPlan::new(query, &self.store, &self.node);
            let unknown = match &plan {
                Err(InsightError::UnknownInput { table, .. }) if self.limits.is_clustered => table,
                _ => return plan,
            };
            let metric = unknown.to_ascii_lowercase();
            let metric = metric.strip_prefix(OVER_NODES);
            let name =
                metric.and_then(|metric| Name::new(format!("{CLUSTER_PREFIX}{metric}")).ok());
            // A name whose table is another one would be asked for again.
            let name = name.filter(|name| self.store.table(&name.table()).is_none());
            match name {
                Some(name) => self.know_metric(&name),
                None => return plan,
            }
        }
    }

    fn install(
        &mut self,
        create: CreateInsight,
        sql: &str,
        builtin: bool,
    ) -> Result<String, InsightError> {
        let CreateInsight {
            name,
            or_replace,
            unit,
            help,
            query,
        } = create;
        let replaced = self.may_be_created(&name, or_replace, builtin)?;
        let plan = self.plan(&query).map_err(|e| match e {
            InsightError::UnknownInput { table, .. }
                if table.eq_ignore_ascii_case(&name.table()) =>
            {
                InsightError::Cycle {
                    path: vec![name.to_string(), name.to_string()],
                }
            }
            other => other,
        })?;
        let rank = self.rank(&plan);
        if let Some(old) = replaced {
            self.check_cycle(old, &name, &plan)?;
            self.check_readers_labels(old, &plan)?;
        }
        if rank > self.limits.depth_max {
            return Err(InsightError::limit(
                format!("insights on insights, {rank} deep"),
                self.limits.depth_max,
                "depth_max",
            ));
        }
        let unit = match unit {
            Some(unit) => unit,
            None => Unit::new(names::unit_of(&name))?,
        };
        let help = names::help(help.unwrap_or_else(|| query.to_string()));
        let freed = replaced.map_or_else(Vec::new, |old| self.take_out(old));
        let table = self.store.table_or_new(&name);
        let id = self.free_id();
        let state = &mut self.store.tables[table as usize];
        (state.made_by, state.columns) = (Some(id), plan.columns());
        for input in plan.tables() {
            self.store.tables[input as usize].readers.push(id);
        }
        let sql = sql.trim().to_owned();
        let parts = InsightParts {
            name: name.clone(),
            sql,
            builtin,
            unit,
            help,
            plan,
            table,
            rank,
        };
        self.insights[id as usize] = Some(Insight::new(id, parts));
        self.mark_readers_stale(table);
        freed
            .into_iter()
            .for_each(|t| self.store.drop_table_if_unused(t));
        self.sort();
        Ok(name.to_string())
    }

    /// Fails if the name is not free. Returns the insight that would be replaced, if there is one.
    fn may_be_created(
        &self,
        name: &Name,
        or_replace: bool,
        builtin: bool,
    ) -> Result<Option<u32>, InsightError> {
        let taken = |taken_by| {
            Err(InsightError::Taken {
                name: name.clone(),
                taken_by,
            })
        };
        if let Some(table) = self
            .store
            .table(&name.table())
            .map(|t| &self.store.tables[t as usize])
        {
            match table
                .made_by
                .and_then(|id| self.insights[id as usize].as_ref())
            {
                Some(old) if !or_replace || old.name != *name => {
                    return taken("an insight: choose another, or CREATE OR REPLACE it");
                }
                Some(old) if old.builtin && !builtin => {
                    return Err(InsightError::Builtin {
                        name: name.to_string(),
                    });
                }
                Some(old) => return Ok(Some(old.id)),
                None => return taken("a measured metric: choose another"),
            }
        }
        if self.order.len() >= self.limits.insights_max {
            return Err(InsightError::limit(
                "insights".into(),
                self.limits.insights_max,
                "insights_max",
            ));
        }
        Ok(None)
    }

    /// Fails if the new plan reads, directly or through others, the insight itself.
    fn check_cycle(&self, old: u32, name: &Name, plan: &InsightPlan) -> Result<(), InsightError> {
        let mut seen = vec![false; self.insights.len()];
        let mut todo: Vec<(u32, Vec<String>)> = self
            .inputs(plan)
            .map(|id| (id, vec![name.to_string()]))
            .collect();
        while let Some((id, mut path)) = todo.pop() {
            let Some(insight) = &self.insights[id as usize] else {
                continue;
            };
            path.push(insight.name.to_string());
            if id == old {
                return Err(InsightError::Cycle { path });
            }
            if !std::mem::replace(&mut seen[id as usize], true) {
                todo.extend(self.inputs(&insight.plan).map(|id| (id, path.clone())));
            }
        }
        Ok(())
    }

    /// Fails if a replacement lacks labels that other insights read.
    fn check_readers_labels(&self, old: u32, plan: &InsightPlan) -> Result<(), InsightError> {
        let Some(old) = &self.insights[old as usize] else {
            return Ok(());
        };
        let columns = plan.columns();
        for &reader in &self.store.tables[old.table as usize].readers {
            let Some(reader) = &self.insights[reader as usize] else {
                continue;
            };
            let used = reader.plan.labels_read(old.table);
            let lost = used
                .iter()
                .find(|l| !columns.iter().any(|c| c.eq_ignore_ascii_case(l)));
            if let Some(lost) = lost {
                return Err(InsightError::statement(format!(
                    "{} reads the label {lost} of {}: keep it, or drop {} first",
                    reader.name, old.name, reader.name
                )));
            }
        }
        Ok(())
    }

    /// Returns the insights that a plan reads.
    fn inputs(&self, plan: &InsightPlan) -> impl Iterator<Item = u32> {
        plan.tables()
            .into_iter()
            .filter_map(|t| self.store.tables[t as usize].made_by)
    }

    fn rank(&self, plan: &InsightPlan) -> usize {
        let ranks = self
            .inputs(plan)
            .filter_map(|id| self.insights[id as usize].as_ref());
        1 + ranks.map(|i| i.rank).max().unwrap_or(0)
    }

    fn remove(
        &mut self,
        name: String,
        if_exists: bool,
        sink: &mut dyn Sink,
    ) -> Result<String, InsightError> {
        let all = || self.insights.iter().flatten();
        let Some(insight) = all().find(|i| i.name.as_str() == name) else {
            if if_exists {
                return Ok(name);
            }
            let near = names::near(&name, all().map(|i| i.name.as_str()));
            return Err(InsightError::UnknownInsight { name, near });
        };
        if insight.builtin {
            return Err(InsightError::Builtin { name });
        }
        let readers = &self.store.tables[insight.table as usize].readers;
        if !readers.is_empty() {
            let named = readers
                .iter()
                .filter_map(|&id| self.insights[id as usize].as_ref());
            let readers = named.map(|i| i.name.to_string()).collect();
            return Err(InsightError::StillRead { name, readers });
        }
        let (id, table) = (insight.id, insight.table);
        let freed = self.take_out(id);
        freed
            .into_iter()
            .chain([table])
            .for_each(|t| self.store.drop_table_if_unused(t));
        self.sort();
        for key in self.retiring.drain(..) {
            sink.retire(key);
        }
        Ok(name)
    }

    /// Takes an insight out of the graph; returns the tables that it read, which may be unused now.
    fn take_out(&mut self, id: u32) -> Vec<u32> {
        let Some(mut insight) = self.insights[id as usize].take() else {
            return Vec::new();
        };
        insight.unhook(&mut self.store);
        self.retiring.extend(insight.end_outputs(&mut self.store));
        let own = &mut self.store.tables[insight.table as usize];
        own.made_by = None;
        own.columns.clear();
        self.mark_readers_stale(insight.table);
        let inputs = insight.plan.tables();
        for &table in &inputs {
            self.store.tables[table as usize]
                .readers
                .retain(|&r| r != id);
        }
        inputs
    }

    fn free_id(&mut self) -> u32 {
        let free = self.insights.iter().position(Option::is_none);
        free.unwrap_or_else(|| {
            self.insights.push(None);
            self.insights.len() - 1
        }) as u32
    }

    /// Computes ranks and order of the insights anew: each runs after all insights that it reads.
    fn sort(&mut self) {
        // An insight's rank depends only on lower ranks, so each round settles one more rank.
        for _ in 0..=self.insights.len() {
            let mut settled = true;
            for at in 0..self.insights.len() {
                let Some(insight) = &self.insights[at] else {
                    continue;
                };
                let rank = self.rank(&insight.plan);
                if rank != insight.rank
                    && let Some(insight) = &mut self.insights[at]
                {
                    insight.rank = rank;
                    settled = false;
                }
            }
            if settled {
                break;
            }
        }
        let mut order: Vec<(usize, u32)> = self
            .insights
            .iter()
            .flatten()
            .map(|i| (i.rank, i.id))
            .collect();
        order.sort_unstable();
        self.order = order.into_iter().map(|(_, id)| id).collect();
    }

    fn mark_readers_stale(&mut self, table: u32) {
        for &id in &self.store.tables[table as usize].readers {
            if let Some(insight) = &mut self.insights[id as usize] {
                insight.stale = true;
            }
        }
    }

    /// Marks the rows that read changed slots.
    fn pass_on(&mut self) {
        for slot in self.changed.drain(..) {
            let state = &mut self.store.slots[slot as usize];
            state.dirty = false;
            for reader in &state.readers {
                if let Some(insight) = &mut self.insights[reader.insight as usize] {
                    insight.mark(reader.branch, reader.row);
                }
            }
        }
    }

    /// Reserves memory for a change of every slot, so that `sample` need not allocate.
    fn reserve(&mut self) {
        let missing = self.store.slots.len().saturating_sub(self.changed.len());
        self.changed.reserve(missing);
    }
}
