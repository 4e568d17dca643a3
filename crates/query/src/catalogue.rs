//! The tables of a connection: all listings from the start, and the table of each metric as it
//! appears.
//!
//! A table is registered again only if its columns change; scans themselves notice streams that
//! come and go. A table whose streams are all gone stays, empty.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, Result};

use crate::error::failed;
#[cfg(feature = "bundled")]
use crate::functions::FAMILIES_MAX;
use crate::functions::{
    FUNCTIONS, Wide, WideForm, families, publications, register_scalars, wide_table,
};
use crate::listing::{Callable, Listing, ListingTable};
use crate::live::Live;
use crate::metric::{MetricAux, MetricTable};
use crate::shape::MetricShape;
use crate::snapshot::{Schema, StreamsSnapshot, over_nodes};
use crate::sqlite::register;
use crate::system::SYSTEM;

/// Most nodes of an archive whose metrics have their own tables; others are selected by `node`.
const NODE_TABLES_MAX: usize = 64;

/// The tables of one connection.
pub(crate) struct Catalogue {
    live: Arc<Live>,
    seen: Option<Arc<Schema>>,
    /// Families and frames that statements named by more than a first word.
    asked: Vec<(WideForm, String)>,
    names: Arc<TableNames>,
    /// Tables that were registered, or registered again, since [`Self::take_new`].
    #[cfg(feature = "loadable")]
    new: Mutex<Vec<String>>,
}

/// The names of registered tables other than listings, each with its columns.
#[derive(Default)]
pub(crate) struct TableNames(Mutex<HashMap<String, Registered>>);

/// The columns with which a table was registered.
#[derive(Clone)]
enum Registered {
    Metric(Arc<MetricShape>),
    Family(Arc<Wide>),
}

impl TableNames {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Registered>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether one of our tables has this name; names are compared as SQLite does.
    #[cfg(feature = "bundled")]
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.lock().contains_key(name)
            || listing(name).is_some()
            || self.lock().contains_key(&name.to_ascii_lowercase())
    }

    /// All names of tables, listings first.
    #[cfg(feature = "bundled")]
    pub(crate) fn all(&self) -> Vec<String> {
        let listings = listings().map(|l| l.name.to_owned());
        let mut metrics: Vec<String> = self.lock().keys().cloned().collect();
        metrics.sort();
        listings.chain(metrics).collect()
    }

    /// The column names of a table.
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
            .map(|registered| match registered {
                Registered::Metric(shape) => shape.column_names(),
                Registered::Family(wide) => wide.column_names(),
            })
    }
}

fn listings() -> impl Iterator<Item = &'static Listing> {
    SYSTEM.iter().chain(&FUNCTIONS)
}

fn listing(name: &str) -> Option<&'static Listing> {
    listings().find(|listing| listing.name.eq_ignore_ascii_case(name))
}

impl Catalogue {
    /// Registers the listings and the present metrics.
    pub(crate) fn new(connection: &Connection, live: &Arc<Live>) -> Result<Self> {
        for listing in listings() {
            let callable = Arc::new(Callable::from(listing));
            register::<ListingTable>(connection, listing.name, (Arc::clone(live), callable))?;
        }
        register_scalars(connection, live)?;
        let mut catalogue = Self {
            live: Arc::clone(live),
            seen: None,
            asked: Vec::new(),
            names: Arc::default(),
            #[cfg(feature = "loadable")]
            new: Mutex::new(SYSTEM.iter().map(|l| l.name.to_owned()).collect()),
        };
        let snapshot = live.current().map_err(failed)?;
        catalogue.follow(connection, &snapshot)?;
        Ok(catalogue)
    }

    /// The names of the tables, shared; they grow with the catalogue.
    #[cfg(feature = "bundled")]
    pub(crate) fn names(&self) -> Arc<TableNames> {
        Arc::clone(&self.names)
    }

    /// The tables registered since the last call, except functions and tables named after a node.
    #[cfg(feature = "loadable")]
    pub(crate) fn take_new(&mut self) -> Vec<String> {
        std::mem::take(self.new.get_mut().unwrap_or_else(PoisonError::into_inner))
    }

    #[cfg(feature = "loadable")]
    fn note(&self, name: &str) {
        let mut new = self.new.lock().unwrap_or_else(PoisonError::into_inner);
        new.push(name.to_owned());
    }

    #[cfg(not(feature = "loadable"))]
    fn note(&self, _: &str) {}

