//! What history did not get, or anybody lost: tried again where that helps, and counted where it does not.

use std::fs;

use barograph_agent::Agent;
use barograph_stream::ingest::Readers;

use crate::applications::{Application, number, our_scope, until};
use crate::bridges::{lines, now_ns};
use crate::config;

/// A file stands where the directory of all scopes' history belongs, as when a disk is full: then it is made room.
#[test]
fn history_that_cannot_start_is_tried_again_and_what_is_acknowledged_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let obstacle = dir.path().join("state/applications");
    fs::create_dir_all(dir.path().join("state")).unwrap();
    fs::write(&obstacle, "").unwrap();
    let agent = Agent::start(config(dir.path())).unwrap();
    let scope = our_scope(dir.path());
    let mut application = Application::new(dir.path(), "solver", Readers::Owner);
    application.frames(10);
    let count = "SELECT count(*) FROM app_solver_residual";
    until("live values", || number(&scope, count) == Some(100));
    // The scope's first start has failed by now, or fails while this is asked.
    until("a durable write is not acknowledged", || {
        let (status, body) = lines(dir.path(), "cpu usage=1");
        assert!(status == 503 || body.is_empty(), "{status} {body}");
        body.contains("cannot be kept now")
    });
    fs::remove_file(&obstacle).unwrap();
    let t = now_ns();
    let line = format!("cpu usage=2 {t}");
    until("it is acknowledged", || lines(dir.path(), &line).0 == 204);
    application.frames(10);
    until("what came meanwhile", || number(&scope, count) == Some(200));
    agent.stop();
    // All that a new agent has it has from the archive.
    drop(application);
    let _agent = Agent::start(config(dir.path())).unwrap();
    until("values of the time without history", || {
        number(&scope, count) == Some(200)
    });
    let acknowledged = format!("SELECT count(*) FROM app_cpu_usage WHERE ts = {t}");
    assert_eq!(number(&scope, &acknowledged), Some(1));
}
