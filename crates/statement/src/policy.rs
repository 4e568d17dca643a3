//! `CREATE POLICY …` and `DROP POLICY …`, from text to clauses.
//!
//! This module is separate because the crate that owns policies is another one. Numbers and
//! patterns are passed on as they were written; their owner checks them and knows the defaults.

use barograph_model::NS_PER_MS;

use crate::{
    StatementAction, StatementError, StatementKind, StatementWords, length_ns, statement_head,
};

/// Keywords of the clauses. Each clause may appear once, in any order.
const CLAUSES: [&str; 8] = [
    "KIND",
    "ERROR",
    "CONFIDENCE",
    "BETWEEN",
    "SENTINEL",
    "PRESSURE",
    "WEIGHT",
    "HELP",
];

/// A statement on policies.
#[derive(Clone, Debug, PartialEq)]
pub enum PolicyStatement {
    /// `CREATE [OR REPLACE] POLICY name FOR 'pattern'[, …] …`
    Create {
        /// Whether an existing policy of this name is replaced.
        or_replace: bool,
        /// The clauses of the policy.
        policy: Box<PolicyText>,
    },
    /// `DROP POLICY [IF EXISTS] name`
    Drop {
        /// Name of the policy, not checked yet.
        name: String,
        /// Whether a missing policy is no error.
        if_exists: bool,
    },
}

/// A policy as it was written; `None` for a clause that was left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PolicyText {
    /// Name of the policy, not checked yet.
    pub name: String,
    /// Patterns of streams, at least one, not checked yet.
    pub streams: Vec<String>,
    /// `KIND 'error_bounded'`: the kind of interval policy, not checked yet.
    pub kind: Option<String>,
    /// `ERROR '1 %'`: the greatest error, not checked yet.
    pub error: Option<String>,
    /// `CONFIDENCE 0.95`: a number of at least 0.
    pub confidence: Option<f64>,
    /// `BETWEEN '100 ms' AND '1 min'`: the shortest and the longest time between looks, in ms.
    pub between_ms: Option<(u64, u64)>,
    /// `SENTINEL 'disk.write.bytes{device=vda}'`: a pattern of cheap streams, not checked yet.
    pub sentinel: Option<String>,
    /// `PRESSURE 'io some 150ms 2s'`: a pressure trigger of the kernel, not checked yet.
    pub pressure: Option<String>,
    /// `WEIGHT 2`: a number of at least 0.
    pub weight: Option<f64>,
    /// `HELP 'what it is for'`: the purpose of the policy.
    pub help: Option<String>,
}

impl PolicyStatement {
    /// Reads a statement.
    pub fn parse(sql: &str) -> Result<Self, StatementError> {
        let mut words = StatementWords::new(sql)?;
        match statement_head(StatementKind::Policy, &mut words)? {
            StatementAction::Create { or_replace } => {
                let policy = Box::new(create(words)?);
                Ok(Self::Create { or_replace, policy })
            }
            StatementAction::Drop { if_exists } => {
                let name = name(&mut words)?;
                words.end()?;
                Ok(Self::Drop { name, if_exists })
            }
        }
    }
}

fn name(words: &mut StatementWords) -> Result<String, StatementError> {
    let name = words.dotted_name();
    if name.is_empty() {
        return Err(words.unexpected("the name of the policy"));
    }
    Ok(name)
}

fn create(mut words: StatementWords) -> Result<PolicyText, StatementError> {
    if words.at_keyword("FOR") {
        return Err(words.unexpected("the name of the policy"));
    }
    let mut policy = PolicyText {
        name: name(&mut words)?,
        ..PolicyText::default()
    };
    const FOR: &str = "FOR 'disk.read.bytes'";
    if !words.keyword("FOR") {
        return Err(words.unexpected(FOR));
    }
    policy.streams.push(words.text(FOR)?);
    while words.comma() {
        policy.streams.push(words.text("another 'pattern'")?);
    }
    let mut seen = [false; CLAUSES.len()];
    while let Some(at) = CLAUSES.iter().position(|clause| words.keyword(clause)) {
        if std::mem::replace(&mut seen[at], true) {
            let clause = CLAUSES[at];
            return Err(StatementError::new(format!("{clause} stands twice")));
        }
        read_clause(CLAUSES[at], &mut words, &mut policy)?;
    }
    if !words.at_end() {
        return Err(words.unexpected(&format!(
            "{} or the end of the statement",
            CLAUSES.join(", ")
        )));
    }
    words.end()?;
    Ok(policy)
}

/// Reads the rest of a clause, after its keyword.
fn read_clause(
    clause: &str,
    words: &mut StatementWords,
    policy: &mut PolicyText,
) -> Result<(), StatementError> {
    match clause {
        "KIND" => policy.kind = Some(words.text("KIND 'error_bounded'")?),
        "ERROR" => policy.error = Some(words.text("ERROR '1 %'")?),
        "CONFIDENCE" => policy.confidence = Some(words.number("CONFIDENCE 0.95")?),
        "BETWEEN" => policy.between_ms = Some(between_ms(words)?),
        "SENTINEL" => policy.sentinel = Some(words.text("SENTINEL 'disk.write.bytes'")?),
        "PRESSURE" => policy.pressure = Some(words.text("PRESSURE 'io some 150ms 2s'")?),
        "WEIGHT" => policy.weight = Some(words.number("WEIGHT 2")?),
        _ => policy.help = Some(words.text("HELP 'what it is for'")?),
    }
    Ok(())
}

