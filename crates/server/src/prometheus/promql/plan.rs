//! Turns text into a syntax tree that evaluation can walk; its size is bounded before the parser
//! reads it.

use promql_parser::label::{MatchOp, Matcher};
use promql_parser::parser::{self, Expr, VectorSelector};

use super::regexes::{QueryPiece, Regexes, pieces};
use super::select::Matching;
use super::{NAME, PromFault};

/// Longest query, in bytes.
pub const QUERY_BYTES_MAX: usize = 16 << 10;
/// Most operators, brackets and matchers: the parser is recursive.
const MARKS_MAX: usize = 1_000;
/// Longest duration in plain seconds: about three centuries.
const SECONDS_MAX: f64 = 1e10;
/// Deepest nesting that is evaluated.
const DEPTH_MAX: usize = 100;

/// A parsed and checked query.
#[derive(Clone, Debug)]
pub struct PromQuery {
    pub(super) root: Expr,
}

impl PromQuery {
    /// Parses a query.
    pub fn parse(text: &str) -> Result<Self, PromFault> {
        check_size(text)?;
        let mut regexes = Regexes::default();
        regexes.admit_matchers(text)?;
        let root = parser::parse(text)
            .map_err(|e| PromFault::bad(format!("invalid parameter \"query\": {e}")))?;
        check_tree(&root, 0, &mut regexes)?;
        Ok(Self { root })
    }
}

/// The matchers of a `match[]` parameter; `regexes` bounds the regular expressions of its request.
pub fn matchers(text: &str, regexes: &mut Regexes) -> Result<Matching, PromFault> {
    let invalid =
        |why: &str| PromFault::bad(format!("invalid parameter \"match[]\": {why} in {text:?}"));
    check_size(text)?;
    regexes.admit_matchers(text)?;
    match parser::parse(text).map_err(|e| invalid(&e))? {
        Expr::VectorSelector(selector) => matching(&selector),
        _ => Err(invalid("not a series selector")),
    }
}

/// The matchers of a selector, including its name.
pub(super) fn matching(selector: &VectorSelector) -> Result<Matching, PromFault> {
    if !selector.matchers.or_matchers.is_empty() {
        return Err(PromFault::bad(
            "\"or\" between matchers is not PromQL: use =~ with alternatives, or the operator or",
        ));
    }
    let name = selector.name.as_deref();
    let name = name.map(|name| Matcher::new(MatchOp::Equal, NAME, name));
    let all = name.into_iter().chain(selector.matchers.matchers.clone());
    Ok(Matching::new(all.collect()))
}

fn check_size(text: &str) -> Result<(), PromFault> {
    if text.len() > QUERY_BYTES_MAX {
        return Err(PromFault::bad(format!(
            "the query has {} bytes, at most {QUERY_BYTES_MAX}: ask in parts",
            text.len()
        )));
    }
    let bare = without_texts(text);
    let marks = bare.bytes().filter(|b| b"([{+-*/%^<>=!~,".contains(b));
    let words = ["and", "or", "unless", "atan2"];
    let words = words.iter().map(|word| bare.matches(word).count());
    if marks.count() + words.sum::<usize>() > MARKS_MAX {
        return Err(PromFault::bad(format!(
            "the query has more than {MARKS_MAX} operators and brackets: ask in parts"
        )));
    }
    check_durations(&bare)
}

/// Refuses durations in plain seconds that are too long for the standard library's type: the parser
/// panics on them.
fn check_durations(bare: &str) -> Result<(), PromFault> {
    for intro in ["[", ":", "offset"] {
        for (at, _) in bare.match_indices(intro) {
            let rest = bare[at + intro.len()..].trim_start_matches(|c: char| !c.is_alphanumeric());
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !"+-.".contains(c));
            let token = &rest[..end.unwrap_or(rest.len())];
            // `1e30` may be followed by an operator, so every prefix of the token is tried as a
            // number.
            let numbers = token
                .char_indices()
                .map(|(i, c)| token[..i + c.len_utf8()].parse::<f64>());
            if numbers
                .flatten()
                .any(|v| v.is_nan() || v.abs() > SECONDS_MAX)
            {
                return Err(PromFault::bad(format!("the duration {token} is too long")));
            }
        }
    }
    Ok(())
}

/// The query in lower case, without quoted strings and comments.
fn without_texts(text: &str) -> String {
    let bare = pieces(text).map(|piece| match piece {
        QueryPiece::Bare(c) => c.to_ascii_lowercase(),
        QueryPiece::Text(_) | QueryPiece::Comment => ' ',
    });
    bare.collect()
}

fn check_tree(expr: &Expr, depth: usize, regexes: &mut Regexes) -> Result<(), PromFault> {
    if depth > DEPTH_MAX {
        return Err(PromFault::bad(format!(
            "the query is nested deeper than {DEPTH_MAX}: ask in parts"
        )));
    }
    let mut below = |e: &Expr| check_tree(e, depth + 1, regexes);
    match expr {
        Expr::Aggregate(a) => {
            a.param.as_deref().map_or(Ok(()), &mut below)?;
            below(&a.expr)
        }
        Expr::Unary(u) => below(&u.expr),
        Expr::Paren(p) => below(&p.expr),
        Expr::Binary(b) => {
            below(&b.lhs)?;
            below(&b.rhs)
        }
        Expr::Call(call) => {
            call.args.args.iter().try_for_each(|a| below(a))?;
            match call.args.args.last().map(|last| &**last) {
                Some(Expr::StringLiteral(last)) if call.func.name == "label_replace" => {
                    regexes.admit(&last.val)
                }
                _ => Ok(()),
            }
        }
        Expr::Subquery(_) => Err(PromFault::bad(
            "subqueries are not supported: ask for the inner expression by query_range",
        )),
        Expr::VectorSelector(v) => matching(v).map(drop),
        Expr::MatrixSelector(m) => matching(&m.vs).map(drop),
        Expr::NumberLiteral(_) | Expr::StringLiteral(_) => Ok(()),
        Expr::Extension(_) => Err(PromFault::bad("the query is not PromQL")),
    }
}
