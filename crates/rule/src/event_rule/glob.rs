//! A quick check of `column GLOB 'pattern'`: the literal beginning and end of the pattern.
//!
//! It stands alone because it only saves time: most rules that are looked at for an event end here,
//! without the general evaluation of an expression.

use barograph_statement::text::WildcardKind;
use barograph_statement::{Expr, SqlValue};

use super::columns::{EventRow, place_of};

/// The literal beginning and end that a text column must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GlobCheck {
    place: usize,
    beginning: String,
    end: String,
}

impl GlobCheck {
    /// The check of an expression; `None` if it is no GLOB of a column and a literal.
    pub(super) fn of(e: &Expr) -> Option<Self> {
        let Expr::Like(WildcardKind::Glob, text, pattern) = e else {
            return None;
        };
        let (Expr::Column(column), Expr::Literal(SqlValue::Text(pattern))) = (&**text, &**pattern)
        else {
            return None;
        };
        let first = pattern.find(['*', '?', '[']).unwrap_or(pattern.len());
        // A `*` in a class leaves a bracket behind it.
        let last = pattern.rfind('*').map(|at| &pattern[at + 1..]);
        let end = last.filter(|end| !end.contains(['?', '[', ']']));
        Some(Self {
            place: place_of(column),
            beginning: pattern[..first].to_owned(),
            end: end.unwrap_or_default().to_owned(),
        })
    }

    /// Whether the expression may be true of the event.
    pub(super) fn may_hold(&self, row: &EventRow<'_>) -> bool {
        match row.text_at(self.place) {
            Some(SqlValue::Text(text)) => {
                text.ends_with(&self.end) && text.starts_with(&self.beginning)
            }
            // NULL is not true.
            Some(_) => false,
            // Numbers are left to the expression, which makes texts of them.
            None => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::columns::EventFacts;
    use super::super::statement::EventRuleStatement;
    use super::*;

    fn check_of(condition: &str) -> Option<GlobCheck> {
        let sql = format!("CREATE RULE r ON EVENT open WHERE {condition} THEN RUN '/x'");
        match EventRuleStatement::parse(&sql).unwrap() {
            EventRuleStatement::Create { rule, .. } => rule.conditions[0].glob.clone(),
            EventRuleStatement::Drop { .. } => panic!("{sql}"),
        }
    }

    #[test]
    fn beginnings_and_ends() {
        for (pattern, beginning, end) in [
            ("/a/*.h5", "/a/", ".h5"),
            ("*.h5", "", ".h5"),
            ("/a", "/a", ""),
            ("a?b*c", "a", "c"),
            ("*a?", "", ""),
            ("*[ab]", "", ""),
            ("x[*]a", "x", ""),
            ("x[*", "x", ""),
            ("*", "", ""),
            ("é*ü", "é", "ü"),
        ] {
            let check = check_of(&format!("path GLOB '{pattern}'")).unwrap();
            let seen = (check.beginning.as_str(), check.end.as_str());
            assert_eq!(seen, (beginning, end), "{pattern}");
        }
        for condition in [
            "path LIKE 'a%'",
            "'a' GLOB path",
            "NOT path GLOB 'a'",
            "path GLOB 1",
        ] {
            assert_eq!(check_of(condition), None, "{condition}");
        }
        let facts = EventFacts {
            size: Some(5),
            ..EventFacts::default()
        };
        let row = EventRow::new(&facts);
        assert!(check_of("size GLOB '5'").unwrap().may_hold(&row));
        assert!(!check_of("path GLOB '*'").unwrap().may_hold(&row));
    }
}
