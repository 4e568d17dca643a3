//! Rewrites SQL text before SQLite gets it: one statement only, the idiom `WHERE newest`,
//! `family('disk')` and `frames('lulesh')` (times are in `times`).
//!
//! SQLite passes a virtual table only constraints of the form *column operator value*. A bare
//! `newest` is none, so the whole ring would be read for it; if it is a factor by itself, it is
//! extended to `newest AND newest<>0`, which has the same truth value for every value of `newest`.
//!
//! The columns of a virtual table are fixed when it is registered. So each family is a table of its
//! own, as are the frames of each publication, and a call with a literal name is rewritten to a
//! call of that table.

use std::borrow::Cow;
use std::ops::Range;

use crate::functions::WideForm;

/// Names of time columns, beside those that end in `_ts`.
const TIME_NAMES: [&str; 4] = ["ts", "timestamp", "looked", "until"];

/// A token of SQL text; comments and blanks are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub(crate) text: &'a str,
    /// Index of the byte after its last one.
    pub(crate) end: usize,
    /// Whether it is a bare or quoted name or a keyword; quotes are part of `text`.
    pub(crate) is_word: bool,
}

impl Token<'_> {
    /// Index of its first byte.
    pub(crate) fn start(&self) -> usize {
        self.end - self.text.len()
    }

    pub(crate) fn is(&self, word: &str) -> bool {
        self.text.eq_ignore_ascii_case(word)
    }

    pub(crate) fn is_any(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.is(word))
    }

    /// Whether it is the name of a time column: `ts`, `Timestamp`, `sample_ts`.
    pub(crate) fn is_time(&self) -> bool {
        self.is_word && is_time_name(self.name())
    }

    /// Whether it is a part of `<`, `<=`, `=`, `==`, `>=`, `>`, `<>`, `!=`, `IS` or `IS NOT`.
    pub(crate) fn is_comparison(&self) -> bool {
        self.is_any(&["<", ">", "=", "!", "IS", "NOT"])
    }

    /// The name without its quotes.
    pub(crate) fn name(&self) -> &str {
        self.text.trim_matches(['"', '`', '[', ']'])
    }
}

/// Whether a column of this name has times: `ts`, `looked`, `until`, `sample_ts`.
pub(crate) fn is_time_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.ends_with("_ts") || TIME_NAMES.contains(&name.as_str())
}

/// Whether a text in which `has` finds words may contain the name of a time column.
pub(crate) fn may_name_a_time(has: impl Fn(&[u8]) -> bool) -> bool {
    TIME_NAMES.iter().any(|name| has(name.as_bytes()))
}

/// Whether a text has neither `;`, `=>`, `newest`, `family` nor `frames`, and no literal together
/// with the name of a time column: then nothing has to be rewritten.
pub(crate) fn is_plain(sql: &str) -> bool {
    let bytes = sql.as_bytes();
    let has = |word: &[u8]| {
        let mut all = bytes.windows(word.len());
        all.any(|found| found.eq_ignore_ascii_case(word))
    };
    if bytes.contains(&b'\'') && may_name_a_time(has) {
        return false;
    }
    let is = |at: usize, word: &[u8]| {
        let found = bytes.get(at..at + word.len());
        found.is_some_and(|found| found.eq_ignore_ascii_case(word))
    };
    !bytes.iter().enumerate().any(|(at, byte)| match byte {
        b';' => true,
        b'=' => is(at, b"=>"),
        b'n' | b'N' => is(at, b"newest"),
        b'f' | b'F' => is(at, b"family") || is(at, b"frames"),
        _ => false,
    })
}

/// Splits SQL text like SQLite, as far as it matters here.
pub(crate) fn tokens(sql: &str) -> Vec<Token<'_>> {
    let bytes = sql.as_bytes();
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        let is_name = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_' || *b == b'$' || *b >= 0x80;
        let rest = &bytes[at..];
        let length_until = |end: &[u8], from: usize| {
            let found = rest[from..].windows(end.len()).position(|w| w == end);
            found.map_or(rest.len(), |i| from + i + end.len())
        };
        let mut is_word = false;
        let mut is_blank = false;
        at += match rest {
            [b, ..] if b.is_ascii_whitespace() => {
                is_blank = true;
                1
            }
            [b'-', b'-', ..] => {
                is_blank = true;
                length_until(b"\n", 2)
            }
            [b'/', b'*', ..] => {
                is_blank = true;
                length_until(b"*/", 2)
            }
            [b'\'', ..] => length_until(b"'", 1),
            [quote @ (b'"' | b'`'), ..] => {
                is_word = true;
                length_until(&[*quote], 1)
            }
            [b'[', ..] => {
                is_word = true;
                length_until(b"]", 1)
            }
            [b, ..] if is_name(b) => {
                is_word = true;
                rest.iter().take_while(|b| is_name(b)).count()
            }
            _ => 1,
        };
        if !is_blank {
            tokens.push(Token {
                text: &sql[start..at],
                end: at,
                is_word,
            });
        }
    }
    tokens
}