    /// Registers tables that are new or have new columns; returns whether there were any.
    pub(crate) fn follow(
        &mut self,
        connection: &Connection,
        snapshot: &Arc<StreamsSnapshot>,
    ) -> Result<bool> {
        let schema = &snapshot.schema;
        let is_seen = |seen: &Arc<Schema>| Arc::ptr_eq(seen, schema);
        if self.seen.as_ref().is_some_and(is_seen) {
            return Ok(false);
        }
        let mut changed = false;
        for (table, shape) in schema.metrics() {
            // A system table keeps its name; a metric of the same name is found as
            // `<node>_<metric>`.
            if listing(table).is_none() {
                changed |= self.add(connection, schema, table, table, shape, None)?;
            }
            let nodes = schema.nodes.get(table).map_or(&[][..], Vec::as_slice);
            for node in nodes.iter().take(NODE_TABLES_MAX) {
                let alias = format!("{}_{table}", identifier(node));
                if !schema.shapes.contains_key(&alias) && listing(&alias).is_none() {
                    changed |= self.add(connection, schema, &alias, table, shape, Some(node))?;
                }
            }
        }
        changed |= self.add_over_nodes(connection, schema)?;
        let of_form =
            |form: WideForm, names: Vec<String>| names.into_iter().map(move |n| (form, n));
        let families = of_form(WideForm::Family, families(schema.everywhere()));
        let publications = of_form(WideForm::Frames, publications(schema.everywhere()));
        let asked = self.asked.clone();
        for (form, name) in families.chain(publications).chain(asked) {
            changed |= self.add_family(connection, schema, form, &name)?;
        }
        self.seen = Some(Arc::clone(schema));
        Ok(changed)
    }

    /// Registers `cluster_<metric>` for each metric, as soon as another node is mirrored, and
    /// `<node>_<metric>` for the mirrored nodes; returns whether any was new.
    fn add_over_nodes(&self, connection: &Connection, schema: &Schema) -> Result<bool> {
        let mut changed = false;
        for (metric, table, shape) in schema.over_nodes() {
            let name = format!("cluster_{metric}");
            if !schema.shapes.contains_key(&name) && listing(&name).is_none() {
                changed |= self.add(connection, schema, &name, table, shape, None)?;
            }
            let own = schema.nodes.get(metric).map_or(&[][..], Vec::as_slice);
            let nodes = schema.nodes.get(table).map_or(&[][..], Vec::as_slice);
            let others = nodes.iter().filter(|node| !own.contains(node));
            for node in others.take(NODE_TABLES_MAX) {
                let alias = format!("{}_{metric}", identifier(node));
                if !schema.shapes.contains_key(&alias) && listing(&alias).is_none() {
                    changed |= self.add(connection, schema, &alias, table, shape, Some(node))?;
                }
            }
        }
        Ok(changed)
    }

    /// Registers a family, or the frames of a publication, that a statement names; returns whether
    /// it exists.
    #[cfg(feature = "bundled")]
    pub(crate) fn ask_family(
        &mut self,
        connection: &Connection,
        form: WideForm,
        name: &str,
    ) -> Result<bool> {
        let table = form.table_of(name);
        let is_it = |registered: &Registered| match registered {
            Registered::Family(wide) => wide.form == form && wide.name == name,
            Registered::Metric(_) => false,
        };
        if self.names.lock().get(&table).is_some_and(is_it) {
            return Ok(true);
        }
        let Some(schema) = self.seen.clone() else {
            return Ok(false);
        };
        if self.asked.len() >= FAMILIES_MAX {
            return Err(crate::error::too_large(format!(
                "more than {FAMILIES_MAX} families were asked for: ask for their first words"
            )));
        }
        let is_there = self.add_family(connection, &schema, form, name)?;
        if is_there {
            self.asked.push((form, name.to_owned()));
        }
        Ok(is_there)
    }

    fn add_family(
        &self,
        connection: &Connection,
        schema: &Schema,
        form: WideForm,
        name: &str,
    ) -> Result<bool> {
        let table = form.table_of(name);
        if schema.shapes.contains_key(&table) || listing(&table).is_some() {
            return Ok(false);
        }
        let old = match self.names.lock().get(&table) {
            Some(Registered::Family(wide)) if wide.name == name => Some(Arc::clone(wide)),
            Some(_) => return Ok(false),
            None => None,
        };
        let Some(grown) = Wide::grown(old.as_deref(), form, name, &schema.shapes) else {
            return Ok(false);
        };
        let wide = Arc::new(grown);
        let callable = Arc::new(wide_table(&wide, &table));
        register::<ListingTable>(connection, &table, (Arc::clone(&self.live), callable))?;
        self.note(&table);
        self.names.lock().insert(table, Registered::Family(wide));
        Ok(true)
    }

    fn add(
        &self,
        connection: &Connection,
        schema: &Schema,
        name: &str,
        table: &str,
        shape: &Arc<MetricShape>,
        node: Option<&Arc<str>>,
    ) -> Result<bool> {
        let is_known = |registered: &Registered| match registered {
            Registered::Metric(known) => Arc::ptr_eq(known, shape),
            Registered::Family(_) => false,
        };
        if self.names.lock().get(name).is_some_and(is_known) {
            return Ok(false);
        }
        let (metric, is_over_nodes) = over_nodes(table);
        let aux = MetricAux {
            live: Arc::clone(&self.live),
            shape: Arc::clone(shape),
            table: schema.table_id(table),
            name: metric.into(),
            is_over_nodes,
            node: node.cloned(),
        };
        register::<MetricTable>(connection, name, aux)?;
        if node.is_none() {
            self.note(name);
        }
        let registered = Registered::Metric(Arc::clone(shape));
        self.names.lock().insert(name.to_owned(), registered);
        Ok(true)
    }
}

/// Turns a node's name into the beginning of a table's name.
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
