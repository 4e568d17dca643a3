//! `CREATE INSIGHT …` and `DROP INSIGHT …`, from text to a statement.

use barograph_model::{Name, Unit};
use barograph_statement::ast::Query;
use barograph_statement::{StatementAction, StatementKind, StatementWords, statement_head};

use crate::InsightError;

#[derive(Debug)]
pub(crate) enum InsightStatement {
    Create(Box<CreateInsight>),
    Drop { name: String, if_exists: bool },
}

/// `CREATE [OR REPLACE] INSIGHT name [ON CLUSTER] [UNIT 'u'] [HELP 'h'] AS SELECT …`.
#[derive(Debug)]
pub(crate) struct CreateInsight {
    pub name: Name,
    pub or_replace: bool,
    pub unit: Option<Unit>,
    pub help: Option<String>,
    pub query: Query,
}

/// Reads a CREATE or DROP statement.
pub(crate) fn parse(sql: &str) -> Result<InsightStatement, InsightError> {
    let mut words = StatementWords::new(sql)?;
    match statement_head(StatementKind::Insight, &mut words)? {
        StatementAction::Create { or_replace } => Ok(InsightStatement::Create(Box::new(create(
            words, or_replace,
        )?))),
        StatementAction::Drop { if_exists } => {
            let name = words.dotted_name();
            on_cluster(&mut words)?;
            words.end()?;
            Ok(InsightStatement::Drop { name, if_exists })
        }
    }
}

/// Reads the SELECT of a CREATE statement, or a SELECT alone.
pub(crate) fn parse_select(sql: &str) -> Result<Query, InsightError> {
    let mut words = StatementWords::new(sql)?;
    if words.at_keyword("SELECT") {
        return Ok(words.query()?);
    }
    match parse(sql)? {
        InsightStatement::Create(create) => Ok(create.query),
        InsightStatement::Drop { .. } => Err(InsightError::statement(
            "there is nothing to test in a DROP: give a SELECT",
        )),
    }
}

fn create(mut words: StatementWords, or_replace: bool) -> Result<CreateInsight, InsightError> {
    let name = Name::new(words.dotted_name())?;
    on_cluster(&mut words)?;
    let (mut unit, mut help) = (None, None);
    loop {
        if unit.is_none() && words.keyword("UNIT") {
            unit = Some(Unit::new(words.text("UNIT 'bytes'")?)?);
        } else if help.is_none() && words.keyword("HELP") {
            help = Some(words.text("HELP 'what it means'")?);
        } else {
            break;
        }
    }
    words.expect("AS")?;
    Ok(CreateInsight {
        name,
        or_replace,
        unit,
        help,
        query: words.query()?,
    })
}

/// Takes `ON CLUSTER`. For the graph it makes no difference: whoever hands it such a statement has
/// decided that this node computes the insight.
fn on_cluster(words: &mut StatementWords) -> Result<(), InsightError> {
    if words.keyword("ON") {
        words.expect("CLUSTER")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_statements() {
        let check = |sql: &str, expect: &str| {
            let seen = match parse(sql) {
                Ok(InsightStatement::Create(c)) => {
                    let CreateInsight {
                        name,
                        or_replace,
                        unit,
                        help,
                        query,
                    } = *c;
                    format!("{name} {or_replace} {unit:?} {help:?} {query}")
                }
                Ok(InsightStatement::Drop { name, if_exists }) => {
                    format!("drop {name} {if_exists}")
                }
                Err(e) => e.to_string(),
            };
            assert_eq!(seen, expect, "{sql}");
        };
        check(
            "create insight a.b AS SELECT 1 FROM t;",
            "a.b false None None SELECT 1 FROM t",
        );
        check(
            "-- what\nCREATE OR REPLACE INSIGHT a1.b_2.3c UNIT 'x' HELP 'it''s' AS SELECT 1 FROM t -- end",
            r#"a1.b_2.3c true Some(Unit("x")) Some("it's") SELECT 1 FROM t"#,
        );
        check(
            "CREATE INSIGHT \"a.b\" HELP 'h' UNIT 'x' AS SELECT 1",
            r#"a.b false Some(Unit("x")) Some("h") SELECT 1"#,
        );
        check("DROP INSIGHT IF EXISTS a.b ;", "drop a.b true");
        check("drop insight a.b", "drop a.b false");
        check(
            "DROP INSIGHT a.b c",
            "expected the end of the statement, found c",
        );
        check("DROP TABLE a", "expected INSIGHT, found TABLE");
        check(
            "SELECT 1",
            "write CREATE INSIGHT name AS SELECT … or DROP INSIGHT name",
        );
        check(
            "",
            "write CREATE INSIGHT name AS SELECT … or DROP INSIGHT name",
        );
        check("CREATE INSIGHT a.b SELECT 1", "expected AS, found SELECT");
        check(
            "CREATE INSIGHT a.b UNIT bytes AS SELECT 1",
            "expected UNIT 'bytes', found bytes",
        );
        check(
            "CREATE INSIGHT a.b AS SELECT 1; SELECT 2",
            "expected the end of the statement, found SELECT",
        );
        for bad in [
            "CREATE INSIGHT A.b AS SELECT 1",
            "CREATE INSIGHT AS SELECT 1",
            "CREATE INSIGHT",
        ] {
            let seen = parse(bad).unwrap_err().to_string();
            assert!(seen.starts_with("stream name"), "{bad}: {seen}");
        }
    }

    #[test]
    fn on_cluster_comes_after_the_name() {
        let create = |place: &str| {
            parse(&format!(
                "CREATE INSIGHT a.b {place} HELP 'h' AS SELECT 1 FROM t"
            ))
        };
        assert!(matches!(
            create("ON CLUSTER"),
            Ok(InsightStatement::Create(create)) if create.help.as_deref() == Some("h")
        ));
        assert_eq!(
            create("ON NODE").unwrap_err().to_string(),
            "expected CLUSTER, found NODE"
        );
        assert!(parse("DROP INSIGHT a.b ON CLUSTER").is_ok());
    }

    #[test]
    fn bounds() {
        let deep = format!(
            "CREATE INSIGHT a AS SELECT {}1{}",
            "(".repeat(900),
            ")".repeat(900)
        );
        let long = format!("CREATE INSIGHT a AS SELECT 1{}", "+1".repeat(2_000));
        let huge = "x".repeat(barograph_statement::SQL_BYTES_MAX + 1);
        for (sql, expect) in [
            (
                deep,
                "cannot read the SELECT: sql parser error: recursion limit exceeded",
            ),
            (
                long,
                "a statement of 4006 words and signs: at most 2000 (TOKENS_MAX)",
            ),
            (
                huge,
                "a statement of 16385 bytes: at most 16384 (sql_bytes_max)",
            ),
        ] {
            let seen = parse(&sql).unwrap_err().to_string();
            assert_eq!(seen.to_lowercase(), expect.to_lowercase());
        }
    }
}
