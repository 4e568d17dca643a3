//! The system tables: what there is, how it is, what was lost.

use std::path::Path;
use std::sync::Arc;

use barograph_archive::{PartInfo, PartKind};
use barograph_model::NS_PER_S;
use barograph_stream::SegmentState;
use rusqlite::Result;
use serde_json::Value as Json;

use crate::error::{failed, internal};
use crate::functions::{FUNCTIONS, Wide, families, table_of};
use crate::listing::{Arguments, Batches, Cell, Listing, Row};
use crate::live::Live;
use crate::snapshot::Snapshot;
use crate::stream::Stream;

/// An agent whose heartbeat is older than this is not called live.
const SILENT_AFTER_NS: i64 = 5 * NS_PER_S;

/// All system tables.
pub(crate) static SYSTEM: [Listing; 8] = [
    Listing {
        name: "streams",
        kind: "system",
        help: "every stream: what it is and how it is kept",
        columns: &[
            ("name", "TEXT"),
            ("labels", "TEXT"),
            ("table_name", "TEXT"),
            ("type", "TEXT"),
            ("unit", "TEXT"),
            ("kind", "TEXT"),
            ("help", "TEXT"),
            ("id", "TEXT"),
            ("depth", "INTEGER"),
            ("samples", "INTEGER"),
            ("interval_ns", "INTEGER"),
            ("node", "TEXT"),
            ("slot", "INTEGER"),
            ("generation", "INTEGER"),
            ("created_ts", "INTEGER"),
        ],
        arguments: &[],
        produce: |live, _| per_stream(live, stream_row),
    },
    Listing {
        name: "latest",
        kind: "system",
        help: "the newest sample of every stream",
        columns: &[
            ("name", "TEXT"),
            ("labels", "TEXT"),
            ("ts", "INTEGER"),
            ("value", ""),
            ("quality", "TEXT"),
            ("error", "REAL"),
            ("node", "TEXT"),
            ("looked", "INTEGER"),
            ("age_ns", "INTEGER"),
            ("unit", "TEXT"),
        ],
        arguments: &[],
        produce: |live, _| {
            let now_ns = live.now_ns();
            per_stream(live, move |_, stream| latest_row(stream, now_ns))
        },
    },
    Listing {
        name: "tables",
        kind: "system",
        help: "every table and table function",
        columns: &[
            ("name", "TEXT"),
            ("columns", "TEXT"),
            ("kind", "TEXT"),
            ("help", "TEXT"),
        ],
        arguments: &[],
        produce: tables,
    },
    Listing {
        name: "nodes",
        kind: "system",
        help: "the nodes that are known here",
        columns: &[
            ("node", "TEXT"),
            ("state", "TEXT"),
            ("heartbeat_ts", "INTEGER"),
            ("age_ns", "INTEGER"),
            ("pid", "INTEGER"),
            ("incarnation", "TEXT"),
            ("streams", "INTEGER"),
            ("streams_max", "INTEGER"),
        ],
        arguments: &[],
        produce: nodes,
    },
    Listing {
        name: "loss",
        kind: "system",
        help: "what was refused or dropped, counted",
        columns: &[("what", "TEXT"), ("count", "INTEGER"), ("where", "TEXT")],
        arguments: &[],
        produce: loss,
    },
    Listing {
        name: "archive",
        kind: "system",
        help: "every part of the archive: log segments, and Parquet files of each tier",
        columns: &[
            ("node", "TEXT"),
            ("tier", "TEXT"),
            ("path", "TEXT"),
            ("rows", "INTEGER"),
            ("bytes", "INTEGER"),
            ("from_ts", "INTEGER"),
            ("to_ts", "INTEGER"),
            ("first", "INTEGER"),
            ("last", "INTEGER"),
            ("copied", "BOOLEAN"),
        ],
        arguments: &[],
        produce: archive,
    },
    Listing {
        name: "sources",
        kind: "system",
        help: "what each source of facts sees, and what is missing and why",
        columns: &[
            ("source", "TEXT"),
            ("state", "TEXT"),
            ("sees", "TEXT"),
            ("streams", "INTEGER"),
            ("missing", "TEXT"),
            ("polls", "INTEGER"),
            ("errors", "INTEGER"),
            ("cost_ns_mean", "REAL"),
            ("interval_ns", "INTEGER"),
            ("last_error", "TEXT"),
        ],
        arguments: &[],
        produce: |live, _| document(live, "sources.json", SYSTEM[6].columns),
    },
    Listing {
        name: "insights",
        kind: "system",
        help: "the insights: their SQL, their inputs and how they are",
        columns: &[
            ("name", "TEXT"),
            ("table", "TEXT"),
            ("sql", "TEXT"),
            ("builtin", "BOOLEAN"),
            ("unit", "TEXT"),
            ("help", "TEXT"),
            ("inputs", "TEXT"),
            ("groups", "INTEGER"),
            ("state", "TEXT"),
            ("reason", "TEXT"),
            ("remedy", "TEXT"),
            ("evaluations", "INTEGER"),
            ("cost_ns_mean", "REAL"),
        ],
        arguments: &[],
        produce: |live, _| document(live, "insights.json", SYSTEM[7].columns),
    },
];

