//! The triggers that people declare: `CREATE TRIGGER …`, and the list of them.
//!
//! Apart from the other requests: what a trigger calls has files of its own.

use axum::Extension;
use axum::extract::{RawQuery, Request, State};
use axum::response::IntoResponse as _;

use crate::api::{Answer, JSON, Shared, statement};
use crate::blocking;
use crate::params::Params;
use crate::rights::{Way, check_control};

/// What the agent writes of them.
const TRIGGERS: &str = "declared_triggers.json";

/// `GET /api/v1/triggers`
pub async fn triggers(State(app): Shared, RawQuery(query): RawQuery) -> Answer {
    Params::parse(query.as_deref(), &[])?;
    app.render(JSON, |app, _| app.list_document(TRIGGERS)).await
}

/// `POST /api/v1/triggers`: needs the right to control.
pub async fn change_trigger(
    State(app): Shared,
    Extension(way): Extension<Way>,
    request: Request,
) -> Answer {
    check_control(way, &app.token, request.headers())?;
    Params::parse(request.uri().query(), &[])?;
    let sql = statement(request, &app.limits).await?;
    let permit = blocking::permit(&app.room.statements, "control statements")?;
    let (made, _) = blocking::run(permit, move || Ok(app.control.declare_trigger(&sql)?)).await?;
    Ok(axum::Json(made).into_response())
}
