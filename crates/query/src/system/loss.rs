//! The table `loss`: samples and events that were lost, by reason and place.

use std::sync::Arc;

use barograph_archive::ArchiveLosses;
use barograph_stream::ingest::{LOSS_STREAM, LOST_STREAM};
use barograph_stream::{
    FORECASTS_DOCUMENT, ForecastsRow, PEERS_DOCUMENT, PUBLICATIONS_DOCUMENT, PeersRow,
    PublicationsRow, RunDir, SUBSCRIBERS_DOCUMENT, SubscribersRow,
};
use rusqlite::Result;

use crate::cell::{CellRow, CellValue};
use crate::documents::{rows_everywhere, rows_of};
use crate::error::failed;
use crate::listing::{Arguments, Batches, one, table};
use crate::live::Live;
use crate::snapshot::SnapshotPart;
use crate::stream::SnapshotStream;

table! {
    LOSS_COLUMNS, fn loss_row(what: &str, count: impl Into<CellValue>, place: impl Into<CellValue>),
    "what" "TEXT" = what;
    "count" "INTEGER" = count;
    "where" "TEXT" = place;
}

pub(super) fn loss(live: &Arc<Live>, _: &Arguments) -> Result<Batches> {
    let snapshot = live.past().map_err(failed)?;
    let row = |what: &str, count: u64, place: String| loss_row(what, count as i64, place);
    let own = live.run_dir().map(|run_dir| ("".into(), run_dir));
    let run_dirs: Vec<(Arc<str>, RunDir)> = own.into_iter().chain(live.scopes()).collect();
    let mut rows: Vec<CellRow> = Vec::new();
    for (reason, root) in live.archive_faults() {
        let what = format!("archives left out: {reason}: SQL has the newest samples alone");
        let place = root.map(|root| root.display().to_string());
        rows.push(loss_row(&what, 1, place));
    }
    for fault in snapshot.views().flat_map(|view| view.faults()) {
        let what = format!("archives left out: {}", fault.reason);
        rows.push(row(&what, 1, fault.path.display().to_string()));
    }
    for part in &snapshot.parts {
        let run_dir = run_dirs.iter().find(|(scope, _)| *scope == part.scope);
        if let (Some(segment), Some((_, run_dir))) = (part.segment(), run_dir) {
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
    rows.extend(snapshot.parts.first().and_then(lost_by_none));
    for (scope, run_dir) in live.scopes() {
        let place = format!("applications{}", of_scope(&scope));
        let part = snapshot.parts.iter().find(|part| part.scope == scope);
        let told = part.map(|part| counted_losses(part, &place));
        rows.extend(told.into_iter().flatten());
        let what = application_losses(rows_of(&run_dir, PUBLICATIONS_DOCUMENT)?).into_iter();
        // The agent may have no counts that outlast the lives of processes.
        let is_counted = part.is_some_and(|part| losses_of(part).next().is_some());
        let what = what.filter(|_| !is_counted);
        rows.extend(what.map(|(what, count)| row(what, count, place.clone())));
    }
    let peers: Vec<PeersRow> = match live.run_dir() {
        Some(run_dir) => rows_of(&run_dir, PEERS_DOCUMENT)?,
        None => Vec::new(),
    };
    rows.extend(peers.into_iter().map(|peer| {
        let place = format!("mirror of {}", peer.node);
        row(
            "samples of another node that are not mirrored",
            peer.missed,
            place,
        )
    }));
    let subscribers: Vec<SubscribersRow> = match live.run_dir() {
        Some(run_dir) => rows_of(&run_dir, SUBSCRIBERS_DOCUMENT)?,
        None => Vec::new(),
    };
    rows.extend(subscribers.into_iter().flat_map(|subscriber| {
        let place = format!("feed to {}{}", subscriber.node, of_scope(&subscriber.scope));
        let what = feed_losses(&subscriber).into_iter();
        let what = what.filter(|(_, count)| *count > 0);
        what.map(move |(what, count)| row(what, count, place.clone()))
    }));
    let forecasts = rows_everywhere(live, FORECASTS_DOCUMENT)?;
    let lost = forecast_losses(&forecasts).into_iter();
    rows.extend(lost.map(|(what, count)| row(what, count, FORECASTS_DOCUMENT.into())));
    Ok(one(rows))
}

/// The samples that were not sent to another node that wants them.
fn feed_losses(subscriber: &SubscribersRow) -> [(&'static str, u64); 5] {
    [
        (
            "samples overwritten before they could be sent to another node",
            subscriber.lost,
        ),
        (
            "streams at a time for which another node has no room: raise its cluster.streams_max",
            subscriber.unsent_streams_max,
        ),
        (
            "ended streams for which there was no room in the feed or at the other node",
            subscriber.ended_unsent,
        ),
        (
            "ended streams that the archive could not give for another node",
            subscriber.ended_unread,
        ),
        (
            "searches for ended streams that the archive could not do for another node",
            subscriber.searches_failed,
        ),
    ]
}

/// Losses of forecasts: streams and looks that should be forecast and are not.
fn forecast_losses(forecasts: &[ForecastsRow]) -> [(&'static str, u64); 2] {
    let sum = |count: fn(&ForecastsRow) -> u64| {
        let counts = forecasts.iter().map(count);
        counts.fold(0, u64::saturating_add)
    };
    [
        (
            "streams not forecast for lack of places",
            sum(|row| row.streams),
        ),
        (
            "looks that came too fast to be forecast",
            sum(|row| row.looks),
        ),
    ]
}

/// The scope in words; empty for the node's own.
fn of_scope(scope: &str) -> String {
    if scope.is_empty() {
        return String::new();
    }
    format!(", scope {scope}")
}

fn lost_by_none(own: &Arc<SnapshotPart>) -> Option<CellRow> {
    let mut streams = own.streams().iter();
    let stream = streams.find(|stream| stream.name() == LOST_STREAM)?;
    let (newest, _) = stream.latest()?;
    let what = "values of applications whose scope could not be opened";
    Some(loss_row(what, &newest.value, "applications"))
}

/// Descriptions by the label `cause` of [`LOSS_STREAM`].
const CAUSES: [(&str, &str); 4] = [
    ("missed", "records of applications written over unread"),
    ("dropped", "values that applications gave up"),
    (
        "refused",
        "values of applications whose declaration was refused",
    ),
    ("damaged", "records of applications that make no sense"),
];

fn losses_of(part: &SnapshotPart) -> impl Iterator<Item = (&'static str, &Arc<SnapshotStream>)> {
    let streams = part.streams().iter();
    let streams = streams.filter(|stream| stream.name() == LOSS_STREAM);
    streams.filter_map(|stream| {
        let cause = stream.entry.descriptor.labels.get("cause")?;
        let (_, what) = CAUSES.iter().find(|(of, _)| *of == cause)?;
        Some((*what, stream))
    })
}

/// The losses of a scope, by cause, publication and user.
fn counted_losses(part: &SnapshotPart, place: &str) -> Vec<CellRow> {
    let rows = losses_of(part).filter_map(|(what, stream)| {
        let (newest, _) = stream.latest()?;
        let labels = &stream.entry.descriptor.labels;
        let label = |name| labels.get(name).unwrap_or_default();
        let place = format!("{place}: {} of {}", label("publication"), label("user"));
        Some(loss_row(what, &newest.value, place))
    });
    rows.collect()
}

/// The losses of the processes that publish now. Each publication of a process has the same counts.
fn application_losses(mut processes: Vec<PublicationsRow>) -> [(&'static str, u64); 3] {
    processes.sort_by(|one, other| one.incarnation.cmp(&other.incarnation));
    processes.dedup_by(|one, other| one.incarnation == other.incarnation);
    let sum = |count: fn(&PublicationsRow) -> u64| {
        let counts = processes.iter().map(count);
        counts.fold(0, u64::saturating_add)
    };
    [
        (
            "records of applications written over unread",
            sum(|row| row.missed),
        ),
        ("values that applications gave up", sum(|row| row.dropped)),
        (
            "records of applications that make no sense",
            sum(|row| row.damaged),
        ),
    ]
}

fn archive_losses(lost: &ArchiveLosses) -> [(&'static str, u64); 5] {
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
