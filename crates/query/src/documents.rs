//! System tables made from the agent's documents: JSON lists in a run directory, and in those of
//! its scopes.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::sync::Arc;

use barograph_stream::{DocumentColumns, RunDir, SCOPE_OF_ALL, StreamError};
use rusqlite::Result;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use crate::cell::{CellRow, CellValue};
use crate::error::{failed, internal, usage};
use crate::listing::{Batches, one};
use crate::live::Live;

/// The rows of a document in the run directory; nested values become JSON text.
pub(crate) fn document(
    live: &Arc<Live>,
    name: &'static str,
    columns: DocumentColumns,
) -> Result<Batches> {
    let Some(run_dir) = live.run_dir() else {
        return Ok(one(Vec::new()));
    };
    let list: Vec<Object> = rows_of(&run_dir, name)?;
    Ok(one(list.iter().map(|o| cells(o, columns)).collect()))
}

/// The cells of an object, by the names of the columns.
pub(crate) fn cells(object: &Object, columns: DocumentColumns) -> CellRow {
    let cell = |(column, _): &(&str, &str)| json_cell(object.get(*column));
    columns.iter().map(cell).collect()
}

/// The rows of a document in the run directory of each scope.
pub(crate) fn per_scope(
    live: &Arc<Live>,
    name: &'static str,
    columns: DocumentColumns,
) -> Result<Batches> {
    if let Some(run_dir) = live.run_dir() {
        check_is_here(&run_dir)?;
    }
    live.attend().map_err(failed)?;
    let mut rows = Vec::new();
    for (scope, run_dir) in live.scopes() {
        let list: Vec<Object> = rows_of(&run_dir, name)?;
        rows.extend(list.iter().map(|object| {
            // The scope's name is that of its directory, not the one in the document.
            let mut row = cells(object, columns);
            row[0] = Arc::clone(&scope).into();
            row
        }));
    }
    Ok(one(rows))
}

/// The rows of a document in the run directory of each scope, and of that in the agent's own, which
/// has no scope and which its user alone may read.
pub(crate) fn private_and_per_scope(
    live: &Arc<Live>,
    name: &'static str,
    columns: DocumentColumns,
) -> Result<Batches> {
    let of_scopes = per_scope(live, name, columns)?;
    let Some(run_dir) = live.run_dir().filter(|_| live.reads_for_itself()) else {
        return Ok(of_scopes);
    };
    let is_denied = |error: &StreamError| match error {
        StreamError::Io { source, .. } => source.kind() == ErrorKind::PermissionDenied,
        _ => false,
    };
    match run_dir.document(name) {
        Err(error) if is_denied(&error) => Ok(of_scopes),
        _ => {
            let list: Vec<Object> = rows_of(&run_dir, name)?;
            let own = one(list.iter().map(|o| cells(o, columns)).collect());
            Ok(Box::new(own.chain(of_scopes)))
        }
    }
}

/// The rows of a document in the run directory and in that of each scope.
pub(crate) fn everywhere(
    live: &Arc<Live>,
    name: &'static str,
    columns: DocumentColumns,
) -> Result<Batches> {
    live.attend().map_err(failed)?;
    let list: Vec<Object> = rows_everywhere(live, name)?;
    Ok(one(list.iter().map(|o| cells(o, columns)).collect()))
}

/// The rows of a document in the run directory and in that of each scope, before they are cells.
pub(crate) fn rows_everywhere<T: DeserializeOwned>(
    live: &Arc<Live>,
    name: &'static str,
) -> Result<Vec<T>> {
    let scopes = live.scopes();
    let scopes = scopes.into_iter().map(|(_, run_dir)| run_dir);
    let mut all = Vec::new();
    for run_dir in live.run_dir().into_iter().chain(scopes) {
        all.extend(rows_of(&run_dir, name)?);
    }
    Ok(all)
}

/// The rows of a document of calls in each scope. A call may be in the scope of all and in that of
/// its user, which may show more of it; then only the user's row is returned.
pub(crate) fn calls(
    live: &Arc<Live>,
    name: &'static str,
    columns: DocumentColumns,
) -> Result<Batches> {
    if let Some(run_dir) = live.run_dir() {
        check_is_here(&run_dir)?;
    }
    live.attend().map_err(failed)?;
    let mut all = Vec::new();
    for (scope, run_dir) in live.scopes() {
        let list: Vec<Object> = rows_of(&run_dir, name)?;
        all.extend(list.into_iter().map(|object| (Arc::clone(&scope), object)));
    }
    let which = |object: &Object| {
        let user = object.get("user")?.as_str()?.to_owned();
        Some((user, object.get("id")?.as_u64()?))
    };
    let own = all.iter().filter(|(scope, _)| &**scope != SCOPE_OF_ALL);
    let told: HashSet<_> = own.filter_map(|(_, object)| which(object)).collect();
    let is_twice = |scope: &str, object: &Object| {
        scope == SCOPE_OF_ALL && which(object).is_some_and(|call| told.contains(&call))
    };
    let once = all
        .iter()
        .filter(|(scope, object)| !is_twice(scope, object));
    let rows = once.map(|(scope, object)| {
        let mut row = cells(object, columns);
        row[0] = Arc::clone(scope).into();
        row
    });
    Ok(one(rows.collect()))
}

type Object = serde_json::Map<String, Json>;

/// The rows of a document, before they are cells.
pub(crate) fn rows_of<T: DeserializeOwned>(run_dir: &RunDir, name: &'static str) -> Result<Vec<T>> {
    check_is_here(run_dir)?;
    let Some(bytes) = run_dir.document(name).map_err(internal)? else {
        return Ok(Vec::new()); // The agent has not written it yet.
    };
    serde_json::from_slice(&bytes)
        .map_err(|e| internal(format!("the agent's {name} is damaged: {e}")))
}

/// Refuses to answer from the documents of another node, since only its streams are mirrored: an
/// answer without rows would say that it has no losses, no insights and no rules.
fn check_is_here(run_dir: &RunDir) -> Result<()> {
    match run_dir.mirrored_node() {
        None => Ok(()),
        Some(node) => Err(usage(format!(
            "the streams of {node} are mirrored here, and this table is not: ask the node itself \
             (`baro sql --nodes {node}`)"
        ))),
    }
}

/// The reason why an insight has no streams, and so no table, if `table` is an insight's.
#[cfg(feature = "bundled")]
pub(crate) fn insight_without_streams(live: &Live, table: &str) -> Option<String> {
    let rows = rows_of(&live.run_dir()?, barograph_stream::INSIGHTS_DOCUMENT);
    let insights: Vec<barograph_stream::InsightsRow> = rows.ok()?;
    let insight = insights
        .into_iter()
        .find(|insight| insight.table.eq_ignore_ascii_case(table))?;
    let mut why = format!("the insight {} is {}", insight.name, insight.state);
    for (joint, words) in [(": ", insight.reason), ("; what helps: ", insight.remedy)] {
        if !words.is_empty() {
            why = why + joint + &words;
        }
    }
    Some(why)
}

fn json_cell(value: Option<&Json>) -> CellValue {
    match value {
        None | Some(Json::Null) => CellValue::Null,
        Some(Json::Bool(v)) => i64::from(*v).into(),
        Some(Json::Number(v)) => match v.as_i64() {
            Some(int) => int.into(),
            None => v.as_f64().into(),
        },
        Some(Json::String(v)) => v.as_str().into(),
        Some(nested) => nested.to_string().into(),
    }
}
