//! The nodes of the cluster, worst first, as `baro top --nodes` shows them.

use anyhow::Context as _;
use barograph_client::Observer;
use barograph_model::SqlLimits;
use serde::Deserialize;
use serde_json::Value as Json;

/// One row for each node that is known, worst first: those that are not heard, saturated ones,
/// those whose sentence is not calm, the busiest.
const NODES: &str = "
    WITH known AS (SELECT node FROM nodes UNION SELECT node FROM peers),
    busy AS (
        SELECT node, labels ->> 'device' AS device, max(value) AS busy
        FROM latest WHERE name = 'disk.busy.ratio' GROUP BY node),
    said AS (SELECT node, value AS outlook FROM latest WHERE name = 'node.outlook.text'),
    lines AS (
        SELECT k.node, coalesce(p.state, 'here') AS state, p.heard_ts, p.round_trip_ns, b.device, b.busy, s.outlook
        FROM known k LEFT JOIN peers p ON p.node = k.node
        LEFT JOIN busy b ON b.node = k.node LEFT JOIN said s ON s.node = k.node)
    SELECT * FROM lines
    ORDER BY state IN ('here', 'connected'), busy < 0.9, outlook = 'calm', busy DESC, node";

/// A node of the cluster.
#[derive(Debug, Deserialize)]
pub(super) struct NodeLine {
    /// Its name.
    pub node: String,
    /// `here` for the node of the agent, otherwise `connected` or `gone`.
    pub state: String,
    /// Time of the newest frame, ns since the epoch.
    pub heard_ts: Option<i64>,
    /// The newest round trip, in ns.
    pub round_trip_ns: Option<i64>,
    /// The busiest device.
    pub device: Option<String>,
    /// Its busy share, 0 to 1.
    pub busy: Option<f64>,
    /// The sentence about the node's storage.
    pub outlook: Option<String>,
}

impl NodeLine {
    /// Whether what is known of the node is of now.
    pub(super) fn is_heard(&self) -> bool {
        matches!(&*self.state, "here" | "connected")
    }
}

/// The nodes, as rows of JSON.
pub(super) fn json(observer: &Observer) -> anyhow::Result<Json> {
    let rows = observer.sql(NODES, &SqlLimits::default())?;
    serde_json::from_slice(&rows.to_json_rows()).context("the rows cannot be read")
}

/// The nodes, worst first.
pub(super) fn nodes(observer: &Observer) -> anyhow::Result<Vec<NodeLine>> {
    serde_json::from_value(json(observer)?).context("the rows cannot be read")
}
