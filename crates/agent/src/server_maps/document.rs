//! What is published of server maps: rows for SQL, each for the user whose map it is.

use std::collections::BTreeMap;

use barograph_model::NS_PER_S;
use barograph_stream::{
    MAP_SERVERS_DOCUMENT, MapServersRow, RunDir, SERVER_MAPS_DOCUMENT, ServerMapsRow, user_name,
};

use super::{NodeMap, ServerMaps};
use crate::controller_words::{LedMapRow, MapKey};
use crate::reader_documents::ReaderDocuments;

/// Shortest time between two writes of the documents.
const DOCUMENT_NS: i64 = NS_PER_S;
/// Most rows of a document of one user.
const MAPS_MAX: usize = 256;
const SERVERS_MAX: usize = 4_096;

/// The documents of maps, as they were written last.
#[derive(Default)]
pub(crate) struct MapDocuments {
    maps: ReaderDocuments<ServerMapsRow>,
    servers: ReaderDocuments<MapServersRow>,
    due_ns: i64,
}

impl MapDocuments {
    /// Writes the documents, if that is due. Returns whether there are maps, so that this is to be
    /// called again.
    pub(crate) fn step(
        &mut self,
        maps: &ServerMaps,
        run_dir: &RunDir,
        our_uid: u32,
        now_ns: i64,
    ) -> bool {
        // What appears after the look wakes this again.
        maps.control().set_watched(false);
        let has_maps = maps.are_used() || maps.control().has_maps();
        maps.control().set_watched(has_maps);
        if now_ns < self.due_ns {
            return has_maps;
        }
        self.due_ns = now_ns.saturating_add(DOCUMENT_NS);
        let (leads, led) = maps.control().maps();
        let mut names: BTreeMap<u32, String> = BTreeMap::new();
        let mut user = |uid: u32| names.entry(uid).or_insert_with(|| user_name(uid)).clone();
        let control = maps.control();
        let rows: Vec<(Option<u32>, ServerMapsRow)> = match leads {
            true => {
                let row = |row: &LedMapRow| {
                    (
                        Some(row.user),
                        led_row(row, user(row.user), |age_ns| {
                            control.wall_ns_of(now_ns.saturating_sub(age_ns))
                        }),
                    )
                };
                led.iter().map(row).collect()
            }
            false => {
                let of = maps.maps();
                let row = |(key, map): (&MapKey, &NodeMap)| (Some(key.0), node_row(key, map));
                let mut rows: Vec<_> = of.maps.iter().map(row).collect();
                drop(of);
                for (uid, row) in &mut rows {
                    row.user = uid.map_or_else(String::new, &mut user);
                }
                rows
            }
        };
        let servers = led.iter().flat_map(|row| {
            let user = user(row.user);
            let rows = server_rows(row, &user).into_iter();
            rows.map(|it| (Some(row.user), it)).collect::<Vec<_>>()
        });
        let servers = servers.collect();
        self.maps
            .publish((run_dir, SERVER_MAPS_DOCUMENT), our_uid, rows, MAPS_MAX);
        let document = (run_dir, MAP_SERVERS_DOCUMENT);
        self.servers
            .publish(document, our_uid, servers, SERVERS_MAX);
        has_maps
    }
}

/// The row of a map that this node keeps as the leader. `ts` is the time of something of an age.
fn led_row(row: &LedMapRow, user: String, ts: impl Fn(i64) -> i64) -> ServerMapsRow {
    let last = row.changes.last();
    ServerMapsRow {
        name: row.name.clone(),
        user,
        application: row.application.clone(),
        seen_by: "leader".to_owned(),
        epoch: row.epoch,
        next_epoch: row.next_epoch,
        stage: row.stage.clone(),
        servers: row.servers.clone(),
        nodes: row.nodes as u64,
        members: row.members,
        running: row.running,
        operations_s: row.operations_s,
        out_servers: row.out_servers.clone(),
        gone_servers: row.gone_servers.clone(),
        slow_server: row.slow.map(|(server, ..)| server),
        slow_ratio: row.slow.map(|(_, ratio, _)| ratio),
        changed_ts: last.map(|end| ts(end.age_ns)),
        change_s: last.map(|end| end.took_ns as f64 / NS_PER_S as f64),
        aborted: last.and_then(|end| end.reason.clone()).unwrap_or_default(),
        ..ServerMapsRow::default()
    }
}

/// The row of a map that programs of this node use, and which another node keeps.
fn node_row(key: &MapKey, map: &NodeMap) -> ServerMapsRow {
    let said = map.node.word();
    let order = map.node.order();
    let next_epoch = order.map(|it| it.prepare).filter(|it| *it > said.epoch);
    let servers = order.map(|order| order.map.servers.iter());
    let servers = servers.into_iter().flatten();
    ServerMapsRow {
        name: key.1.clone(),
        application: map.application.clone(),
        seen_by: "node".to_owned(),
        epoch: said.epoch,
        next_epoch,
        stage: match (order, next_epoch) {
            (None, _) => "waits for the leader",
            (_, None) => "in force",
            _ => "waits for its members",
        }
        .to_owned(),
        servers: servers.filter_map(|it| u32::try_from(*it).ok()).collect(),
        nodes: 1,
        members: said.members,
        running: said.running,
        gone_servers: said
            .gone
            .iter()
            .filter_map(|(it, _)| u32::try_from(*it).ok())
            .collect(),
        ..ServerMapsRow::default()
    }
}

/// The rows of the servers of a map.
fn server_rows(row: &LedMapRow, user: &str) -> Vec<MapServersRow> {
    let moved: Vec<u32> = row.moved_servers.iter().map(|moved| moved.0).collect();
    let known = [
        &row.servers,
        &row.running_servers,
        &row.gone_servers,
        &moved,
    ];
    let mut servers: Vec<u32> = known.into_iter().flatten().copied().collect();
    servers.sort_unstable();
    servers.dedup();
    let loads: BTreeMap<u32, _> = row.loads.iter().map(|load| (load.server, load)).collect();
    let slow = row.slow.map(|(server, ratio, _)| (server, ratio));
    let of = servers.into_iter().map(|server| {
        let load = loads.get(&server);
        let state = match server {
            it if row.gone_servers.contains(&it) => "gone",
            it if moved.contains(&it) => "moved",
            it if row.servers.contains(&it) => "in the map",
            it if row.out_servers.contains(&it) => "taken out",
            _ => "spare",
        };
        MapServersRow {
            map: row.name.clone(),
            user: user.to_owned(),
            server,
            state: state.to_owned(),
            requests_s: load.map(|it| it.requests_s),
            service_s: load.and_then(|it| it.service_s),
            slow_ratio: slow
                .filter(|(slow, _)| *slow == u64::from(server))
                .map(|(_, ratio)| ratio),
            ..MapServersRow::default()
        }
    });
    of.collect()
}
