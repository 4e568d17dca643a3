//! Statements that change the system: CREATE and DROP of insights, policies and rules; and the
//! reload of the configuration. All of it needs the right to control.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::IntoResponse as _;
use barograph_model::{ControlFault, StatementKind};

use crate::app::{App, HandlerAnswer, SharedApp};
use crate::blocking;
use crate::control::Control;
use crate::fault::Fault;
use crate::params::Params;
use crate::request_body::statement;
use crate::rights::{AccessWay, check_control};

/// `POST /api/v1/statements`
pub(crate) async fn any(
    State(app): SharedApp,
    Extension(way): Extension<AccessWay>,
    request: Request,
) -> HandlerAnswer {
    execute(app, way, request, None).await
}

/// `POST /api/v1/insights`
pub(crate) async fn insight(
    State(app): SharedApp,
    Extension(way): Extension<AccessWay>,
    request: Request,
) -> HandlerAnswer {
    execute(app, way, request, Some(StatementKind::Insight)).await
}

/// `POST /api/v1/policies`
pub(crate) async fn policy(
    State(app): SharedApp,
    Extension(way): Extension<AccessWay>,
    request: Request,
) -> HandlerAnswer {
    execute(app, way, request, Some(StatementKind::Policy)).await
}

/// `POST /api/v1/rules`, and under its older name `/api/v1/triggers`
pub(crate) async fn rule(
    State(app): SharedApp,
    Extension(way): Extension<AccessWay>,
    request: Request,
) -> HandlerAnswer {
    execute(app, way, request, Some(StatementKind::Rule)).await
}

/// `POST /api/v1/reload`
pub(crate) async fn reload(
    State(app): SharedApp,
    Extension(way): Extension<AccessWay>,
    request: Request,
) -> HandlerAnswer {
    check_control(way, &app.token, request.headers())?;
    Params::parse(request.uri().query(), &[])?;
    change(app, way, |control| control.reload()).await
}

/// Executes the statement of a request, which must be of this kind if one is given.
async fn execute(
    app: Arc<App>,
    way: AccessWay,
    request: Request,
    kind: Option<StatementKind>,
) -> HandlerAnswer {
    check_control(way, &app.token, request.headers())?;
    Params::parse(request.uri().query(), &[])?;
    let sql = statement(request, &app).await?;
    change(app, way, move |control| control.execute(&sql, kind)).await
}

/// Hands the request to the agent, on a thread that may wait.
async fn change(
    app: Arc<App>,
    way: AccessWay,
    ask: impl FnOnce(&dyn Control) -> Result<serde_json::Value, ControlFault> + Send + 'static,
) -> HandlerAnswer {
    let place = app.statement_place(way)?;
    let work = move || {
        let _place = place;
        Ok::<_, Fault>(ask(&*app.control)?)
    };
    Ok(axum::Json(blocking::wait(work).await?).into_response())
}
