//! Triggers and policies that people declare (`CREATE TRIGGER …`, `CREATE POLICY …`), and their
//! lists.
//!
//! They are apart from the other requests, as the agent keeps them in documents of their own.

use axum::Extension;
use axum::extract::{RawQuery, Request, State};
use barograph_model::StatementKind;

use crate::api::{Answer, Asking, JSON, Shared, execute};
use crate::params::Params;
use crate::rights::Way;

/// Documents of the run directory in which the agent lists triggers and policies.
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

/// `POST /api/v1/triggers`
pub async fn execute_rule(
    State(app): Shared,
    Extension(way): Extension<Way>,
    request: Request,
) -> Answer {
    execute(app, way, request, Some(StatementKind::Rule)).await
}

/// `POST /api/v1/policies`
pub async fn execute_policy(
    State(app): Shared,
    Extension(way): Extension<Way>,
    request: Request,
) -> Answer {
    execute(app, way, request, Some(StatementKind::Policy)).await
}
