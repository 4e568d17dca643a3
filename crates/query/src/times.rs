//! Times as people write them in SQL: a text that is compared with a time column is read as a time.
//!
//! For SQLite every text is greater than every integer, so `ts > '-10m'` would never be true,
//! without an error. The text becomes `instant('-10m')`, which bounds a scan, or refuses the text.
//!
//! A statement may also give a text the name of a time column: `iso(ts) AS ts`. In WHERE, HAVING
//! and ON of the same SELECT, SQLite takes `ts` for the column of the table all the same. Only
//! outside of that SELECT the name may mean the text. There the text becomes `instant_beside(ts,
//! '-10m')`, which looks at the value of `ts` in each row.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::RangeInclusive;

use crate::text::Token;

/// Functions that return a time if their arguments are times; others may return a text.
const OF_TIMES: [&str; 12] = [
    "max", "min", "avg", "sum", "abs", "round", "coalesce", "ifnull", "instant", "now_ns", "lag",
    "lead",
];
/// Most tokens that are searched for the beginning of an expression: statements may be long and
/// hostile.
const EXPRESSION_TOKENS_MAX: usize = 256;
/// Most columns of one name that may be texts…
const TEXTS_MAX: usize = 8;
/// …and most parentheses around a comparison of which it is found out what a name means. Beyond
/// that each row decides.
const DEPTH_MAX: usize = 64;

