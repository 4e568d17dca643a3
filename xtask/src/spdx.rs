//! Licence expressions: the part of SPDX that is needed to decide whether accepted licences satisfy
//! one.
//!
//! Grammar: `or := and (OR and)*`, `and := one (AND one)*`, `one := ( or ) | NAME [WITH
//! EXCEPTION]`; the older `A/B` means `A OR B`.

/// Whether a choice of accepted licences satisfies the expression.
///
/// # Errors
///
/// The malformed part of the expression.
pub(crate) fn satisfied(expression: &str, accepted: &dyn Fn(&str) -> bool) -> Result<bool, String> {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser {
        tokens: &tokens,
        accepted,
    };
    let verdict = parser.or()?;
    match parser.tokens.first() {
        None => Ok(verdict),
        Some(token) => Err(format!("{expression:?}: unexpected {token:?}")),
    }
}

struct Parser<'a> {
    tokens: &'a [&'a str],
    accepted: &'a dyn Fn(&str) -> bool,
}

impl<'a> Parser<'a> {
    fn or(&mut self) -> Result<bool, String> {
        let mut verdict = self.and()?;
        while self.take("OR") {
            verdict |= self.and()?;
        }
        Ok(verdict)
    }

    fn and(&mut self) -> Result<bool, String> {
        let mut verdict = self.one()?;
        while self.take("AND") {
            verdict &= self.one()?;
        }
        Ok(verdict)
    }

    fn one(&mut self) -> Result<bool, String> {
        if self.take("(") {
            let verdict = self.or()?;
            return if self.take(")") {
                Ok(verdict)
            } else {
                Err("a parenthesis is not closed".to_owned())
            };
        }
        let name = self.next()?;
        if self.take("WITH") {
            let exception = self.next()?;
            return Ok((self.accepted)(&format!("{name} WITH {exception}")));
        }
        Ok((self.accepted)(name))
    }

    fn next(&mut self) -> Result<&'a str, String> {
        match self.tokens {
            [] => Err("the expression ends too early".to_owned()),
            [token, ..] if ["OR", "AND", "WITH", ")"].contains(token) => {
                Err(format!("unexpected {token:?}"))
            }
            [token, rest @ ..] => {
                self.tokens = rest;
                Ok(token)
            }
        }
    }

    fn take(&mut self, token: &str) -> bool {
        let found = self.tokens.first() == Some(&token);
        if found {
            self.tokens = &self.tokens[1..];
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions() {
        let accepted =
            |name: &str| ["MIT", "Apache-2.0", "A WITH E", "Unicode-3.0"].contains(&name);
        let table = [
            ("MIT", Some(true)),
            ("GPL-3.0", Some(false)),
            ("MIT OR GPL-3.0", Some(true)),
            ("MIT/GPL-3.0", Some(true)),
            ("MIT AND GPL-3.0", Some(false)),
            ("(MIT OR GPL-3.0) AND Unicode-3.0", Some(true)),
            ("GPL-3.0 OR MIT AND GPL-2.0", Some(false)),
            ("A WITH E", Some(true)),
            ("A WITH F OR MIT", Some(true)),
            ("A", Some(false)),
            ("(MIT", None),
            ("MIT OR", None),
            ("MIT GPL-3.0", None),
            ("OR MIT", None),
            ("", None),
        ];
        for (expression, expect) in table {
            assert_eq!(
                satisfied(expression, &accepted).ok(),
                expect,
                "{expression}"
            );
        }
    }
}