fn one(rows: Vec<Row>) -> Batches {
    Box::new(std::iter::once(Ok(rows)))
}

fn per_stream(
    live: &Arc<Live>,
    row: impl Fn(&Snapshot, &Stream) -> Option<Row> + 'static,
) -> Result<Batches> {
    let snapshot = live.current().map_err(failed)?;
    let count = snapshot.streams.len();
    let rows =
        (0..count).map(move |i| Ok(row(&snapshot, &snapshot.streams[i]).into_iter().collect()));
    Ok(Box::new(rows))
}

fn stream_row(snapshot: &Snapshot, stream: &Stream) -> Option<Row> {
    let (entry, (_, held)) = (&stream.entry, stream.counts());
    Some(vec![
        stream.name().into(),
        stream.labels_json().into(),
        stream.table.as_str().into(),
        entry.descriptor.value_type.as_str().into(),
        stream.unit().into(),
        entry.descriptor.kind.as_str().into(),
        entry.descriptor.help.as_str().into(),
        entry.series.to_string().into(),
        i64::from(entry.depth).into(),
        (held as i64).into(),
        snapshot
            .segment
            .as_ref()
            .map_or(0, |segment| segment.interval_ns(entry))
            .into(),
        Arc::clone(&stream.node).into(),
        (entry.slot as i64).into(),
        i64::from(entry.generation).into(),
        entry.created_ns.into(),
    ])
}

fn latest_row(stream: &Stream, now_ns: i64) -> Option<Row> {
    let (sample, _) = stream.latest()?;
    let looked_ns = stream.looked_ns(sample.ts);
    Some(vec![
        stream.name().into(),
        stream.labels_json().into(),
        sample.ts.into(),
        (&sample.value).into(),
        sample.quality.as_str().into(),
        f64::from(sample.error).into(),
        Arc::clone(&stream.node).into(),
        looked_ns.into(),
        now_ns.saturating_sub(looked_ns).into(),
        stream.unit().into(),
    ])
}

