//! Equality with SQLite: after any history of streams, an insight has the same result as the same
//! SELECT in SQLite over a table of the newest samples.

use std::collections::BTreeMap;

use barograph_model::{Quality, Sample, StreamKey, Value, ValueType};
use proptest::prelude::*;
use rusqlite::types::{ToSql, Value as Sql};

use crate::rig::Rig;

/// Names of the labels; some streams lack some of them.
const LABELS: [&str; 2] = ["a", "b"];
const TABLES: [&str; 2] = ["t", "u"];

/// One change of the streams.
#[derive(Clone, Debug)]
enum Step {
    /// Adds a stream of table `.0` with the values of these labels (0: without the label).
    Add(usize, [u8; 2], Value),
    /// Gives the existing stream number `.0` a new sample.
    Set(usize, Value),
    Remove(usize),
    Evaluate,
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => (-20_i64..20).prop_map(Value::Int),
        // Multiples of an eighth: sums are exact in any order, so equality is to the last bit.
        4 => (-80_i64..80).prop_map(|v| Value::Float(v as f64 / 8.0)),
        1 => any::<bool>().prop_map(Value::Bool),
        1 => Just(Value::Float(f64::NAN)),
        1 => Just(Value::Int(i64::MAX / 8)),
        1 => proptest::sample::select(vec!["", "x", "X", "12", "1.5", "7up", "-3 ", "abc"])
            .prop_map(Value::text),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..TABLES.len(), [0..4_u8, 0..3_u8], value()).prop_map(|(t, l, v)| Step::Add(t, l, v)),
        6 => (any::<usize>(), value()).prop_map(|(n, v)| Step::Set(n, v)),
        1 => any::<usize>().prop_map(Step::Remove),
        1 => Just(Step::Evaluate),
    ]
}

fn sample() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (any::<usize>(), value()).prop_map(|(n, v)| Step::Set(n, v)),
        1 => Just(Step::Evaluate),
    ]
}

/// The text of an expression over the given leaves.
fn expr(leaf: BoxedStrategy<String>) -> BoxedStrategy<String> {
    let literal =
        proptest::sample::select(vec!["0", "1", "-3", "2.5", "NULL", "'x'", "'12'", "TRUE"]);
    let leaf = prop_oneof![3 => leaf, 1 => literal.prop_map(str::to_owned)];
    leaf.prop_recursive(3, 12, 3, |inner| {
        let two = (inner.clone(), inner.clone());
        let op = proptest::sample::select(vec![
            "+", "-", "*", "/", "%", "=", "<>", "<", "<=", ">", ">=", "AND", "OR", "LIKE", "GLOB",
        ]);
        let function = proptest::sample::select(vec!["coalesce", "nullif", "min", "max", "ifnull"]);
        prop_oneof![
            6 => (two.clone(), op).prop_map(|((x, y), op)| format!("({x} {op} {y})")),
            2 => (two.clone(), function).prop_map(|((x, y), f)| format!("{f}({x}, {y})")),
            1 => inner.clone().prop_map(|x| format!("(- {x})")),
            1 => inner.clone().prop_map(|x| format!("(NOT {x})")),
            1 => inner.clone().prop_map(|x| format!("({x} IS NOT NULL)")),
            1 => inner.clone().prop_map(|x| format!("round({x})")),
            1 => inner.clone().prop_map(|x| format!("abs({x})")),
            1 => two.clone().prop_map(|(x, y)| format!("({x} IN ({y}, 1, 'x'))")),
            1 => two.clone().prop_map(|(x, y)| format!("({x} NOT BETWEEN {y} AND 5)")),
            1 => two.clone().prop_map(|(x, y)| format!("iif({x}, {y}, 7)")),
            1 => two.prop_map(|(x, y)| format!("CASE {x} WHEN 1 THEN {y} WHEN 'x' THEN 2.5 END")),
        ]
    })
    .boxed()
}

fn columns(names: &'static [&'static str]) -> BoxedStrategy<String> {
    proptest::sample::select(names)
        .prop_map(str::to_owned)
        .boxed()
}

