//! Changes a graph so that it has exactly the wanted insights, at the start and at each reload.
//!
//! This is separate from single statements because the order of the insights is not given: an
//! insight that reads another can only be made after it, and dropped before it.

use std::collections::BTreeMap;

use barograph_model::Sink;

use super::Graph;
use crate::InsightError;
use crate::statement::{self, InsightStatement};

impl Graph {
    /// Makes the insights of these statements, by name, the only ones besides the built-in ones.
    /// Insights with an unchanged statement continue undisturbed; those with another statement are
    /// replaced. Returns the insights that could not be changed, with the errors.
    pub fn become_these(
        &mut self,
        wanted: &BTreeMap<String, String>,
        sink: &mut dyn Sink,
    ) -> Vec<(String, InsightError)> {
        let made = || self.insights.iter().flatten().filter(|i| !i.builtin);
        let mut gone: Vec<String> = made()
            .map(|insight| insight.name.to_string())
            .filter(|name| !wanted.contains_key(name))
            .collect();
        let stays = |(name, sql): &(&String, &String)| {
            made().any(|i| i.name.as_str() == *name && i.sql == sql.trim())
        };
        let mut left: Vec<(&String, &String)> = wanted.iter().filter(|w| !stays(w)).collect();
        loop {
            let before = gone.len() + left.len();
            left.retain(|(name, sql)| self.make(name, sql).is_err());
            gone.retain(|name| self.remove(name.clone(), false, sink).is_err());
            if gone.len() + left.len() == before {
                break;
            }
        }
        let left = left.into_iter().filter_map(|(name, sql)| {
            let error = self.make(name, sql).err()?;
            Some((name.clone(), error))
        });
        let mut faults: Vec<_> = left.collect();
        for name in gone {
            if let Err(error) = self.remove(name.clone(), false, sink) {
                faults.push((name, error));
            }
        }
        faults
    }

    /// Makes the insight of a statement, in place of one with the same name.
    fn make(&mut self, name: &str, sql: &str) -> Result<(), InsightError> {
        match statement::parse(sql)? {
            InsightStatement::Create(mut create) if create.name.as_str() == name => {
                create.or_replace = true;
                self.install(*create, sql, false).map(drop)
            }
            InsightStatement::Create(create) => {
                let message = format!("it makes {}", create.name);
                Err(InsightError::statement(message))
            }
            InsightStatement::Drop { .. } => {
                Err(InsightError::statement("it is no CREATE INSIGHT"))
            }
        }
    }
}