/// Rewrites each text literal that is compared with a time column to a time: `ts > '-10m'` becomes
/// `ts > instant('-10m')`.
pub(crate) fn with_instants<'a>(sql: &'a str, tokens: &[Token<'_>]) -> Cow<'a, str> {
    let mut compared: Vec<(usize, RangeInclusive<usize>)> = Vec::new();
    for at in (0..tokens.len()).filter(|at| tokens[*at].is_time()) {
        let operand = operand(tokens, at);
        for literal in beside(tokens, &operand) {
            compared.push((literal, operand.clone()));
        }
    }
    compared.sort_unstable_by_key(|(literal, _)| *literal);
    compared.dedup_by_key(|(literal, _)| *literal);
    let groups = Groups::of(tokens);
    let texts = possible_texts(tokens, &groups);
    let mut out = String::new();
    let mut copied = 0;
    for (at, operand) in compared {
        // `'it''s'` is two tokens, and no time.
        let is_whole = tokens.get(at + 1).is_none_or(|t| !t.text.starts_with('\''));
        let Some(literal) = tokens
            .get(at)
            .filter(|t| t.text.starts_with('\'') && is_whole)
        else {
            continue;
        };
        out.push_str(&sql[copied..literal.start()]);
        let column = &sql[tokens[*operand.start()].start()..tokens[*operand.end()].end];
        match may_be_text(tokens, &groups, &texts, &operand) {
            false => out.push_str(&format!("instant({})", literal.text)),
            true => out.push_str(&format!("instant_beside({column}, {})", literal.text)),
        }
        copied = literal.end;
    }
    if copied == 0 {
        return Cow::Borrowed(sql);
    }
    out.push_str(&sql[copied..]);
    Cow::Owned(out)
}

/// The tokens of the operand with the time column at `at`: `ts`, `t.ts` or `max(t.ts)`.
fn operand(tokens: &[Token<'_>], at: usize) -> RangeInclusive<usize> {
    let mut first = at;
    // Of a schema and a table at most.
    for _ in 0..2 {
        if first >= 2 && tokens[first - 1].text == "." && tokens[first - 2].is_word {
            first -= 2;
        }
    }
    let is_alone = first >= 2
        && tokens[first - 1].text == "("
        && tokens[first - 2].is_any(&["max", "min"])
        && tokens.get(at + 1).is_some_and(|t| t.text == ")");
    if is_alone {
        first - 2..=at + 1
    } else {
        first..=at
    }
}

/// The places at which a literal would be compared with this operand.
fn beside(tokens: &[Token<'_>], operand: &RangeInclusive<usize>) -> Vec<usize> {
    let mut places = Vec::new();
    let (before, after) = (&tokens[..*operand.start()], &tokens[operand.end() + 1..]);
    let next = operand.end() + 1;
    let signs = after.iter().take_while(|t| t.is_comparison()).count();
    if signs > 0 {
        places.push(next + signs);
    }
    let signs = before.iter().rev().take_while(|t| t.is_comparison());
    if let Some(left @ 1..) = before.len().checked_sub(signs.count())
        && left < before.len()
    {
        places.push(left - 1);
    }
    let negated = usize::from(after.first().is_some_and(|t| t.is("NOT")));
    let first = next + negated + 1;
    if after.get(negated).is_some_and(|t| t.is("BETWEEN")) {
        places.push(first);
        if tokens.get(first + 1).is_some_and(|t| t.is("AND")) {
            places.push(first + 2);
        }
    }
    // `IN ('…', '…')`
    let is_list = tokens.get(first).is_some_and(|t| t.text == "(");
    if is_list && after.get(negated).is_some_and(|t| t.is("IN")) {
        let mut at = first + 1;
        places.push(at);
        while tokens.get(at + 1).is_some_and(|t| t.text == ",") {
            at += 2;
            places.push(at);
        }
    }
    places
}

/// Parentheses around each token.
struct Groups {
    /// The group of each token; group 0 is in no parentheses. A parenthesis itself belongs to the
    /// group around it.
    of: Vec<usize>,
    /// The group around each group; that of group 0 is itself.
    around: Vec<usize>,
    /// The closing parenthesis of each group.
    closing: Vec<usize>,
}

impl Groups {
    fn of(tokens: &[Token<'_>]) -> Self {
        let mut groups = Self {
            of: Vec::with_capacity(tokens.len()),
            around: vec![0],
            closing: vec![tokens.len()],
        };
        let mut group = 0;
        for (at, token) in tokens.iter().enumerate() {
            if token.text == ")" {
                groups.closing[group] = at;
                group = groups.around[group];
            }
            groups.of.push(group);
            if token.text == "(" {
                groups.around.push(group);
                groups.closing.push(tokens.len());
                group = groups.around.len() - 1;
            }
        }
        groups
    }

    /// Whether a token is in this group or in one within it; false if it is too deep to tell.
    fn has(&self, group: usize, at: usize) -> bool {
        let mut inner = self.of[at];
        for _ in 0..DEPTH_MAX {
            if inner == group {
                return true;
            }
            inner = self.around[inner];
        }
        false
    }
}

/// A column of a SELECT that has the name of a time and may be a text.
struct PossibleText {
    group: usize,
    /// Whether its SELECT also reads a table's column of this name.
    is_column_too: bool,
}

/// The columns that may be texts, by name in lower case.
fn possible_texts(tokens: &[Token<'_>], groups: &Groups) -> HashMap<String, Vec<PossibleText>> {
    let mut found: HashMap<String, Vec<PossibleText>> = HashMap::new();
    for at in (1..tokens.len()).filter(|at| tokens[*at].is_time()) {
        let before = &tokens[at - 1];
        let expression = match before.text {
            _ if before.is("AS") => at.checked_sub(2),
            // Without AS: `iso(ts) ts`.
            ")" => Some(at - 1),
            text if text.starts_with('\'') => Some(at - 1),
            _ => None,
        };
        let group = groups.of[at];
        let possible = match expression {
            Some(end) if !is_time_expression(tokens, end) => PossibleText {
                group,
                is_column_too: reads(tokens, end, groups, tokens[at].name()),
            },
            // `WITH x(ts) AS (…)`
            _ if group > 0 && begins_cte(tokens, groups.closing[group]) => PossibleText {
                group,
                is_column_too: false,
            },
            _ => continue,
        };
        let name = tokens[at].name().to_ascii_lowercase();
        let texts = found.entry(name).or_default();
        // One more says that there are too many.
        if texts.len() <= TEXTS_MAX {
            texts.push(possible);
        }
    }
    found
}

/// Whether the expression that ends at `end` is surely a time: a time column, or a function of
/// times.
fn is_time_expression(tokens: &[Token<'_>], end: usize) -> bool {
    if tokens[end].text != ")" {
        return tokens[end].is_time();
    }
    let mut depth = 0_usize;
    let near = end.saturating_sub(EXPRESSION_TOKENS_MAX)..=end;
    for at in near.rev() {
        let is_call = at > 0 && tokens[at - 1].is_word;
        match tokens[at].text {
            ")" => depth += 1,
            "(" if is_call && !tokens[at - 1].is_any(&OF_TIMES) => return false,
            "(" => depth -= 1,
            text if text.starts_with('\'') && !follows_instant(tokens, at) => return false,
            _ => {}
        }
        if depth == 0 {
            return is_call;
        }
    }
    false
}

/// Whether the token is the first argument of `instant`.
fn follows_instant(tokens: &[Token<'_>], at: usize) -> bool {
    let before = tokens[..at].last_chunk();
    before.is_some_and(|[name, open]: &[Token<'_>; 2]| name.is("instant") && open.text == "(")
}

/// Whether a result column that ends at `end` reads a column of this name.
fn reads(tokens: &[Token<'_>], end: usize, groups: &Groups, name: &str) -> bool {
    let group = groups.of[end];
    let near = end.saturating_sub(EXPRESSION_TOKENS_MAX)..=end;
    let mut is_read = false;
    for at in near.rev() {
        let token = &tokens[at];
        if token.is("SELECT") {
            // The SELECT of the column itself, or one in it, whose columns are of other tables.
            return is_read && groups.of[at] == group;
        }
        if token.text == "," && groups.of[at] == group {
            return is_read;
        }
        is_read |= token.is_word && token.name().eq_ignore_ascii_case(name);
    }
    false
}

/// Whether a closing parenthesis ends the list of columns of a common table expression.
fn begins_cte(tokens: &[Token<'_>], closing: usize) -> bool {
    let after = tokens.get(closing + 1..).unwrap_or_default();
    let [first, rest @ ..] = after else {
        return false;
    };
    let body = rest
        .iter()
        .take(3)
        .find(|t| !t.is_any(&["NOT", "MATERIALIZED"]))
        .is_some_and(|t| t.text == "(");
    first.is("AS") && body
}

/// Whether an operand may mean a text of that name where it is.
fn may_be_text(
    tokens: &[Token<'_>],
    groups: &Groups,
    texts: &HashMap<String, Vec<PossibleText>>,
    operand: &RangeInclusive<usize>,
) -> bool {
    let mut names = tokens[operand.clone()].iter().rev();
    let Some(name) = names.find(|t| t.is_word) else {
        return false;
    };
    let Some(texts) = texts.get(&name.name().to_ascii_lowercase()) else {
        return false;
    };
    let at = *operand.start();
    let is_column = |text: &PossibleText| text.is_column_too && groups.has(text.group, at);
    texts.len() > TEXTS_MAX || !texts.iter().all(is_column)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::{is_plain, tokens};

    #[test]
    fn texts_beside_times_are_times() {
        let check = |sql: &str, expect: &str| {
            assert_eq!(with_instants(sql, &tokens(sql)), expect);
            assert!(sql == expect || !is_plain(sql), "{sql}");
        };
        check("ts > '-10m'", "ts > instant('-10m')");
        check(
            "t.Timestamp IS NOT '-1h'",
            "t.Timestamp IS NOT instant('-1h')",
        );
        check(
            "SELECT 1 FROM t a WHERE a.ts >= '-1h' AND device = 'sda'",
            "SELECT 1 FROM t a WHERE a.ts >= instant('-1h') AND device = 'sda'",
        );
        check("'-1h'<=a.ts", "instant('-1h')<=a.ts");
        check("\"ts\"!='x'", "\"ts\"!=instant('x')");
        check(
            "sample_ts NOT between '-2h' AND '-1h' AND x='y'",
            "sample_ts NOT between instant('-2h') AND instant('-1h') AND x='y'",
        );
        check("TS BETWEEN 1 AND '-1h'", "TS BETWEEN 1 AND instant('-1h')");
        check(
            "SELECT max(t.ts) AS ts FROM t WHERE ts > '-1h'",
            "SELECT max(t.ts) AS ts FROM t WHERE ts > instant('-1h')",
        );
        check(
            "latest.looked > '-1h' OR UNTIL <> '-2h' OR Sample_TS < '-3h'",
            "latest.looked > instant('-1h') OR UNTIL <> instant('-2h') OR Sample_TS < instant('-3h')",
        );
        check(
            "ts NOT IN ('-1h', 5, '-2h') AND name IN ('x')",
            "ts NOT IN (instant('-1h'), 5, instant('-2h')) AND name IN ('x')",
        );
        check(
            "GROUP BY x HAVING max(t.ts) < '-1h' AND '-2h' < min(looked)",
            "GROUP BY x HAVING max(t.ts) < instant('-1h') AND instant('-2h') < min(looked)",
        );
        for same in [
            "ts > now_ns() - 1",
            "ts > 5 AND name = 'x'",
            "ts IS NOT NULL AND name = 'x'",
            "counts > 'x'",
            "max(ts, 5) > 'x'",
            "ts IN (SELECT 'x')",
            "ts > 'it''s'",
            "name = 'ts > ''-1h'''",
            "ts >",
            "ts BETWEEN",
            "= ts",
            "ts",
        ] {
            check(same, same);
        }
    }

    /// In the same SELECT, SQLite takes the name for the column; elsewhere it may mean the text.
    #[test]
    fn a_text_that_is_called_like_a_time() {
        let check = |sql: &str, expect: &str| {
            assert_eq!(with_instants(sql, &tokens(sql)), expect);
            assert!(!is_plain(sql), "{sql}");
        };
        for column in [
            "iso(ts) AS ts",
            "iso(ts) ts",
            "value, iso(t.ts) AS ts",
            "DISTINCT substr(iso(ts), 1, 10) AS TS",
            "'at ' || iso(ts) AS ts",
            "max(ts) AS ts",
            "max(t.ts, instant('-2h')) AS ts",
            "iso(ts) AS at_ts",
            "ts",
        ] {
            check(
                &format!("SELECT {column} FROM t WHERE t.ts > '-10m' GROUP BY x HAVING ts < '-1m'"),
                &format!(
                    "SELECT {column} FROM t WHERE t.ts > instant('-10m') GROUP BY x HAVING ts < instant('-1m')"
                ),
            );
            check(
                &format!("SELECT {column} FROM t WHERE x IN (SELECT x FROM u WHERE (ts > '-1h'))"),
                &format!(
                    "SELECT {column} FROM t WHERE x IN (SELECT x FROM u WHERE (ts > instant('-1h')))"
                ),
            );
        }
        for column in [
            "count(*) AS ts",
            "'x' AS ts",
            "max(iso(at)) AS ts",
            "coalesce(at, 'x') AS ts",
            "(SELECT iso(ts) FROM u) AS ts",
        ] {
            check(
                &format!("SELECT {column} FROM t WHERE a.ts > '-10m'"),
                &format!("SELECT {column} FROM t WHERE a.ts > instant_beside(a.ts, '-10m')"),
            );
        }
        check(
            "SELECT * FROM (SELECT iso(ts) AS ts FROM t WHERE ts > '-1h') x WHERE '2026' < max(x.ts)",
            "SELECT * FROM (SELECT iso(ts) AS ts FROM t WHERE ts > instant('-1h')) x \
             WHERE instant_beside(max(x.ts), '2026') < max(x.ts)",
        );
        check(
            "WITH x(ts) AS NOT MATERIALIZED (SELECT iso(at) FROM t) SELECT * FROM x WHERE ts > '2026'",
            "WITH x(ts) AS NOT MATERIALIZED (SELECT iso(at) FROM t) SELECT * FROM x \
             WHERE ts > instant_beside(ts, '2026')",
        );
        // More than can be told apart.
        let many = "iso(ts) AS ts, ".repeat(TEXTS_MAX + 1);
        check(
            &format!("SELECT {many} 1 FROM t WHERE ts > '-1h'"),
            &format!("SELECT {many} 1 FROM t WHERE ts > instant_beside(ts, '-1h')"),
        );
        let (open, close) = ("(".repeat(DEPTH_MAX), ")".repeat(DEPTH_MAX));
        check(
            &format!("SELECT iso(ts) AS ts FROM t WHERE {open}ts > '-1h'{close}"),
            &format!(
                "SELECT iso(ts) AS ts FROM t WHERE {open}ts > instant_beside(ts, '-1h'){close}"
            ),
        );
    }
}
