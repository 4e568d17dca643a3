//! The fields of the documents that SQL makes tables of.

use barograph_agent::{Agent, VolumeConfig};
use barograph_source::PolicySpec;
use barograph_stream::{
    AGENT_DOCUMENT, AgentDocument, CALLS_COLUMNS, CALLS_DOCUMENT, CallsRow, DocumentColumns,
    FORECASTS_COLUMNS, FORECASTS_DOCUMENT, ForecastsRow, HANDLERS_DOCUMENT, HandlersRow,
    INSIGHTS_COLUMNS, INSIGHTS_DOCUMENT, InsightsRow, KNOBS_COLUMNS, KNOBS_DOCUMENT, KnobsRow,
    POLICIES_COLUMNS, POLICIES_DOCUMENT, PUBLICATIONS_COLUMNS, PUBLICATIONS_DOCUMENT, PoliciesRow,
    PublicationsRow, RULES_COLUMNS, RULES_DOCUMENT, RulesRow, RunDir, SOURCES_COLUMNS,
    SOURCES_DOCUMENT, SourcesRow,
};
use barograph_testing::wait_for;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};

use crate::bridges::lines;
use crate::calls::{Application, fire, our_scope};
use crate::{config, post};

/// Waits for `count` rows of a document, and checks that each row has the fields of the columns,
/// and no field that its type `R` lacks.
fn check<R: DeserializeOwned + Serialize>(
    run_dir: &RunDir,
    count: usize,
    document: &str,
    columns: DocumentColumns,
) {
    let rows = wait_for(document, || {
        let bytes = run_dir.document(document).unwrap()?;
        let rows: Vec<Json> = serde_json::from_slice(&bytes).unwrap();
        (rows.len() >= count).then_some(rows)
    });
    rows.iter().for_each(has_type::<R>);
    // The name of a scope is that of its directory.
    let fields = columns.iter().filter(|(name, _)| *name != "scope");
    for (name, _) in fields {
        for row in &rows {
            assert!(row.get(name).is_some(), "{document}: {name}: {row}");
        }
    }
}

/// Checks that a value is the same after it was read as an `R` and written again.
fn has_type<R: DeserializeOwned + Serialize>(written: &Json) {
    let read: R = serde_json::from_value(written.clone()).unwrap();
    let (again, name) = (json!(read), std::any::type_name::<R>());
    for (field, value) in written.as_object().unwrap() {
        assert_eq!(again.get(field), Some(value), "{name}: {field}: {written}");
    }
}

#[test]
fn each_column_of_a_table_is_a_field_of_its_document() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    config.forecast.streams = vec!["memory.available.bytes".into()];
    let scratch = VolumeConfig {
        path: "/scratch".into(),
        bandwidth: 1e9,
        ..VolumeConfig::default()
    };
    config.schedule.volumes.insert("scratch".into(), scratch);
    config.policy = vec![PolicySpec {
        name: "total".into(),
        streams: vec!["memory.total.bytes".into()],
        error: Some("1 MiB".into()),
        ..PolicySpec::default()
    }];
    let _agent = Agent::start(config).unwrap();
    let made = "CREATE RULE big WHEN latest('memory.total.bytes') > 0 CALL 'x'";
    assert!(post(dir.path(), "/api/v1/rules", made).starts_with("HTTP/1.1 200"));
    let _application = Application::new(dir.path(), 0);
    assert_eq!(lines(dir.path(), "bridged v=1").0, 204);
    wait_for("the call", || {
        let (status, _) = fire(dir.path(), "control.sock", &json!({"name": "checkpoint"}));
        (status == 200).then_some(())
    });
    let (node, scope) = (RunDir::new(dir.path().join("run")), our_scope(dir.path()));
    check::<SourcesRow>(&node, 1, SOURCES_DOCUMENT, SOURCES_COLUMNS);
    check::<InsightsRow>(&node, 1, INSIGHTS_DOCUMENT, INSIGHTS_COLUMNS);
    check::<ForecastsRow>(&node, 1, FORECASTS_DOCUMENT, FORECASTS_COLUMNS);
    check::<PoliciesRow>(&node, 1, POLICIES_DOCUMENT, POLICIES_COLUMNS);
    check::<RulesRow>(&node, 1, RULES_DOCUMENT, RULES_COLUMNS);
    check::<PublicationsRow>(&scope, 2, PUBLICATIONS_DOCUMENT, PUBLICATIONS_COLUMNS);
    check::<KnobsRow>(&scope, 1, KNOBS_DOCUMENT, KNOBS_COLUMNS);
    check::<CallsRow>(&scope, 1, CALLS_DOCUMENT, CALLS_COLUMNS);
    check::<HandlersRow>(&scope, 1, HANDLERS_DOCUMENT, &[]);
    let agent = node.document(AGENT_DOCUMENT).unwrap().unwrap();
    let agent: Json = serde_json::from_slice(&agent).unwrap();
    has_type::<AgentDocument>(&agent);
    assert_eq!(agent["schedules"], json!(["/scratch"]));
}