fn tables(live: &Arc<Live>, _: &Arguments) -> Result<Batches> {
    let snapshot = live.current().map_err(failed)?;
    let shapes = &snapshot.schema.shapes;
    let metrics = shapes.iter().map(|(name, shape)| {
        let columns = shape.column_names().join(",");
        vec![
            name.as_str().into(),
            columns.into(),
            "metric".into(),
            shape.help.as_str().into(),
        ]
    });
    let wide = families(shapes.values()).into_iter().filter_map(|prefix| {
        let wide = Wide::grown(None, &prefix, shapes)?;
        let help = format!("family('{prefix}'): a row per time with a column per metric");
        Some(vec![
            format!("{}(start, stop, step)", table_of(&prefix)).into(),
            wide.column_names().join(",").into(),
            "family".into(),
            help.into(),
        ])
    });
    let listings = SYSTEM.iter().chain(&FUNCTIONS).map(|listing| {
        let columns: Vec<&str> = listing.columns.iter().map(|(name, _)| *name).collect();
        let call = match listing.arguments {
            [] => listing.name.to_owned(),
            arguments => format!("{}({})", listing.name, arguments.join(", ")),
        };
        vec![
            call.into(),
            columns.join(",").into(),
            listing.kind.into(),
            listing.help.into(),
        ]
    });
    Ok(one(metrics.chain(wide).chain(listings).collect()))
}

fn nodes(live: &Arc<Live>, _: &Arguments) -> Result<Batches> {
    let snapshot = live.attend().map_err(failed)?;
    let mut rows: Vec<Row> = Vec::new();
    if let Some(segment) = &snapshot.segment {
        let age_ns = live.now_ns().saturating_sub(segment.heartbeat_ns());
        let state = match segment.state() {
            SegmentState::Closed => "closed",
            SegmentState::Live if age_ns > SILENT_AFTER_NS => "silent",
            SegmentState::Live => "live",
        };
        rows.push(vec![
            Arc::clone(&snapshot.node).into(),
            state.into(),
            segment.heartbeat_ns().into(),
            age_ns.into(),
            (segment.pid() as i64).into(),
            segment.incarnation().to_string().into(),
            (snapshot.streams.len() as i64).into(),
            (segment.streams_max() as i64).into(),
        ]);
    }
    let mut archived: Vec<&Arc<str>> = snapshot.schema.nodes.values().flatten().collect();
    archived.sort();
    archived.dedup();
    for node in archived {
        if snapshot.segment.is_none() || *node != snapshot.node {
            let mut row: Row = vec![Arc::clone(node).into(), "archived".into()];
            row.resize(8, Cell::Null);
            rows.push(row);
        }
    }
    Ok(one(rows))
}

fn loss(live: &Arc<Live>, _: &Arguments) -> Result<Batches> {
    let view = live.past().map_err(failed)?;
    let snapshot = live.current().map_err(failed)?;
    let mut rows: Vec<Row> = Vec::new();
    if let (Some(segment), Some(run_dir)) = (&snapshot.segment, live.run_dir()) {
        rows.push(vec![
            "streams refused for lack of room".into(),
            (segment.refused() as i64).into(),
            run_dir.segment().display().to_string().into(),
        ]);
    }
    if let Some((reason, root)) = live.denied() {
        let what = format!("archives left out: {reason}: SQL has the newest samples alone");
        let place = root.map_or(Cell::Null, |root| root.display().to_string().into());
        rows.push(vec![what.into(), 1.into(), place]);
    }
    for fault in view.iter().flat_map(|view| view.faults()) {
        let what = format!("archives left out: {}", fault.reason);
        let place = fault.path.display().to_string();
        rows.push(vec![what.into(), 1.into(), place.into()]);
    }
    for (node, lost) in view.iter().flat_map(|view| view.losses()) {
        let what = [
            (
                "samples that found the archive's buffer full",
                lost.overflow_samples,
            ),
            (
                "samples whose write to the archive failed",
                lost.failed_samples,
            ),
            ("bytes of torn tails cut after crashes", lost.torn_bytes),
            (
                "samples shed from the archive before their time",
                lost.shed_samples,
            ),
            (
                "files of the archive with wrong checksums",
                lost.corrupt_files,
            ),
        ];
        rows.extend(what.into_iter().map(|(what, count)| {
            let place = format!("archive of {node}");
            vec![what.into(), (count as i64).into(), place.into()]
        }));
    }
    Ok(one(rows))
}

