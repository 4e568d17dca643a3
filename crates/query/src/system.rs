//! The system tables: what there is, how it is, what was lost.

use std::path::Path;
use std::sync::Arc;

use barograph_archive::{Losses, PartInfo, PartKind};
use barograph_model::NS_PER_S;
use barograph_stream::{RunDir, SegmentState};
use rusqlite::Result;
use serde_json::Value as Json;

use crate::documents::{
    Object, calls, document, everywhere, objects, objects_everywhere, per_scope,
};
use crate::error::failed;
use crate::functions::{FUNCTIONS, Form, Wide, families, publications as publications_of};
use crate::latest;
use crate::listing::{Arguments, Batches, Cell, Listing, Row};
use crate::live::Live;
use crate::policies::POLICIES;
use crate::snapshot::{Part, Snapshot};
use crate::stream::Stream;

/// An agent whose heartbeat is older than this is not called live.
const SILENT_AFTER_NS: i64 = 5 * NS_PER_S;

/// What a scope's agent writes of what is published there.
const PUBLICATIONS: &str = "publications.json";
const CALLS: &str = "calls.json";
const KNOBS: &str = "knobs.json";
const FORECASTS: &str = "forecasts.json";

/// All system tables.
pub(crate) static SYSTEM: [Listing; 14] = [
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
        help: "the newest sample of every stream, or of those that match; with allow_predicted => 1 what is expected of now where that is forecast",
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
        arguments: &["pattern", "allow_predicted"],
        produce: latest::latest,
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
    Listing {
        name: "publications",
        kind: "system",
        help: "what applications publish now; counts of values are those of the process",
        columns: &[
            ("scope", "TEXT"),
            ("name", "TEXT"),
            ("labels", "TEXT"),
            ("application", "TEXT"),
            ("user", "TEXT"),
            ("pid", "INTEGER"),
            ("incarnation", "TEXT"),
            ("started_ts", "INTEGER"),
            ("values", "INTEGER"),
            ("frame", "INTEGER"),
            ("taken", "INTEGER"),
            ("lost", "INTEGER"),
            ("missed", "INTEGER"),
            ("dropped", "INTEGER"),
            ("damaged", "INTEGER"),
            ("refused", "INTEGER"),
            ("refusal", "TEXT"),
            ("newest_ts", "INTEGER"),
            ("left_out", "INTEGER"),
        ],
        arguments: &[],
        produce: |live, _| per_scope(live, PUBLICATIONS, SYSTEM[8].columns),
    },
    Listing {
        name: "triggers",
        kind: "system",
        help: "calls into running programs, the newest of each user: triggers fired, knobs set",
        columns: &[
            ("scope", "TEXT"),
            ("id", "INTEGER"),
            ("ts", "INTEGER"),
            ("name", "TEXT"),
            ("kind", "TEXT"),
            ("user", "TEXT"),
            ("publications", "TEXT"),
            ("target", "TEXT"),
            ("incarnation", "TEXT"),
            ("payload", "TEXT"),
            ("payload_bytes", "INTEGER"),
            ("at_frame", "INTEGER"),
            ("by_user", "INTEGER"),
            ("by_pid", "INTEGER"),
            ("via", "TEXT"),
            ("expires_ts", "INTEGER"),
            ("matched", "INTEGER"),
            ("acknowledged", "INTEGER"),
            ("failed", "INTEGER"),
            ("refused", "INTEGER"),
            ("late", "INTEGER"),
            ("expired", "INTEGER"),
            ("gone", "INTEGER"),
            ("state", "TEXT"),
            ("last_ack_ts", "INTEGER"),
        ],
        arguments: &[],
        produce: |live, _| calls(live, CALLS, SYSTEM[9].columns),
    },
    Listing {
        name: "knobs",
        kind: "system",
        help: "values of running programs that may be set, with their bounds",
        columns: &[
            ("scope", "TEXT"),
            ("publication", "TEXT"),
            ("name", "TEXT"),
            ("labels", "TEXT"),
            ("type", "TEXT"),
            ("min", ""),
            ("max", ""),
            ("unit", "TEXT"),
            ("value", ""),
            ("ts", "INTEGER"),
            ("help", "TEXT"),
            ("application", "TEXT"),
            ("user", "TEXT"),
            ("pid", "INTEGER"),
            ("incarnation", "TEXT"),
        ],
        arguments: &[],
        produce: |live, _| per_scope(live, KNOBS, SYSTEM[10].columns),
    },
    Listing {
        name: "declared_triggers",
        kind: "system",
        help: "the triggers made by CREATE TRIGGER: their SQL, what they call and how they are",
        columns: &[
            ("name", "TEXT"),
            ("call", "TEXT"),
            ("sql", "TEXT"),
            ("help", "TEXT"),
            ("state", "TEXT"),
            ("reason", "TEXT"),
            ("subjects", "INTEGER"),
            ("holding", "INTEGER"),
            ("beyond", "INTEGER"),
            ("left_out", "INTEGER"),
            ("fired", "INTEGER"),
            ("suppressed", "INTEGER"),
            ("failed", "INTEGER"),
            ("missed", "INTEGER"),
            ("evaluations", "INTEGER"),
            ("made_ts", "INTEGER"),
            ("last_fired_ts", "INTEGER"),
        ],
        arguments: &[],
        produce: |live, _| document(live, "declared_triggers.json", SYSTEM[11].columns),
    },
    Listing {
        name: "forecasts",
        kind: "system",
        help: "who predicts each stream that is forecast at each horizon, why, and how well of late",
        columns: &[
            ("name", "TEXT"),
            ("labels", "TEXT"),
            ("horizon_ns", "INTEGER"),
            ("step_ns", "INTEGER"),
            ("follows", "TEXT"),
            ("reason", "TEXT"),
            ("since_step", "INTEGER"),
            ("steps", "INTEGER"),
            ("switches", "INTEGER"),
            ("compared", "INTEGER"),
            ("confidence", "REAL"),
            ("coverage", "REAL"),
            ("error", "REAL"),
            ("credit", "REAL"),
            ("losses", "TEXT"),
        ],
        arguments: &[],
        produce: |live, _| everywhere(live, FORECASTS, SYSTEM[12].columns),
    },
    POLICIES,
];