/// Whether anything follows the first statement.
pub(crate) fn has_more_statements(tokens: &[Token<'_>]) -> bool {
    let mut rest = tokens
        .iter()
        .skip_while(|t| t.text != ";")
        .skip_while(|t| t.text == ";");
    rest.next().is_some()
}

/// Calls of `family` and `frames` with a literal name, in order: the bytes from the function's name
/// to the end of the literal and its comma, which function it is, and the literal.
pub(crate) fn calls_by_name<'a>(tokens: &[Token<'a>]) -> Vec<(Range<usize>, WideForm, &'a str)> {
    let call = |window: &[Token<'a>]| {
        let [name, open, prefix, next] = window else {
            return None;
        };
        let mut forms = [WideForm::Family, WideForm::Frames].into_iter();
        let form = forms.find(|form| name.is(form.word()))?;
        let is_call = name.is_word && open.text == "(";
        let literal = prefix.text.strip_prefix('\'')?.strip_suffix('\'')?;
        if !is_call || !matches!(next.text, "," | ")") {
            return None;
        }
        // The comma is removed too: only the other arguments are left.
        let end = if next.text == "," {
            next.end
        } else {
            prefix.end
        };
        Some((name.end - name.text.len()..end, form, literal))
    };
    tokens.windows(4).filter_map(call).collect()
}

/// Arguments that may be named. Each is the last argument of its function, after the only other
/// one.
const NAMED: [&str; 3] = ["horizon", "level", "allow_predicted"];