fn archive(live: &Arc<Live>, _: &Arguments) -> Result<Batches> {
    let Some(view) = live.past().map_err(failed)? else {
        let denied = live.denied().into_iter();
        let rows = denied.map(|(_, root)| unreadable(None, root.as_deref()));
        return Ok(one(rows.collect()));
    };
    let row = |part: PartInfo| -> Row {
        let tier = match part.kind {
            PartKind::Log => "log",
            PartKind::Parquet(tier) => tier.as_str(),
            PartKind::Memory => "memory",
        };
        vec![
            part.node.into(),
            tier.into(),
            part.path.display().to_string().into(),
            (part.rows as i64).into(),
            (part.bytes as i64).into(),
            part.span.from.into(),
            part.span.to.into(),
            (part.sequences.0 as i64).into(),
            (part.sequences.1 as i64).into(),
            i64::from(part.copied).into(),
        ]
    };
    let faults = view.faults().iter();
    let faults = faults.map(|fault| unreadable(Some(&fault.node), Some(&fault.path)));
    let parts = view.parts().into_iter().map(row);
    Ok(one(faults.chain(parts).collect()))
}

/// The row of what may be there and cannot be read; the table `loss` says why.
fn unreadable(node: Option<&Arc<str>>, path: Option<&Path>) -> Row {
    let path = path.map(|path| path.display().to_string());
    let mut row: Row = vec![
        node.map_or(Cell::Null, |node| Arc::clone(node).into()),
        "unreadable".into(),
        path.map_or(Cell::Null, Cell::from),
    ];
    row.resize(10, Cell::Null);
    row
}

/// The objects of a JSON list in the run directory; what is not a scalar in them stays JSON text.
fn document(
    live: &Arc<Live>,
    name: &'static str,
    columns: &'static [(&'static str, &'static str)],
) -> Result<Batches> {
    let list = objects(live, name)?;
    let row = |object: &Object| {
        columns
            .iter()
            .map(|(column, _)| json_cell(object.get(*column)))
            .collect()
    };
    Ok(one(list.iter().map(row).collect()))
}

type Object = serde_json::Map<String, Json>;

fn objects(live: &Live, name: &'static str) -> Result<Vec<Object>> {
    let document = live.run_dir().map(|run_dir| run_dir.document(name));
    let Some(bytes) = document.transpose().map_err(internal)?.flatten() else {
        return Ok(Vec::new()); // The agent has not written it yet, or there is none.
    };
    serde_json::from_slice(&bytes)
        .map_err(|e| internal(format!("the agent's {name} is damaged: {e}")))
}

/// Why the insight of this table has no streams, and so no table: what an unknown table may be.
#[cfg(feature = "bundled")]
pub(crate) fn insight_without_streams(live: &Live, table: &str) -> Option<String> {
    let insights = objects(live, "insights.json").ok()?;
    let text = |object: &Object, key: &str| Some(object.get(key)?.as_str()?.to_owned());
    let insight = insights.iter().find(|i| {
        i.get("table")
            .and_then(Json::as_str)
            .is_some_and(|t| t.eq_ignore_ascii_case(table))
    })?;
    let (name, state) = (text(insight, "name")?, text(insight, "state")?);
    let mut why = format!("the insight {name} is {state}");
    for (joint, key) in [(": ", "reason"), ("; what helps: ", "remedy")] {
        if let Some(words) = text(insight, key).filter(|words| !words.is_empty()) {
            why = why + joint + &words;
        }
    }
    Some(why)
}

fn json_cell(value: Option<&Json>) -> Cell {
    match value {
        None | Some(Json::Null) => Cell::Null,
        Some(Json::Bool(v)) => i64::from(*v).into(),
        Some(Json::Number(v)) => match v.as_i64() {
            Some(int) => int.into(),
            None => v.as_f64().into(),
        },
        Some(Json::String(v)) => v.as_str().into(),
        Some(nested) => nested.to_string().into(),
    }
}