pub(crate) fn one(rows: Vec<Row>) -> Batches {
    Box::new(std::iter::once(Ok(rows)))
}

pub(crate) fn per_stream(
    live: &Arc<Live>,
    row: impl Fn(&Snapshot, &Stream) -> Option<Row> + 'static,
) -> Result<Batches> {
    let snapshot = live.attend().map_err(failed)?;
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
        snapshot.interval_ns(entry).into(),
        Arc::clone(&stream.node).into(),
        (entry.slot as i64).into(),
        i64::from(entry.generation).into(),
        entry.created_ns.into(),
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
    let wide = |form: Form, name: &str, what: &str| -> Option<Row> {
        let wide = Wide::grown(None, form, name, shapes)?;
        let (word, arguments) = (form.word(), form.arguments().join(", "));
        Some(vec![
            format!("{}({arguments})", form.table_of(name)).into(),
            wide.column_names().join(",").into(),
            word.into(),
            format!("{word}('{name}'): {what}").into(),
        ])
    };
    let families = families(shapes.values()).into_iter().filter_map(|name| {
        let what = "a row per time with a column per metric";
        wide(Form::Family, &name, what)
    });
    let frames = publications_of(shapes.values()).into_iter();
    let frames = frames.filter_map(|name| {
        let what = "a row per frame with a column per value";
        wide(Form::Frames, &name, what)
    });
    let listings = SYSTEM.iter().chain(&FUNCTIONS).map(|listing| {
        let columns: Vec<&str> = listing.columns.iter().map(|(name, _)| *name).collect();
        // A system table that may be called is a table all the same.
        let call = match (listing.kind, listing.arguments) {
            ("system", _) | (_, []) => listing.name.to_owned(),
            (_, arguments) => format!("{}({})", listing.name, arguments.join(", ")),
        };
        vec![
            call.into(),
            columns.join(",").into(),
            listing.kind.into(),
            listing.help.into(),
        ]
    });
    let rows = metrics.chain(families).chain(frames).chain(listings);
    Ok(one(rows.collect()))
}

