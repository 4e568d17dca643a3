//! Tests of the statement that each node is asked, and of the one over their rows.

use super::*;

fn combined(sql: &str) -> (String, String) {
    let combined = CombinedSelect::parse(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
    let columns = ["node", "x", "order:0"].map(str::to_owned);
    let whole = combined.whole(&columns);
    (combined.partial, whole)
}

#[test]
fn aggregates_are_made_from_those_of_the_nodes() {
    let check = |sql: &str, partial: &str, whole: &str| {
        assert_eq!(combined(sql), (partial.to_owned(), whole.to_owned()));
    };
    check(
        "SELECT sum(value) FROM t WHERE newest",
        "SELECT sum(value) AS \"a0\" FROM t WHERE newest",
        "SELECT sum(\"a0\") AS \"sum(value)\" FROM node_rows",
    );
    check(
        "SELECT device AS d, avg(value) mean, count(*) FROM t GROUP BY d HAVING count(*) > 2 \
         ORDER BY mean DESC LIMIT 3",
        "SELECT device AS \"k0\", total(value) AS \"a0\", count(value) AS \"a1\", \
         count(*) AS \"a2\" FROM t GROUP BY device",
        "SELECT \"k0\" AS \"d\", sum(\"a0\") / nullif(sum(\"a1\"), 0) AS \"mean\", \
         coalesce(sum(\"a2\"), 0) AS \"count(*)\" FROM node_rows GROUP BY \"k0\" \
         HAVING coalesce(sum(\"a2\"), 0) > 2 \
         ORDER BY sum(\"a0\") / nullif(sum(\"a1\"), 0) DESC LIMIT 3",
    );
    check(
        "SELECT round(max(value) - min(value), 1) FROM t GROUP BY tier, upper(name)",
        "SELECT tier AS \"k0\", upper(name) AS \"k1\", max(value) AS \"a0\", \
         min(value) AS \"a1\" FROM t GROUP BY tier, upper(name)",
        "SELECT round(max(\"a0\") - min(\"a1\"), 1) AS \"round(max(value) - min(value), 1)\" \
         FROM node_rows GROUP BY \"k0\", \"k1\"",
    );
    check(
        "SELECT count(*) FILTER (WHERE value > 1) FROM t GROUP BY 1 + 1",
        "SELECT 1 + 1 AS \"k0\", count(*) FILTER (WHERE value > 1) AS \"a0\" FROM t GROUP BY 1 + 1",
        "SELECT coalesce(sum(\"a0\"), 0) AS \"count(*) FILTER (WHERE value > 1)\" \
         FROM node_rows GROUP BY \"k0\"",
    );
}

#[test]
fn a_column_comes_before_the_alias_of_what_is_computed_from_it() {
    let (partial, whole) = combined("SELECT upper(x) AS x, count(*) FROM t GROUP BY x");
    let groups = "SELECT x AS \"k0\", count(*) AS \"a0\" FROM t GROUP BY x";
    assert_eq!(partial, groups);
    assert!(
        whole.starts_with("SELECT upper(\"k0\") AS \"x\""),
        "{whole}"
    );
}

#[test]
fn rows_are_ordered_and_cut_on_each_node_and_then_together() {
    let check = |sql: &str, partial: &str, whole: &str| {
        assert_eq!(combined(sql), (partial.to_owned(), whole.to_owned()));
    };
    check(
        "SELECT * FROM t ORDER BY value DESC LIMIT 5 OFFSET 2",
        "SELECT *, value AS \"order:0\" FROM t ORDER BY value DESC LIMIT 7",
        "SELECT \"node\", \"x\" FROM node_rows ORDER BY \"order:0\" DESC LIMIT 5 OFFSET 2",
    );
    check(
        "SELECT DISTINCT device AS d FROM t ORDER BY d",
        "SELECT DISTINCT device AS d FROM t ORDER BY d",
        "SELECT DISTINCT \"node\", \"x\" FROM node_rows ORDER BY \"d\"",
    );
    check(
        "WITH a AS (SELECT 1 AS x) SELECT x FROM a",
        "WITH a AS (SELECT 1 AS x) SELECT x FROM a",
        "SELECT \"node\", \"x\" FROM node_rows",
    );
}

#[test]
fn what_cannot_be_combined_is_refused_with_the_reason() {
    let check = |sql: &str, reason: &str| {
        let error = CombinedSelect::parse(sql).unwrap_err().to_string();
        assert!(error.contains(reason), "{sql}: {error}");
    };
    check("SELECT 1 UNION SELECT 2", "a single SELECT");
    check("SELECT median(value) FROM t", "one value of each node");
    check("SELECT twa(value, ts) FROM t", "one value of each node");
    check("SELECT count(DISTINCT node) FROM t", "SELECT DISTINCT");
    check(
        "SELECT value, max(ts) FROM t",
        "value is neither in GROUP BY",
    );
    check("SELECT *, count(*) FROM t", "name the columns");
    check("SELECT row_number() OVER () FROM t", "window");
    check("SELECT max(ts) FROM t GROUP BY 1", "is an aggregate");
    check("SELECT DISTINCT x FROM t ORDER BY y", "give it a name");
    check("SELECT x FROM t LIMIT 1 + 1", "are numbers");
    check("SELECT count(*) + (SELECT 1) FROM t", "neither in GROUP BY");
    check("DELETE FROM t", "a single SELECT");
    check("SELECT FROM", "cannot read the SELECT");
}
