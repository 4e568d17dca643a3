//! Rules and policies that people declare (`CREATE RULE …`, `CREATE POLICY …`), and their lists.
//!
//! They are apart from the other requests, as the agent keeps them in documents of their own.

use axum::extract::{RawQuery, State};
use barograph_stream::{POLICIES_DOCUMENT, RULES_DOCUMENT};

use crate::app::{HandlerAnswer, JSON, RequestOrigin, SharedApp};
use crate::params::Params;

/// `GET /api/v1/rules`, and under its older name `/api/v1/triggers`
pub(crate) async fn rules(
    State(app): SharedApp,
    asking: RequestOrigin,
    RawQuery(query): RawQuery,
) -> HandlerAnswer {
    Params::parse(query.as_deref(), &[])?;
    app.render(asking, JSON, |app, _| app.list_document(RULES_DOCUMENT))
        .await
}

/// `GET /api/v1/policies`
pub(crate) async fn policies(
    State(app): SharedApp,
    asking: RequestOrigin,
    RawQuery(query): RawQuery,
) -> HandlerAnswer {
    Params::parse(query.as_deref(), &[])?;
    app.render(asking, JSON, |app, _| app.list_document(POLICIES_DOCUMENT))
        .await
}