fn nodes(live: &Arc<Live>, _: &Arguments) -> Result<Batches> {
    let snapshot = live.attend().map_err(failed)?;
    let mut rows: Vec<Row> = Vec::new();
    let own = snapshot.own();
    if let Some(segment) = &own.segment {
        let now_ns = live.now_ns();
        let age_ns = now_ns.saturating_sub(segment.heartbeat_ns());
        let state = match segment.state() {
            SegmentState::Closed => "closed",
            SegmentState::Live if segment.is_alive(now_ns, SILENT_AFTER_NS) => "live",
            SegmentState::Live => "silent",
        };
        rows.push(vec![
            Arc::clone(&own.node).into(),
            state.into(),
            segment.heartbeat_ns().into(),
            age_ns.into(),
            (segment.pid() as i64).into(),
            segment.incarnation().to_string().into(),
            (own.streams.len() as i64).into(),
            (segment.streams_max() as i64).into(),
        ]);
    }
    let mut archived: Vec<&Arc<str>> = snapshot.schema.nodes.values().flatten().collect();
    archived.sort();
    archived.dedup();
    for node in archived {
        if own.segment.is_none() || *node != own.node {
            let mut row: Row = vec![Arc::clone(node).into(), "archived".into()];
            row.resize(8, Cell::Null);
            rows.push(row);
        }
    }
    Ok(one(rows))
}

fn loss(live: &Arc<Live>, _: &Arguments) -> Result<Batches> {
    let snapshot = live.past().map_err(failed)?;
    let row = |what: &str, count: u64, place: String| -> Row {
        vec![what.into(), (count as i64).into(), place.into()]
    };
    let own = live.run_dir().map(|run_dir| ("".into(), run_dir));
    let run_dirs: Vec<(Arc<str>, RunDir)> = own.into_iter().chain(live.scopes()).collect();
    let mut rows: Vec<Row> = Vec::new();
    for (reason, root) in live.archive_faults() {
        let what = format!("archives left out: {reason}: SQL has the newest samples alone");
        let place = root.map_or(Cell::Null, |root| root.display().to_string().into());
        rows.push(vec![what.into(), 1.into(), place]);
    }
    for fault in snapshot.views().flat_map(|view| view.faults()) {
        let what = format!("archives left out: {}", fault.reason);
        rows.push(row(&what, 1, fault.path.display().to_string()));
    }
    for part in &snapshot.parts {
        let run_dir = run_dirs.iter().find(|(scope, _)| *scope == part.scope);
        if let (Some(segment), Some((_, run_dir))) = (&part.segment, run_dir) {
            let place = run_dir.segment().display().to_string();
            rows.push(row(
                "streams refused for lack of room",
                segment.refused(),
                place,
            ));
        }
        let losses = part.view.iter().flat_map(|view| view.losses());
        rows.extend(losses.flat_map(|(node, lost)| {
            let place = format!("archive of {node}{}", of_scope(&part.scope));
            let what = archive_losses(&lost).into_iter();
            what.map(move |(what, count)| row(what, count, place.clone()))
        }));
    }
    for (scope, run_dir) in live.scopes() {
        let place = format!("applications{}", of_scope(&scope));
        let part = snapshot.parts.iter().find(|part| part.scope == scope);
        let told = part.map(|part| counted_losses(part, &place));
        rows.extend(told.into_iter().flatten());
        let what = application_losses(&objects(&run_dir, PUBLICATIONS)?).into_iter();
        // Of an agent that has counted nothing beyond the lives of processes.
        let is_counted = part.is_some_and(|part| losses_of(part).next().is_some());
        let what = what.filter(|_| !is_counted);
        rows.extend(what.map(|(what, count)| row(what, count, place.clone())));
    }
    let forecasts = objects_everywhere(live, FORECASTS)?;
    let lost = forecast_losses(&forecasts).into_iter();
    rows.extend(lost.map(|(what, count)| row(what, count, FORECASTS.into())));
    Ok(one(rows))
}

