//! Which tables a connection has: the listings at once, each metric's table as it appears.
//!
//! A table is registered anew only when its columns change; streams that come and go are seen by the
//! scans themselves. A table whose streams have all gone stays, empty.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, Result};

use crate::error::internal;
use crate::functions::{FUNCTIONS, register_scalars};
use crate::listing::{Listing, ListingTable};
use crate::live::{Live, Snapshot, TableId};
use crate::metric::{MetricAux, MetricTable};
use crate::shape::Shape;
use crate::sqlite::register;
use crate::system::SYSTEM;

/// The tables of one connection.
pub(crate) struct Catalogue {
    live: Arc<Live>,
    seen: Option<Arc<Snapshot>>,
    names: Arc<Names>,
}

/// The names of registered metric tables, and the shape that each was registered with.
#[derive(Default)]
pub(crate) struct Names(Mutex<HashMap<String, Arc<Shape>>>);

impl Names {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<Shape>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a table of this name is ours; names are compared as SQLite does.
    #[cfg(feature = "bundled")]
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.lock().contains_key(name)
            || listing(name).is_some()
            || self.lock().contains_key(&name.to_ascii_lowercase())
    }

    /// All names, listings first.
    #[cfg(feature = "bundled")]
    pub(crate) fn all(&self) -> Vec<String> {
        let listings = listings().map(|l| l.name.to_owned());
        let mut metrics: Vec<String> = self.lock().keys().cloned().collect();
        metrics.sort();
        listings.chain(metrics).collect()
    }

    /// The columns of a table.
    #[cfg(feature = "bundled")]
    pub(crate) fn columns(&self, name: &str) -> Option<Vec<String>> {
        if let Some(listing) = listing(name) {
            return Some(
                listing
                    .columns
                    .iter()
                    .map(|(name, _)| (*name).to_owned())
                    .collect(),
            );
        }
        self.lock()
            .get(&name.to_ascii_lowercase())
            .map(|shape| shape.column_names())
    }
}

fn listings() -> impl Iterator<Item = &'static Listing> {
    SYSTEM.iter().chain(&FUNCTIONS)
}

fn listing(name: &str) -> Option<&'static Listing> {
    listings().find(|listing| listing.name.eq_ignore_ascii_case(name))
}

impl Catalogue {
    /// Registers what is always there, and the metrics of now.
    pub(crate) fn new(connection: &Connection, live: &Arc<Live>) -> Result<Self> {
        for listing in listings() {
            register::<ListingTable>(connection, listing.name, (Arc::clone(live), listing))?;
        }
        register_scalars(connection, live)?;
        let mut catalogue = Self {
            live: Arc::clone(live),
            seen: None,
            names: Arc::default(),
        };
        let snapshot = live.current().map_err(internal)?;
        catalogue.follow(connection, &snapshot)?;
        Ok(catalogue)
    }

    /// The names of the metric tables, as they grow.
    #[cfg(feature = "bundled")]
    pub(crate) fn names(&self) -> Arc<Names> {
        Arc::clone(&self.names)
    }

    /// Registers tables that are new or have new columns; whether there were any.
    pub(crate) fn follow(
        &mut self,
        connection: &Connection,
        snapshot: &Arc<Snapshot>,
    ) -> Result<bool> {
        if self
            .seen
            .as_ref()
            .is_some_and(|seen| Arc::ptr_eq(seen, snapshot))
        {
            return Ok(false);
        }
        let mut changed = false;
        let prefix = identifier(&snapshot.node);
        for (table, shape) in &snapshot.shapes {
            let id = snapshot.table_id(table);
            // A system table keeps its name; the metric is still found as `<node>_<metric>`.
            if listing(table).is_none() {
                changed |= self.add(connection, table, id, shape, None)?;
            }
            let alias = format!("{prefix}_{table}");
            if !snapshot.shapes.contains_key(&alias) && listing(&alias).is_none() {
                changed |= self.add(connection, &alias, id, shape, Some(&snapshot.node))?;
            }
        }
        self.seen = Some(Arc::clone(snapshot));
        Ok(changed)
    }

    fn add(
        &self,
        connection: &Connection,
        name: &str,
        table: TableId,
        shape: &Arc<Shape>,
        node: Option<&Arc<str>>,
    ) -> Result<bool> {
        if self
            .names
            .lock()
            .get(name)
            .is_some_and(|known| Arc::ptr_eq(known, shape))
        {
            return Ok(false);
        }
        let aux = MetricAux {
            live: Arc::clone(&self.live),
            shape: Arc::clone(shape),
            table,
            node: node.cloned(),
        };
        register::<MetricTable>(connection, name, aux)?;
        self.names.lock().insert(name.to_owned(), Arc::clone(shape));
        Ok(true)
    }
}

/// A node's name as the beginning of a table's name.
fn identifier(node: &str) -> String {
    let fold = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_lowercase()
        } else {
            '_'
        }
    };
    node.chars().map(fold).collect()
}

#[cfg(test)]
mod tests {
    use super::identifier;

    #[test]
    fn nodes_become_identifiers() {
        assert_eq!(identifier("Node-1.cluster"), "node_1_cluster");
        assert_eq!(identifier("node_1"), "node_1");
        assert_eq!(identifier("é"), "_");
    }
}