fn between_ms(words: &mut StatementWords) -> Result<(u64, u64), StatementError> {
    const EXAMPLE: &str = "BETWEEN '100 ms' AND '1 min'";
    let min_ms = ms(&words.text(EXAMPLE)?)?;
    if !words.keyword("AND") {
        return Err(words.unexpected(&format!("AND, as in {EXAMPLE}")));
    }
    let max_ms = ms(&words.text(EXAMPLE)?)?;
    if max_ms < min_ms {
        return Err(StatementError::new(format!(
            "BETWEEN: the shortest time between looks stands first, as in {EXAMPLE}"
        )));
    }
    Ok((min_ms, max_ms))
}

fn ms(text: &str) -> Result<u64, StatementError> {
    let ns = length_ns(text)?;
    match u64::try_from(ns / NS_PER_MS) {
        Ok(ms) if ns % NS_PER_MS == 0 => Ok(ms),
        _ => Err(StatementError::new(format!(
            "BETWEEN '{text}': times between looks are whole milliseconds"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn error(sql: &str) -> String {
        PolicyStatement::parse(sql).unwrap_err().to_string()
    }

    fn created(sql: &str) -> (bool, PolicyText) {
        match PolicyStatement::parse(sql) {
            Ok(PolicyStatement::Create { or_replace, policy }) => (or_replace, *policy),
            other => panic!("{sql}: {other:?}"),
        }
    }

    #[test]
    fn what_is_not_said_is_not_there() {
        let (or_replace, policy) = created("create policy a FOR 'disk.*'");
        let expect = PolicyText {
            name: "a".into(),
            streams: vec!["disk.*".into()],
            ..PolicyText::default()
        };
        assert_eq!((or_replace, policy), (false, expect));
    }

    #[test]
    fn every_clause_is_read() {
        let (or_replace, policy) = created(
            "-- why\nCREATE OR REPLACE POLICY full.disks_2 FOR 'filesystem.*{mount=/}' , 'disk.busy.ratio'\n\
             KIND 'error_bounded' ERROR '1 %' CONFIDENCE 0.95 BETWEEN '100 ms' AND '1min' \
             SENTINEL 'disk.write.bytes{device=vda}' PRESSURE 'io some 150ms 2s' WEIGHT 2 HELP 'it''s full' ;",
        );
        let expect = PolicyText {
            name: "full.disks_2".into(),
            streams: vec!["filesystem.*{mount=/}".into(), "disk.busy.ratio".into()],
            kind: Some("error_bounded".into()),
            error: Some("1 %".into()),
            confidence: Some(0.95),
            between_ms: Some((100, 60_000)),
            sentinel: Some("disk.write.bytes{device=vda}".into()),
            pressure: Some("io some 150ms 2s".into()),
            weight: Some(2.0),
            help: Some("it's full".into()),
        };
        assert_eq!((or_replace, policy), (true, expect));
    }

    #[test]
    fn clauses_stand_in_any_order() {
        let (_, one) =
            created("CREATE POLICY a FOR 'x' WEIGHT .5 HELP 'h' ERROR '2' CONFIDENCE 1e-1");
        let (_, other) =
            created("CREATE POLICY \"a\" FOR 'x' CONFIDENCE 0.1 ERROR '2' HELP 'h' WEIGHT 0.5");
        assert_eq!(one, other);
    }

    #[test]
    fn drops() {
        let check = |sql: &str, name: &str, if_exists: bool| {
            let name = name.to_owned();
            let expect = PolicyStatement::Drop { name, if_exists };
            assert_eq!(PolicyStatement::parse(sql), Ok(expect), "{sql}");
        };
        check("DROP POLICY a.b", "a.b", false);
        check("drop policy if exists a ;", "a", true);
        check("DROP POLICY \"a.b\"", "a.b", false);
    }

    #[test]
    fn what_is_wrong_is_named_with_what_would_be_right() {
        let check = |sql: &str, expect: &str| assert_eq!(error(sql), expect, "{sql}");
        let usage =
            "write CREATE POLICY name FOR 'pattern of streams' ERROR '1 %' or DROP POLICY name";
        check("", usage);
        check("SELECT 1", usage);
        check("POLICY a", usage);
        check("CREATE INSIGHT a", "expected POLICY, found INSIGHT");
        check("CREATE OR POLICY a", "expected REPLACE, found POLICY");
        check("DROP TRIGGER a", "expected POLICY, found TRIGGER");
        check("DROP POLICY IF a", "expected EXISTS, found a");
        check(
            "DROP POLICY",
            "expected the name of the policy, found the end",
        );
        check(
            "DROP POLICY a b",
            "expected the end of the statement, found b",
        );
        check(
            "CREATE POLICY",
            "expected the name of the policy, found the end",
        );
        check(
            "CREATE POLICY FOR 'x'",
            "expected the name of the policy, found FOR",
        );
    }

    #[test]
    fn a_clause_that_is_wrong_is_shown_as_it_should_be() {
        let of = |rest: &str, expect: &str| {
            let sql = format!("CREATE POLICY a {rest}");
            assert_eq!(error(&sql), expect, "{sql}");
        };
        of("", "expected FOR 'disk.read.bytes', found the end");
        of("ON 'x'", "expected FOR 'disk.read.bytes', found ON");
        of("FOR x", "expected FOR 'disk.read.bytes', found x");
        of("FOR \"x\"", "expected FOR 'disk.read.bytes', found \"x\"");
        of("FOR 'x',", "expected another 'pattern', found the end");
        of(
            "FOR 'x', ERROR '1 %'",
            "expected another 'pattern', found ERROR",
        );
        of(
            "FOR 'x' KIND fixed",
            "expected KIND 'error_bounded', found fixed",
        );
        of("FOR 'x' ERROR 1 %", "expected ERROR '1 %', found 1");
        of(
            "FOR 'x' CONFIDENCE '95 %'",
            "expected CONFIDENCE 0.95, found '95 %'",
        );
        of("FOR 'x' CONFIDENCE -1", "expected CONFIDENCE 0.95, found -");
        of("FOR 'x' WEIGHT 1e999", "expected WEIGHT 2, found 1e999");
        of("FOR 'x' WEIGHT", "expected WEIGHT 2, found the end");
        of(
            "FOR 'x' SENTINEL",
            "expected SENTINEL 'disk.write.bytes', found the end",
        );
        of(
            "FOR 'x' PRESSURE io",
            "expected PRESSURE 'io some 150ms 2s', found io",
        );
        of(
            "FOR 'x' HELP help",
            "expected HELP 'what it is for', found help",
        );
        of("FOR 'x' ERROR '1 %' ERROR '2 %'", "ERROR stands twice");
        of(
            "FOR 'x' EVERY '5 s'",
            "expected KIND, ERROR, CONFIDENCE, BETWEEN, SENTINEL, PRESSURE, WEIGHT, HELP or the end of the \
             statement, found EVERY",
        );
        of(
            "FOR 'x'; DROP POLICY a",
            "expected the end of the statement, found DROP",
        );
    }

    #[test]
    fn times_between_looks_have_units_and_an_order() {
        let of = |rest: &str, expect: &str| {
            let message = error(&format!("CREATE POLICY a FOR 'x' BETWEEN {rest}"));
            assert!(message.contains(expect), "{rest}: {message}");
        };
        of("1", "expected BETWEEN '100 ms' AND '1 min', found 1");
        of("'1 s'", "expected AND, as in BETWEEN '100 ms' AND '1 min'");
        of("'1 s' OR '2 s'", "found OR");
        of("'1 s' AND", "found the end");
        of("'1' AND '2 s'", "'1' is not a length of time");
        of("'soon' AND '2 s'", "'soon' is not a length of time");
        of("'0 s' AND '2 s'", "'0 s' is not a length of time");
        of("'-1 s' AND '2 s'", "'-1 s' is not a length of time");
        of("'500 us' AND '2 s'", "whole milliseconds");
        of("'1 s' AND '1500500 us'", "whole milliseconds");
        of(
            "'1 min' AND '1 s'",
            "the shortest time between looks stands first",
        );
        let (_, same) = created("CREATE POLICY a FOR 'x' BETWEEN '5 s' AND '5 s'");
        assert_eq!(same.between_ms, Some((5_000, 5_000)));
    }

    #[test]
    fn statements_are_bounded() {
        let long = format!("CREATE POLICY a FOR '{}'", "x".repeat(16_384));
        assert!(error(&long).contains("SQL_BYTES_MAX"), "{}", error(&long));
        let many = format!("CREATE POLICY a FOR 'x'{}", ",'x'".repeat(1_000));
        assert!(error(&many).contains("TOKENS_MAX"), "{}", error(&many));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(sql in "\\PC{0,80}") {
            let _ = PolicyStatement::parse(&sql);
        }

        #[test]
        fn any_words_are_read_or_refused(words in prop::collection::vec(prop::sample::select(vec![
            "CREATE", "OR", "REPLACE", "POLICY", "DROP", "IF", "EXISTS", "FOR", "KIND", "ERROR", "CONFIDENCE",
            "BETWEEN", "AND", "SENTINEL", "PRESSURE", "WEIGHT", "HELP", "a.b", "'x'", "'1 %'", "'5 s'", "'", "\"",
            ",", ";", "-", "(", "0.5", "1e999", "9223372036854775807", "'99999999999 d'", "é", "--", "/*", "\0",
        ]), 0..24)) {
            let _ = PolicyStatement::parse(&words.join(" "));
            let _ = PolicyStatement::parse(&format!("CREATE POLICY a FOR 'x' {}", words.join(" ")));
        }
    }
}
