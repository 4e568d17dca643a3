//! Tests of statements beside the graph, on a copy of the tables that they read.

use barograph_insight::{GraphLimits, TestQuery};
use barograph_model::Value;

use crate::rig::Rig;

#[test]
fn tests_beside_the_graph() {
    let mut rig = Rig::with(GraphLimits {
        arguments_max: 32,
        ..GraphLimits::default()
    });
    for d in 0..4 {
        rig.stream(&format!("x{{d={d}}}"), d);
    }
    rig.stream("y{d=0}", 7);
    let ask = |sql: &str| {
        let question = TestQuery::parse(sql).unwrap();
        let snapshot = rig.graph.snapshot(question.tables());
        (question, snapshot)
    };
    // The result is what the graph would give, but the graph is not used.
    let sql = "CREATE INSIGHT z AS SELECT d, x.value + y.value FROM x JOIN y USING (d)";
    let (question, snapshot) = ask(sql);
    assert_eq!(question.tables(), ["x", "y"]);
    let rows = snapshot.test(&question, &|| true).unwrap();
    assert_eq!(rows, rig.graph.test(sql).unwrap());
    assert_eq!(rows[0].value, Some(Value::Int(7)));
    // The test ends when `go_on` returns false.
    let stopped = snapshot.test(&question, &|| false).unwrap_err();
    assert!(stopped.to_string().contains("stopped"), "{stopped}");
    // Rows times aggregates are bounded: 16 rows, with two or three sums of each.
    let sums = |sums: &str| {
        let (question, snapshot) = ask(&format!("SELECT {sums} FROM x CROSS JOIN x AS z"));
        snapshot.test(&question, &|| true).map(|rows| rows.len())
    };
    assert_eq!(sums("sum(x.value) + sum(z.value)").unwrap(), 1);
    let many = sums("sum(x.value) + sum(z.value) + sum(x.value + 1)").unwrap_err();
    assert!(many.to_string().contains("arguments_max"), "{many}");
    // The names of tables that are not copied are known too, so that an error can propose similar
    // ones.
    let unknown = TestQuery::parse("SELECT value FROM xx").unwrap();
    let snapshot = rig.graph.snapshot(unknown.tables());
    assert!(snapshot.test(&unknown, &|| true).is_err());
}