/// Removes the name of a named argument, `horizon => '30s'`, which SQLite does not have: without
/// the name the argument is in the right position.
pub(crate) fn without_argument_names<'a>(sql: &'a str, tokens: &[Token<'_>]) -> Cow<'a, str> {
    let is_named = |window: &&[Token<'_>]| {
        let [before, name, equals, greater] = window else {
            return false;
        };
        let is_arrow = equals.text == "=" && greater.text == ">" && equals.end + 1 == greater.end;
        before.text == "," && name.is_any(&NAMED) && is_arrow
    };
    let mut out = String::new();
    let mut copied = 0;
    for window in tokens.windows(4).filter(is_named) {
        out.push_str(&sql[copied..window[1].end - window[1].text.len()]);
        copied = window[3].end;
    }
    if copied == 0 {
        return Cow::Borrowed(sql);
    }
    out.push_str(&sql[copied..]);
    Cow::Owned(out)
}

/// Extends each bare `newest` by its comparison.
pub(crate) fn with_newest_constraints<'a>(sql: &'a str, tokens: &[Token<'_>]) -> Cow<'a, str> {
    // In `x BETWEEN a AND newest`, the last word looks like a factor and is none.
    let between = tokens.iter().any(|t| t.is("BETWEEN"));
    let before: &[&str] = if between {
        &["WHERE", "ON"]
    } else {
        &["WHERE", "ON", "AND"]
    };
    let after = [
        "AND",
        "OR",
        "GROUP",
        "HAVING",
        "WINDOW",
        "ORDER",
        "LIMIT",
        "UNION",
        "INTERSECT",
        "EXCEPT",
        "WHERE",
        "JOIN",
        "LEFT",
        "INNER",
        "CROSS",
        "NATURAL",
        ")",
        ";",
        ",",
    ];
    let mut out = String::new();
    let mut copied = 0;
    for (i, token) in tokens.iter().enumerate().filter(|(_, t)| t.is("newest")) {
        let qualifier = match i.checked_sub(2).map(|first| &tokens[first..i]) {
            Some([table, dot]) if dot.text == "." => Some(table),
            _ => None,
        };
        let first = if qualifier.is_some() { i - 2 } else { i };
        let follows = first
            .checked_sub(1)
            .is_some_and(|p| tokens[p].is_any(before));
        let ends = tokens.get(i + 1).is_none_or(|next| next.is_any(&after));
        if follows && ends {
            out.push_str(&sql[copied..token.end]);
            let table = qualifier
                .map(|q| format!("{}.", q.text))
                .unwrap_or_default();
            out.push_str(&format!(" AND {table}newest<>0"));
            copied = token.end;
        }
    }
    if copied == 0 {
        return Cow::Borrowed(sql);
    }
    out.push_str(&sql[copied..]);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_counted() {
        let check = |sql: &str, expect: bool| {
            assert_eq!(has_more_statements(&tokens(sql)), expect, "{sql}");
        };
        check("SELECT 1", false);
        check("SELECT 1; ;; -- the end", false);
        check("SELECT 1; /* more */ SELECT 2", true);
        check("SELECT ';'; ", false);
        check("SELECT 'it''s; ' ; x", true);
        check("SELECT \"a;b\", [c;d], `e;f`", false);
        check("", false);
        check("/* never closed ; x", false);
        check("é;é", true);
    }

    #[test]
    fn plain_texts_have_nothing_to_look_for() {
        let check = |sql: &str, expect: bool| assert_eq!(is_plain(sql), expect, "{sql}");
        check("SELECT MAX(ts), value FROM t -- nn newes", true);
        check("", true);
        check("SELECT 1; SELECT 2", false);
        check("SELECT * FROM t WHERE nNEWest", false);
        check("SELECT * FROM t WHERE newest", false);
        check("SELECT * FROM Family('disk')", false);
        check("SELECT * FROM fRAMES('lulesh')", false);
    }

    #[test]
    fn families_with_a_literal_prefix_are_found() {
        let check = |sql: &str, expect: &[(&str, &str)]| {
            let calls = calls_by_name(&tokens(sql));
            let found: Vec<_> = calls
                .into_iter()
                .map(|(range, form, name)| {
                    assert!(
                        sql[range.clone()]
                            .to_ascii_lowercase()
                            .starts_with(form.word())
                    );
                    (&sql[range], name)
                })
                .collect();
            assert_eq!(found, expect, "{sql}");
        };
        check("SELECT * FROM family('disk')", &[("family('disk'", "disk")]);
        check(
            "SELECT * FROM FAMILY ( 'a.b' , 1) f, family('c')",
            &[("FAMILY ( 'a.b' ,", "a.b"), ("family('c'", "c")],
        );
        check(
            "SELECT frames FROM Frames('lulesh', 1)",
            &[("Frames('lulesh',", "lulesh")],
        );
        check("SELECT * FROM family(x)", &[]);
        check("SELECT * FROM family('a' || 'b')", &[]);
        check("SELECT 'family(''disk'')' FROM family_disk()", &[]);
    }

    #[test]
    fn last_arguments_may_be_named() {
        let check = |sql: &str, expect: &str| {
            assert_eq!(without_argument_names(sql, &tokens(sql)), expect);
        };
        check(
            "SELECT * FROM forecast('a.b', horizon => '30 s')",
            "SELECT * FROM forecast('a.b',  '30 s')",
        );
        check("f(a, HORIZON=>1), f(b, horizon => 2)", "f(a, 1), f(b,  2)");
        check(
            "FROM time_to('a', level => '90 %') JOIN latest('b', allow_predicted=>1)",
            "FROM time_to('a',  '90 %') JOIN latest('b', 1)",
        );
        for same in [
            "f(a, horizon = > 1)",
            "f(horizon => 1)",
            "f(a, step => 1)",
            "'x, horizon => 1'",
        ] {
            check(same, same);
        }
        assert!(!is_plain("f(a, horizon=>1)"));
    }

    #[test]
    fn newest_as_a_factor_gets_a_constraint() {
        let check = |sql: &str, expect: &str| {
            assert_eq!(with_newest_constraints(sql, &tokens(sql)), expect);
        };
        let same = |sql: &str| check(sql, sql);
        check(
            "SELECT * FROM t WHERE newest",
            "SELECT * FROM t WHERE newest AND newest<>0",
        );
        check(
            "SELECT * FROM t WHERE t.newest AND a=1 GROUP BY b",
            "SELECT * FROM t WHERE t.newest AND t.newest<>0 AND a=1 GROUP BY b",
        );
        check(
            "SELECT * FROM a JOIN b ON a.d=b.d AND b.Newest WHERE newest OR x",
            "SELECT * FROM a JOIN b ON a.d=b.d AND b.Newest AND b.newest<>0 \
             WHERE newest AND newest<>0 OR x",
        );
        check(
            "(SELECT 1 WHERE newest)",
            "(SELECT 1 WHERE newest AND newest<>0)",
        );
        same("SELECT newest FROM t WHERE newest=1");
        same("SELECT * FROM t WHERE NOT newest");
        same("SELECT * FROM t WHERE x BETWEEN 0 AND newest");
        same("SELECT * FROM t WHERE newest + 1");
        same("SELECT 'WHERE newest'");
        same("SELECT CASE WHEN a AND newest THEN 1 END FROM t");
    }
}