fn aggregate(arg: BoxedStrategy<String>) -> BoxedStrategy<String> {
    let name = proptest::sample::select(vec!["sum", "total", "avg", "min", "max", "count"]);
    prop_oneof![
        6 => (name, arg).prop_map(|(f, x)| format!("{f}({x})")),
        1 => Just("count(*)".to_owned()),
    ]
    .boxed()
}

/// A FROM clause, columns for use as numbers, and a label to group by.
fn sources() -> impl Strategy<Value = (&'static str, &'static [&'static str], &'static str)> {
    prop_oneof![
        2 => Just(("t", &["value", "value", "a", "b"] as &[_], "a")),
        1 => Just(("u AS v", &["v.value", "v.a", "node"] as &[_], "v.b")),
        1 => Just(("t JOIN u USING (a)", &["t.value", "u.value", "a", "u.b"] as &[_], "a")),
        1 => Just(("t JOIN u USING (a, b)", &["t.value", "u.value", "b"] as &[_], "b")),
        1 => Just(("t CROSS JOIN u", &["t.value", "u.value", "t.a"] as &[_], "t.a")),
    ]
}

/// A SELECT of one branch: all its columns except the value are labels.
fn select() -> impl Strategy<Value = String> {
    sources().prop_flat_map(|(from, names, label)| {
        let filter = prop_oneof![
            1 => Just(String::new()),
            1 => expr(columns(names)).prop_map(|e| format!(" WHERE {e}")),
            1 => (expr(columns(names)), Just(label))
                .prop_map(|(e, l)| format!(" WHERE {l} <> 'a1' AND {e}")),
        ];
        let grouped = (
            expr(aggregate(expr(columns(names)))),
            prop_oneof![Just(None), expr(aggregate(columns(names))).prop_map(Some)],
            filter.clone(),
            any::<bool>(),
        )
            .prop_map(move |(value, having, filter, all)| {
                let value = format!("coalesce(NULL, {value}, count(*) * NULL)");
                let having = having.map_or(String::new(), |h| format!(" HAVING {h}"));
                if all {
                    format!("SELECT {value} AS value FROM {from}{filter}{having}")
                } else {
                    format!(
                        "SELECT {label} AS k, {value} AS value FROM {from}{filter} GROUP BY {label}{having}"
                    )
                }
            });
        let plain = (expr(columns(names)), filter).prop_map(move |(value, filter)| match from {
            "t" => format!("SELECT a AS k, b AS l, {value} AS value FROM t{filter}"),
            "u AS v" => format!("SELECT v.a AS k, v.b AS l, {value} AS value FROM u AS v{filter}"),
            "t CROSS JOIN u" => format!(
                "SELECT t.a AS k, t.b AS l, u.a AS m, u.b AS n, {value} AS value FROM {from}{filter}"
            ),
            "t JOIN u USING (a, b)" => format!("SELECT a AS k, b AS l, {value} AS value FROM {from}{filter}"),
            _ => format!("SELECT a AS k, t.b AS l, u.b AS m, {value} AS value FROM {from}{filter}"),
        });
        prop_oneof![3 => grouped, 1 => plain]
    })
}

/// The streams of the test: key, table, label values, type, newest value and time.
#[derive(Default)]
struct World {
    streams: Vec<Known>,
    now: i64,
}

struct Known {
    key: StreamKey,
    table: usize,
    labels: [u8; 2],
    value_type: ValueType,
    newest: Option<Value>,
    ts: i64,
}

fn label_text(label: usize, value: u8) -> Option<String> {
    (value > 0).then(|| format!("{}{value}", LABELS[label]))
}

impl World {
    fn apply(&mut self, rig: &mut Rig, step: &Step) {
        self.now += 1;
        match step {
            Step::Add(table, labels, value) => {
                let twin = |k: &Known| k.table == *table && k.labels == *labels;
                if self.streams.iter().any(twin) {
                    return;
                }
                let pairs: Vec<String> = (0..LABELS.len())
                    .filter_map(|l| label_text(l, labels[l]).map(|v| format!("{}={v}", LABELS[l])))
                    .collect();
                let text = format!("{}{{{}}}", TABLES[*table], pairs.join(","));
                let value_type = value.value_type();
                let key = rig.add(&text, value_type);
                let (table, labels) = (*table, *labels);
                self.streams.push(Known {
                    key,
                    table,
                    labels,
                    value_type,
                    newest: None,
                    ts: 0,
                });
            }
            Step::Set(n, value) if !self.streams.is_empty() => {
                let at = n % self.streams.len();
                let known = &mut self.streams[at];
                let value = fit(value, known.value_type);
                let sample = Sample {
                    ts: self.now,
                    value: value.clone(),
                    quality: Quality::Measured,
                    error: 0.0,
                };
                rig.graph.sample(known.key, &sample);
                (known.newest, known.ts) = (Some(value), self.now);
            }
            Step::Remove(n) if !self.streams.is_empty() => {
                // The order of rows is kept, since min() takes the first of 1 and 1.0.
                let known = self.streams.remove(n % self.streams.len());
                rig.graph.stream_removed(known.key);
            }
            Step::Evaluate => rig.run(),
            _ => {}
        }
    }

    /// The same streams as SQLite tables.
    fn sqlite(&self) -> rusqlite::Connection {
        let sqlite = rusqlite::Connection::open_in_memory().unwrap();
        for (n, table) in TABLES.iter().enumerate() {
            sqlite
                .execute_batch(&format!(
                    "CREATE TABLE {table} (ts INTEGER, value, quality TEXT, error REAL, node TEXT, \
                     newest INTEGER, a TEXT, b TEXT)"
                ))
                .unwrap();
            for known in self.streams.iter().filter(|k| k.table == n) {
                let Some(value) = &known.newest else { continue };
                let value: Sql = match value {
                    Value::Int(v) => (*v).into(),
                    Value::Float(v) if v.is_nan() => Sql::Null,
                    Value::Float(v) => (*v).into(),
                    Value::Bool(v) => i64::from(*v).into(),
                    other => other.to_string().into(),
                };
                let (a, b) = (
                    label_text(0, known.labels[0]),
                    label_text(1, known.labels[1]),
                );
                let row: [&dyn ToSql; 4] = [&known.ts, &value, &a, &b];
                let insert = format!(
                    "INSERT INTO {table} VALUES (?1, ?2, 'measured', 0.0, 'n1', 1, ?3, ?4)"
                );
                sqlite.execute(&insert, row).unwrap();
            }
        }
        sqlite
    }
}

/// Converts a value to the stream's type, which never changes.
fn fit(value: &Value, value_type: ValueType) -> Value {
    match (value_type, value) {
        (ValueType::Int, v) => Value::Int(v.as_f64().unwrap_or(3.0) as i64 % 1_000),
        (ValueType::Float, v) => Value::Float(v.as_f64().unwrap_or(0.25)),
        (ValueType::Bool, v) => Value::Bool(v.as_f64().is_some_and(|v| v > 0.0)),
        (_, v) => Value::text(&v.to_string()),
    }
}

/// Rows by labels; 1 and 1.0 count as the same. `None` if SQLite fails.
fn ask(sqlite: &rusqlite::Connection, sql: &str) -> Option<BTreeMap<String, Vec<Sql>>> {
    let mut statement = sqlite.prepare(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
    let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let mut rows = statement.query([]).ok()?;
    let mut found: BTreeMap<String, Vec<Sql>> = BTreeMap::new();
    loop {
        let Some(row) = rows.next().ok()? else {
            return Some(found);
        };
        let mut labels = Vec::new();
        let mut value = Sql::Null;
        for (i, name) in names.iter().enumerate() {
            match (name.as_str(), row.get::<_, Sql>(i).unwrap()) {
                ("value", v) => value = v,
                (_, Sql::Null) => {}
                (name, Sql::Text(v)) => labels.push(format!("{name}={v}")),
                (name, other) => panic!("label {name} is {other:?}"),
            }
        }
        labels.sort();
        found.entry(labels.join(",")).or_default().push(value);
    }
}

/// Whether two values are equal; reals may differ by 1e-12 of their value, since the order of
/// summands matters.
fn same(ours: &Value, theirs: &Sql) -> bool {
    let close = |x: f64, y: f64| x == y || (x - y).abs() <= 1e-12 * x.abs().max(y.abs());
    match (ours, theirs) {
        (Value::Int(x), Sql::Integer(y)) => x == y,
        (Value::Float(x), Sql::Integer(y)) => close(*x, *y as f64),
        (Value::Float(x), Sql::Real(y)) => close(*x, *y),
        (Value::Text(x), Sql::Text(y)) => **x == **y,
        _ => false,
    }
}

/// Checks that the present rows of the insight `name` are exactly those of SQLite.
fn check(
    rig: &Rig,
    name: &str,
    sqlite: &rusqlite::Connection,
    sql: &str,
) -> Result<(), TestCaseError> {
    let ours: BTreeMap<String, Value> = rig
        .out
        .live
        .values()
        .filter(|(d, _)| d.name.as_str() == name)
        .filter_map(|(d, s)| s.as_ref().map(|s| (d, s)))
        .map(|(d, s)| {
            let pairs: Vec<String> = d.labels.iter().map(|(n, v)| format!("{n}={v}")).collect();
            (pairs.join(","), s.value.clone())
        })
        .collect();
    // If SQLite fails as a whole, the insight fails in some groups and continues in others.
    let Some(theirs) = ask(sqlite, sql) else {
        return Ok(());
    };
    let theirs: BTreeMap<String, Sql> = theirs
        .into_iter()
        .filter(|(_, values)| values.len() == 1)
        .map(|(labels, mut values)| (labels, values.remove(0)))
        .filter(|(_, value)| *value != Sql::Null)
        .collect();
    let labels = |keys: Vec<&String>| keys.into_iter().cloned().collect::<Vec<_>>();
    prop_assert_eq!(
        labels(ours.keys().collect()),
        labels(theirs.keys().collect()),
        "{}\n{:?}\n{:?}",
        sql,
        ours,
        theirs
    );
    for (labels, value) in &ours {
        prop_assert!(
            same(value, &theirs[labels]),
            "{}\n{{{}}} {:?} {:?}",
            sql,
            labels,
            value,
            theirs[labels]
        );
    }
    Ok(())
}

fn rig() -> Rig {
    let mut rig = Rig::default();
    for table in TABLES {
        rig.graph
            .know_metric(&barograph_model::Name::new(table).unwrap());
    }
    rig
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn an_insight_is_its_select(
        sql in select(),
        steps in proptest::collection::vec(step(), 0..60),
        samples in proptest::collection::vec(sample(), 0..60),
    ) {
        let mut rig = rig();
        rig.create(&format!("CREATE INSIGHT o AS {sql}")).unwrap_or_else(|e| panic!("{sql}: {e}"));
        let mut world = World::default();
        for step in &steps {
            world.apply(&mut rig, step);
        }
        rig.run();
        check(&rig, "o", &world.sqlite(), &sql)?;
        // No stream comes or goes from here on: everything is computed by increments.
        for step in &samples {
            world.apply(&mut rig, step);
        }
        rig.run();
        check(&rig, "o", &world.sqlite(), &sql)?;
    }

    #[test]
    fn an_insight_on_an_insight_is_a_select_on_its_rows(
        inner in select(),
        outer in expr(aggregate(columns(&["value", "value"]))),
        union in any::<bool>(),
        steps in proptest::collection::vec(step(), 0..60),
    ) {
        let mut rig = rig();
        let union = if union { " UNION ALL SELECT count(*) FROM t" } else { "" };
        rig.create(&format!("CREATE INSIGHT i AS {inner}")).unwrap();
        rig.create(&format!("CREATE INSIGHT o AS SELECT {outer} AS value FROM i{union}")).unwrap();
        let mut world = World::default();
        for step in &steps {
            world.apply(&mut rig, step);
        }
        rig.run();
        let sqlite = world.sqlite();
        // The inner insight's result is checked above; here it is the outer insight's input.
        sqlite.execute_batch("CREATE TABLE i (value)").unwrap();
        for (descriptor, sample) in rig.out.live.values() {
            if let (true, Some(sample)) = (descriptor.name.as_str() == "i", sample) {
                let value: Sql = match &sample.value {
                    Value::Int(v) => (*v).into(),
                    Value::Float(v) => (*v).into(),
                    Value::Bool(v) => i64::from(*v).into(),
                    other => other.to_string().into(),
                };
                sqlite.execute("INSERT INTO i VALUES (?1)", [value]).unwrap();
            }
        }
        check(&rig, "o", &sqlite, &format!("SELECT {outer} AS value FROM i{union}"))?;
    }
}
