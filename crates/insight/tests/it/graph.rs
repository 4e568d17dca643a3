//! Tests of statements, the shape of the graph, and the life of streams.

use barograph_insight::{GraphLimits, InsightState};
use barograph_model::{Quality, Value, ValueType};
use barograph_statement::StatementOutcome;

use crate::rig::Rig;

pub(crate) fn disks() -> Rig {
    let mut rig = Rig::default();
    rig.stream("disk.read.bytes{device=vda,tier=ssd}", 10);
    rig.stream("disk.read.bytes{device=vdb,tier=ssd}", 20);
    rig.stream("disk.read.bytes{device=sda,tier=hdd}", 5);
    rig.stream("disk.busy.ratio{device=vda}", 0.5);
    rig.stream("disk.busy.ratio{device=sda}", 0.25);
    rig
}

#[test]
fn selects_and_what_they_give() {
    let check = |select: &str, expect: &[&str]| {
        let mut rig = disks();
        rig.create(&format!("CREATE INSIGHT o AS {select}"))
            .unwrap();
        assert_eq!(rig.outputs(), expect, "{select}");
        let tested = disks().graph.test(select).unwrap();
        let with_value = tested.iter().filter(|row| row.value.is_some()).count();
        assert_eq!(
            with_value,
            expect.iter().filter(|e| !e.ends_with("=-")).count(),
            "{select}"
        );
    };
    check("SELECT sum(value) FROM disk_read_bytes", &["o=Int(35)"]);
    check(
        "SELECT sum(value) FROM DISK_READ_BYTES WHERE newest",
        &["o=Int(35)"],
    );
    check(
        "SELECT tier, sum(value) AS value FROM disk_read_bytes GROUP BY tier",
        &["o{tier=hdd}=Int(5)", "o{tier=ssd}=Int(30)"],
    );
    check(
        "SELECT avg(value) AS value, tier FROM disk_read_bytes d WHERE d.value > 5 GROUP BY d.tier",
        &["o{tier=ssd}=Float(15.0)"],
    );
    check(
        "SELECT device AS disk, value / 3 FROM disk_read_bytes WHERE device GLOB 'vd*'",
        &["o{disk=vda}=Int(3)", "o{disk=vdb}=Int(6)"],
    );
    check(
        "SELECT device, r.value * b.value FROM disk_read_bytes r JOIN disk_busy_ratio b USING (device)",
        &["o{device=sda}=Float(1.25)", "o{device=vda}=Float(5.0)"],
    );
    check(
        "SELECT 'n' AS what, count(*) AS value FROM disk_read_bytes \
         UNION ALL SELECT 'max', max(value) FROM disk_read_bytes",
        &["o{what=max}=Int(20)", "o{what=n}=Int(3)"],
    );
    check(
        "SELECT tier, count(*) FROM disk_read_bytes GROUP BY tier HAVING count(*) > 1",
        &["o{tier=ssd}=Int(2)"],
    );
    check(
        "SELECT sum(value) FROM disk_read_bytes WHERE tier = 'none'",
        &["o=-"],
    );
    check(
        "SELECT count(*) FROM disk_read_bytes WHERE tier = 'none'",
        &["o=Int(0)"],
    );
    check(
        "SELECT count(*) FROM disk_read_bytes WHERE node = 'n1'",
        &["o=Int(3)"],
    );
    check(
        "SELECT max(quality) FROM disk_read_bytes",
        &["o=Text(\"measured\")"],
    );
    check(
        "SELECT value / 0 FROM disk_read_bytes WHERE device = 'vda'",
        &[],
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn refusals_say_what_to_do() {
    let check = |statement: &str, expect: &str| {
        let mut rig = disks();
        let seen = rig.create(statement).unwrap_err().to_string();
        assert_eq!(seen, expect, "{statement}");
    };
    let refused =
        |select: &str, expect: &str| check(&format!("CREATE INSIGHT o AS {select}"), expect);
    refused(
        "SELECT sum(value) FROM disk_reed_bytes",
        "no metric or insight has the table disk_reed_bytes: did you mean disk_read_bytes?",
    );
    refused(
        "SELECT sum(value) FROM zzz",
        "no metric or insight has the table zzz: see the table `tables` for what there is",
    );
    refused(
        "SELECT dev, value FROM disk_busy_ratio",
        "table disk_busy_ratio has no column dev: it has ts, value, quality, error, node, device",
    );
    refused(
        "SELECT sum(value) FROM o",
        "the insight would read itself: o <- o",
    );
    refused(
        "SELECT device, sum(value) FROM disk_read_bytes",
        "device stands outside the aggregates: GROUP BY it, or aggregate it",
    );
    refused(
        "SELECT tier, value FROM disk_read_bytes GROUP BY tier",
        "value stands outside the aggregates: GROUP BY it, or aggregate it",
    );
    refused(
        "SELECT sum(value) FROM disk_read_bytes GROUP BY tier",
        "SELECT tier too: it tells the groups apart",
    );
    refused(
        "SELECT sum(value) FROM disk_read_bytes GROUP BY value",
        "GROUP BY takes labels, not value",
    );
    refused(
        "SELECT value FROM disk_read_bytes ORDER BY 1",
        "an insight has no ORDER BY or LIMIT: its groups are streams",
    );
    refused(
        "SELECT DISTINCT value FROM disk_read_bytes",
        "an insight has no DISTINCT: GROUP BY the labels",
    );
    refused(
        "SELECT * FROM disk_read_bytes",
        "name the columns: SELECT label, …, value",
    );
    refused(
        "SELECT 1",
        "an insight reads FROM the table of a metric or an insight",
    );
    refused(
        "SELECT node, value FROM disk_busy_ratio",
        "no label can be called node: every table has a column of that name",
    );
    refused(
        "SELECT device, value FROM disk_read_bytes a LEFT JOIN disk_busy_ratio b USING (device)",
        "tables are joined by JOIN … USING (label, …) or by CROSS JOIN",
    );
    refused(
        "SELECT device, value FROM disk_read_bytes a JOIN disk_busy_ratio b USING (device)",
        "value: say which table's, like a.value",
    );
    refused(
        "SELECT sum(value) FROM disk_read_bytes WHERE sum(value) > 1",
        "WHERE is about single rows: put aggregates in HAVING",
    );
    refused(
        "SELECT count(DISTINCT value) FROM disk_read_bytes",
        "count(DISTINCT value): no DISTINCT, FILTER, OVER or ORDER BY in an insight",
    );
    refused(
        "SELECT sum(value) FILTER (WHERE value > 1) FROM disk_read_bytes",
        "sum(value) FILTER (WHERE value > 1): no DISTINCT, FILTER, OVER or ORDER BY in an insight",
    );
    refused(
        "SELECT value = 1 < 2 FROM disk_read_bytes",
        "put parentheses around value = 1",
    );
    refused(
        "SELECT age_ns FROM disk_busy_ratio",
        "age_ns is no part of a sample: an insight cannot read it",
    );
    refused(
        "SELECT value FROM disk_busy_ratio UNION SELECT 1 FROM disk_busy_ratio",
        "SELECTs are joined by UNION ALL only",
    );
    check(
        "CREATE INSIGHT disk.busy.ratio AS SELECT 1 FROM disk_read_bytes",
        "disk.busy.ratio is the name of a measured metric: choose another",
    );
    check(
        "CREATE INSIGHT disk.busy_ratio AS SELECT 1 FROM disk_read_bytes",
        "disk.busy_ratio is the name of a measured metric: choose another",
    );
}

#[test]
fn a_chain_of_insights_runs_in_one_go() {
    let mut rig = Rig::default();
    let key = rig.stream("fact", 1);
    rig.create("CREATE INSIGHT i0 AS SELECT value FROM fact")
        .unwrap();
    for hop in 1..32 {
        let sql = format!(
            "CREATE INSIGHT i{hop} AS SELECT value + 1 FROM i{}",
            hop - 1
        );
        rig.create(&sql).unwrap();
    }
    rig.run();
    assert_eq!(rig.newest("i31").value, Value::Int(32));
    rig.set(key, 100);
    rig.run();
    assert_eq!(rig.newest("i31").value, Value::Int(131));
    assert_eq!(rig.newest("i31").ts, rig.now - 1);
    assert_eq!(rig.report("i31").evaluations, 2);
    rig.run();
    assert_eq!(rig.report("i31").evaluations, 2, "nothing new, nothing run");
}

#[test]
fn a_diamond_is_computed_once() {
    let mut rig = Rig::default();
    let key = rig.stream("fact", 1);
    rig.create("CREATE INSIGHT l AS SELECT value + 1 FROM fact")
        .unwrap();
    rig.create("CREATE INSIGHT r AS SELECT value * 10 FROM fact")
        .unwrap();
    rig.create("CREATE INSIGHT o AS SELECT l.value + r.value FROM l CROSS JOIN r")
        .unwrap();
    for (round, expect) in [(1, 12), (2, 23), (3, 34)] {
        rig.set(key, round);
        rig.run();
        assert_eq!(rig.newest("o").value, Value::Int(expect));
        assert_eq!(rig.report("o").evaluations, round as u64);
    }
}

#[test]
fn cycles_are_refused_with_the_path() {
    let mut rig = Rig::default();
    rig.stream("fact", 1);
    for (name, input) in [("a", "fact"), ("b", "a"), ("c", "b")] {
        rig.create(&format!(
            "CREATE INSIGHT {name} AS SELECT value FROM {input}"
        ))
        .unwrap();
    }
    let refused = rig
        .create("CREATE OR REPLACE INSIGHT a AS SELECT value FROM c")
        .unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the insight would read itself: a <- c <- b <- a"
    );
    assert_eq!(rig.outputs(), ["a=Int(1)", "b=Int(1)", "c=Int(1)"]);
}

#[test]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
fn drop_and_replace() {
    let mut rig = disks();
    rig.create("CREATE INSIGHT a AS SELECT tier, sum(value) FROM disk_read_bytes GROUP BY tier")
        .unwrap();
    rig.create("CREATE INSIGHT b AS SELECT max(value) FROM a WHERE tier <> 'none'")
        .unwrap();
    rig.graph
        .create(
            "CREATE INSIGHT c AS SELECT max(value) FROM disk_busy_ratio",
            true,
        )
        .unwrap();
    assert_eq!(
        rig.outputs(),
        [
            "a{tier=hdd}=Int(5)",
            "a{tier=ssd}=Int(30)",
            "b=Int(30)",
            "c=Float(0.5)"
        ]
    );

    let drop = |rig: &mut Rig, sql: &str| {
        rig.graph
            .execute(sql, &mut rig.out)
            .map(|done| format!("{done:?}"))
            .unwrap_or_else(|e| e.to_string())
    };
    assert_eq!(
        drop(&mut rig, "DROP INSIGHT a"),
        "a is read by b: drop them first"
    );
    assert_eq!(
        drop(&mut rig, "DROP INSIGHT c"),
        "c is built in and stays: make an insight of another name beside it"
    );
    assert_eq!(
        drop(&mut rig, "DROP INSIGHT d"),
        "there is no insight d: see the table `tables` for what there is"
    );
    assert_eq!(drop(&mut rig, "DROP INSIGHT IF EXISTS d"), "Dropped(\"d\")");
    assert_eq!(
        rig.create("CREATE INSIGHT a AS SELECT 1 FROM disk_read_bytes")
            .unwrap_err()
            .to_string(),
        "a is the name of an insight: choose another, or CREATE OR REPLACE it"
    );
    assert_eq!(
        rig.create("CREATE OR REPLACE INSIGHT c AS SELECT 1 FROM disk_read_bytes")
            .unwrap_err()
            .to_string(),
        "c is built in and stays: make an insight of another name beside it"
    );
    assert_eq!(
        rig.create("CREATE OR REPLACE INSIGHT a AS SELECT sum(value) FROM disk_read_bytes")
            .unwrap_err()
            .to_string(),
        "b reads the label tier of a: keep it, or drop b first"
    );
    rig.create("CREATE OR REPLACE INSIGHT a UNIT 'x' AS SELECT tier, min(value) FROM disk_read_bytes GROUP BY tier").unwrap();
    assert_eq!(
        rig.outputs(),
        [
            "a{tier=hdd}=Int(5)",
            "a{tier=ssd}=Int(10)",
            "b=Int(10)",
            "c=Float(0.5)"
        ]
    );
    assert_eq!(rig.report("a").unit, "x");

    assert_eq!(drop(&mut rig, "DROP INSIGHT b;"), "Dropped(\"b\")");
    assert_eq!(drop(&mut rig, "DROP INSIGHT a"), "Dropped(\"a\")");
    assert_eq!(rig.outputs(), ["c=Float(0.5)"]);
    let again = rig.graph.execute(
        "CREATE INSIGHT a AS SELECT count(*) FROM disk_busy_ratio",
        &mut rig.out,
    );
    assert_eq!(again, Ok(StatementOutcome::Created("a".into())));
    assert_eq!(rig.outputs(), ["a=Int(2)", "c=Float(0.5)"]);
}

#[test]
fn streams_come_and_go() {
    let mut rig = Rig::default();
    let name = barograph_model::Name::new("disk.size.bytes").unwrap();
    assert!(
        rig.create(
            "CREATE INSIGHT o AS SELECT model, sum(value) FROM disk_size_bytes GROUP BY model"
        )
        .is_err()
    );
    rig.graph.know_metric(&name);
    rig.create("CREATE INSIGHT o AS SELECT model, sum(value) FROM disk_size_bytes GROUP BY model")
        .unwrap();
    rig.create("CREATE INSIGHT n AS SELECT count(*) FROM o")
        .unwrap();
    assert_eq!(rig.outputs(), ["n=Int(0)"]);
    assert_eq!(rig.report("o").state, InsightState::Waiting);
    assert_eq!(rig.report("o").reason, "no samples yet of disk.size.bytes");

    let a = rig.stream("disk.size.bytes{device=a,model=x}", 1);
    let b = rig.stream("disk.size.bytes{device=b}", 2);
    assert_eq!(rig.outputs(), ["n=Int(2)", "o=Int(2)", "o{model=x}=Int(1)"]);
    assert_eq!(rig.report("o").state, InsightState::Live);
    rig.graph.stream_removed(a);
    assert_eq!(rig.outputs(), ["n=Int(1)", "o=Int(2)"]);
    assert_eq!(
        rig.newest("n").ts,
        rig.now,
        "the change is now, no input is newer"
    );
    rig.graph.stream_removed(a);
    rig.graph.stream_removed(b);
    assert_eq!(rig.outputs(), ["n=Int(0)"]);

    // A stream without a sample gives no row; one that has an insight's name is ignored.
    let c = rig.add("disk.size.bytes{device=c}", ValueType::Int);
    rig.add("o{model=y}", ValueType::Int);
    assert_eq!(rig.graph.ignored(), 1);
    assert_eq!(rig.outputs(), ["n=Int(0)"]);
    rig.set(c, 7);
    assert_eq!(rig.outputs(), ["n=Int(1)", "o=Int(7)"]);
}

#[test]
fn groups_that_vanish_at_once_are_retired_in_one_order() {
    let mut rig = Rig::default();
    let disk = |n: usize| format!("disk.read.bytes{{device=d{n:02}}}");
    let keys: Vec<_> = (0..16).rev().map(|n| rig.stream(&disk(n), 1)).collect();
    rig.create(
        "CREATE INSIGHT o AS SELECT device, sum(value) FROM disk_read_bytes GROUP BY device",
    )
    .unwrap();
    assert_eq!(rig.outputs().len(), 16);
    for key in keys {
        rig.graph.stream_removed(key);
    }
    rig.run();
    let sorted: Vec<_> = (0..16).map(|n| format!("o{{device=d{n:02}}}")).collect();
    assert_eq!(rig.out.retired, sorted);
}

#[test]
fn null_silences_a_stream() {
    let mut rig = Rig::default();
    let key = rig.stream("x{d=a}", 4);
    rig.create("CREATE INSIGHT o AS SELECT d, 8 / value FROM x")
        .unwrap();
    rig.create("CREATE INSIGHT p AS SELECT sum(8 / value) FROM x")
        .unwrap();
    assert_eq!(rig.outputs(), ["o{d=a}=Int(2)", "p=Int(2)"]);
    rig.set(key, 0);
    assert_eq!(
        rig.outputs(),
        ["p=-"],
        "a group of all rows keeps its stream"
    );
    rig.set(key, 2);
    assert_eq!(rig.outputs(), ["o{d=a}=Int(4)", "p=Int(4)"]);
}

#[test]
fn a_stream_of_integers_becomes_one_of_floats_once() {
    let mut rig = Rig::default();
    let a = rig.stream("x{d=a}", 1);
    rig.create("CREATE INSIGHT o AS SELECT sum(value) FROM x")
        .unwrap();
    rig.create("CREATE INSIGHT p AS SELECT max(value) FROM x")
        .unwrap();
    assert_eq!(rig.outputs(), ["o=Int(1)", "p=Int(1)"]);
    rig.stream("x{d=b}", 0.5);
    assert_eq!(rig.outputs(), ["o=Float(1.5)", "p=Float(1.0)"]);
    let declared = rig.out.declared;
    rig.set(a, 3);
    assert_eq!(rig.outputs(), ["o=Float(3.5)", "p=Float(3.0)"]);
    assert_eq!(rig.out.declared, declared);
    rig.stream("x{d=c}", Value::text("z"));
    assert_eq!(rig.outputs(), ["o=Float(3.5)", "p=Text(\"z\")"]);
}

#[test]
fn failures_stay_in_their_group() {
    let mut rig = Rig::default();
    let big = rig.stream("x{d=a,t=big}", i64::MAX);
    rig.stream("x{d=b,t=big}", 1);
    rig.stream("x{d=c,t=small}", 1);
    rig.create("CREATE INSIGHT o AS SELECT t, sum(value) FROM x GROUP BY t")
        .unwrap();
    rig.create("CREATE INSIGHT twice AS SELECT t, value FROM x")
        .unwrap();
    assert_eq!(
        rig.outputs(),
        ["o{t=small}=Int(1)", "twice{t=small}=Int(1)"]
    );
    assert_eq!(rig.report("o").state, InsightState::Failed);
    assert_eq!(rig.report("o").reason, "integer overflow (group {t=big})");
    assert_eq!(
        rig.report("twice").reason,
        "two rows have the labels {t=big}: select a label that tells them apart (group {t=big})"
    );
    assert!(rig.graph.test("SELECT t, value FROM x").is_err());
    rig.set(big, 1);
    assert_eq!(
        rig.outputs(),
        [
            "o{t=big}=Int(2)",
            "o{t=small}=Int(1)",
            "twice{t=small}=Int(1)"
        ]
    );
    assert_eq!(rig.report("o").state, InsightState::Live);
}

#[test]
fn quality_and_error_propagate() {
    let mut rig = Rig::default();
    let a = rig.stream("x{d=a}", 10.0);
    let b = rig.stream("x{d=b}", 20.0);
    rig.create("CREATE INSIGHT total AS SELECT sum(value) FROM x")
        .unwrap();
    rig.create("CREATE INSIGHT mean AS SELECT avg(value) * 2 FROM x")
        .unwrap();
    rig.create("CREATE INSIGHT many AS SELECT count(*) FROM x WHERE value > 15")
        .unwrap();
    rig.run();
    assert_eq!(
        (rig.newest("total").quality, rig.newest("total").error),
        (Quality::Derived, 0.0)
    );
    rig.set_known(a, 10.0, Quality::Predicted, 1.0);
    rig.set_known(b, 20.0, Quality::Measured, 2.0);
    rig.run();
    assert_eq!(
        (rig.newest("total").quality, rig.newest("total").error),
        (Quality::Predicted, 3.0)
    );
    assert_eq!(rig.newest("mean").error, 3.0);
    assert_eq!(
        (rig.newest("many").error, rig.newest("many").quality),
        (0.0, Quality::Derived)
    );
    // 14 ± 2 may be above 15: how many are is open.
    rig.set_known(a, 14.0, Quality::Measured, 2.0);
    rig.run();
    assert_eq!(
        (rig.newest("many").value, rig.newest("many").error),
        (Value::Int(1), f32::INFINITY)
    );
    rig.set(a, 14.0);
    rig.set(b, 20.0);
    rig.run();
    assert_eq!(
        (rig.newest("total").quality, rig.newest("total").error),
        (Quality::Derived, 0.0)
    );
}

#[test]
fn limits() {
    let limits = GraphLimits {
        insights_max: 3,
        groups_max: 2,
        rows_max: 10,
        depth_max: 2,
        ..GraphLimits::default()
    };
    let mut rig = Rig::with(limits);
    for d in 0..4 {
        rig.stream(&format!("x{{d={d}}}"), d);
    }
    rig.create("CREATE INSIGHT a AS SELECT d, value FROM x")
        .unwrap();
    rig.create("CREATE INSIGHT b AS SELECT count(*) FROM x CROSS JOIN x AS y")
        .unwrap();
    assert_eq!(rig.outputs(), ["a{d=0}=Int(0)", "a{d=1}=Int(1)"]);
    assert_eq!(
        rig.report("a").reason,
        "2 groups over the limit of 2 (groups_max) left out"
    );
    assert_eq!(
        rig.report("b").reason,
        "it would join more than 10 rows (rows_max): join on more labels, or filter"
    );
    rig.create("CREATE INSIGHT c AS SELECT sum(value) FROM a")
        .unwrap();
    let deep = rig
        .create("CREATE OR REPLACE INSIGHT b AS SELECT sum(value) FROM c")
        .unwrap_err();
    assert_eq!(
        deep.to_string(),
        "insights on insights, 3 deep: at most 2 (depth_max)"
    );
    let many = rig
        .create("CREATE INSIGHT d AS SELECT sum(value) FROM x")
        .unwrap_err();
    assert_eq!(many.to_string(), "insights: at most 3 (insights_max)");

    rig.out.room = Some(2);
    assert_eq!(rig.outputs(), ["a{d=0}=Int(0)", "a{d=1}=Int(1)"]);
    assert_eq!(
        rig.report("c").reason,
        "no room for 1 of its streams: raise the limit on streams"
    );
}

#[test]
fn a_value_is_as_old_as_its_newest_input() {
    let mut rig = Rig::default();
    let keys = ["a", "b", "c"].map(|d| rig.stream(&format!("x{{d={d}}}"), 1));
    let oldest = rig.now - 2;
    rig.create("CREATE INSIGHT o AS SELECT nullif(count(*), 2) FROM x WHERE value < 50")
        .unwrap();
    rig.run();
    assert_eq!(
        (rig.newest("o").value, rig.newest("o").ts),
        (Value::Int(3), oldest + 2)
    );
    rig.set(keys[2], 100);
    assert_eq!(rig.outputs(), ["o=-"]);
    rig.set(keys[1], 100);
    rig.run();
    assert_eq!(
        (rig.newest("o").value, rig.newest("o").ts),
        (Value::Int(1), oldest)
    );
}
