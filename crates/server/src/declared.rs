//! The triggers and policies that people declare: `CREATE TRIGGER …`, `CREATE POLICY …`, and the lists of them.
//!
//! Apart from the other requests: what a trigger calls has files of its own.

use axum::extract::{RawQuery, State};

use crate::api::{Answer, Asking, JSON, Shared};
use crate::params::Params;

/// What the agent writes of them.
const TRIGGERS: &str = "declared_triggers.json";
const POLICIES: &str = "policies.json";

/// `GET /api/v1/triggers`
pub async fn triggers(State(app): Shared, asking: Asking, RawQuery(query): RawQuery) -> Answer {
    Params::parse(query.as_deref(), &[])?;
    app.render(asking, JSON, |app, _| app.list_document(TRIGGERS))
        .await
}

/// `GET /api/v1/policies`
pub async fn policies(State(app): Shared, asking: Asking, RawQuery(query): RawQuery) -> Answer {
    Params::parse(query.as_deref(), &[])?;
    app.render(asking, JSON, |app, _| app.list_document(POLICIES))
        .await
}