/// What is meant to be forecast and is not.
fn forecast_losses(forecasts: &[Object]) -> [(&'static str, u64); 2] {
    let sum = |key: &str| {
        let counts = forecasts.iter().filter_map(|o| o.get(key)?.as_u64());
        counts.fold(0, u64::saturating_add)
    };
    [
        ("streams not forecast for lack of places", sum("streams")),
        ("looks that came too fast to be forecast", sum("looks")),
    ]
}

/// Which scope something is of, in words.
fn of_scope(scope: &str) -> String {
    if scope.is_empty() {
        return String::new();
    }
    format!(", scope {scope}")
}

/// The stream of what was put and is not there, since a scope's archive began.
const LOSS: &str = "app.process.loss.count";

/// By the label `cause` of [`LOSS`].
const CAUSES: [(&str, &str); 4] = [
    ("missed", "records of applications written over unread"),
    ("dropped", "values that applications gave up"),
    (
        "refused",
        "values of applications whose declaration was refused",
    ),
    ("damaged", "records of applications that make no sense"),
];

fn losses_of(part: &Part) -> impl Iterator<Item = (&'static str, &Arc<Stream>)> {
    let streams = part.streams.iter().filter(|stream| stream.name() == LOSS);
    streams.filter_map(|stream| {
        let cause = stream.entry.descriptor.labels.get("cause")?;
        let (_, what) = CAUSES.iter().find(|(of, _)| *of == cause)?;
        Some((*what, stream))
    })
}

/// What a scope has lost, by cause, publication and user.
fn counted_losses(part: &Part, place: &str) -> Vec<Row> {
    let rows = losses_of(part).filter_map(|(what, stream)| {
        let (newest, _) = stream.latest()?;
        let labels = &stream.entry.descriptor.labels;
        let label = |name| labels.get(name).unwrap_or_default();
        let place = format!("{place}: {} of {}", label("publication"), label("user"));
        Some(vec![what.into(), (&newest.value).into(), place.into()])
    });
    rows.collect()
}

/// What the processes that publish now have lost. Their counts are in each of their publications.
fn application_losses(publications: &[Object]) -> [(&'static str, u64); 3] {
    let process = |object: &Object| object.get("incarnation").map(Json::to_string);
    let mut processes = publications.iter().collect::<Vec<_>>();
    processes.sort_by_key(|object| process(object));
    processes.dedup_by_key(|object| process(object));
    let sum = |key: &str| {
        let counts = processes.iter().filter_map(|o| o.get(key)?.as_u64());
        counts.fold(0, u64::saturating_add)
    };
    [
        ("records of applications written over unread", sum("missed")),
        ("values that applications gave up", sum("dropped")),
        ("records of applications that make no sense", sum("damaged")),
    ]
}

fn archive_losses(lost: &Losses) -> [(&'static str, u64); 5] {
    [
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
    ]
}

fn archive(live: &Arc<Live>, _: &Arguments) -> Result<Batches> {
    let snapshot = live.past().map_err(failed)?;
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
    let denied = live.archive_faults().into_iter();
    let denied = denied.map(|(_, root)| unreadable(None, root.as_deref()));
    let faults = snapshot.views().flat_map(|view| view.faults());
    let faults = faults.map(|fault| unreadable(Some(&fault.node), Some(&fault.path)));
    let parts = snapshot.views().flat_map(|view| view.parts()).map(row);
    Ok(one(denied.chain(faults).chain(parts).collect()))
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
