//! From text to a statement: `CREATE INSIGHT …` and `DROP INSIGHT …`.
//!
//! The words around the SELECT are barograph's own, so they are read here from the SQL tokens;
//! the SELECT itself is left to `sqlparser`. Bounds come first: text from anyone is parsed here.

use barograph_model::{Name, Unit};
use sqlparser::ast::{self, Query};
use sqlparser::dialect::SQLiteDialect;
use sqlparser::keywords::Keyword;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Token, Tokenizer};

use crate::{InsightError, Limits};

/// Deepest nesting of parentheses and subexpressions that the parser follows.
const NESTING_MAX: usize = 50;
/// Most tokens of a statement, white space apart. A chain `1+1+…` nests as deep as it is long,
/// so this bounds the stack that it takes to walk one.
const TOKENS_MAX: usize = 2_000;

#[derive(Debug)]
pub(crate) enum Statement {
    Create(Box<Create>),
    Drop { name: String, if_exists: bool },
}

/// `CREATE [OR REPLACE] INSIGHT name [UNIT 'u'] [HELP 'h'] AS SELECT …`.
#[derive(Debug)]
pub(crate) struct Create {
    pub name: Name,
    pub or_replace: bool,
    pub unit: Option<Unit>,
    pub help: Option<String>,
    pub query: Query,
}

/// Reads a CREATE or DROP statement.
pub(crate) fn parse(sql: &str, limits: &Limits) -> Result<Statement, InsightError> {
    let mut words = Words::new(sql, limits.sql_bytes_max)?;
    if words.keyword("CREATE") {
        let or_replace = words.keyword("OR");
        if or_replace {
            words.expect("REPLACE")?;
        }
        words.expect("INSIGHT")?;
        return Ok(Statement::Create(Box::new(create(words, or_replace)?)));
    }
    if words.keyword("DROP") {
        words.expect("INSIGHT")?;
        let if_exists = words.keyword("IF");
        if if_exists {
            words.expect("EXISTS")?;
        }
        let name = words.dotted_name();
        words.end()?;
        return Ok(Statement::Drop { name, if_exists });
    }
    Err(InsightError::statement(
        "write CREATE INSIGHT name AS SELECT … or DROP INSIGHT name",
    ))
}

/// Reads the SELECT of a CREATE statement, or a SELECT alone.
pub(crate) fn parse_select(sql: &str, limits: &Limits) -> Result<Query, InsightError> {
    let mut words = Words::new(sql, limits.sql_bytes_max)?;
    if words.at_keyword("SELECT") {
        return words.query();
    }
    match parse(sql, limits)? {
        Statement::Create(create) => Ok(create.query),
        Statement::Drop { .. } => Err(InsightError::statement(
            "there is nothing to test in a DROP: give a SELECT",
        )),
    }
}

fn create(mut words: Words, or_replace: bool) -> Result<Create, InsightError> {
    let name = Name::new(words.dotted_name())?;
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
    Ok(Create {
        name,
        or_replace,
        unit,
        help,
        query: words.query()?,
    })
}

/// The tokens of a statement, read from the front.
pub(crate) struct Words {
    tokens: std::iter::Peekable<std::vec::IntoIter<Token>>,
}

impl Words {
    pub fn new(sql: &str, bytes_max: usize) -> Result<Self, InsightError> {
        if sql.len() > bytes_max {
            return Err(InsightError::Limit {
                what: format!("a statement of {} bytes", sql.len()),
                max: bytes_max,
                limit: "sql_bytes_max",
            });
        }
        let tokens = Tokenizer::new(&SQLiteDialect {}, sql)
            .tokenize()
            .map_err(|e| InsightError::statement(format!("not SQL: {e}")))?;
        let count = tokens.iter().filter(|t| !is_space(t)).count();
        if count > TOKENS_MAX {
            return Err(InsightError::Limit {
                what: format!("a statement of {count} words and signs"),
                max: TOKENS_MAX,
                limit: "TOKENS_MAX",
            });
        }
        let mut words = Self {
            tokens: tokens.into_iter().peekable(),
        };
        words.skip_space();
        Ok(words)
    }

    fn skip_space(&mut self) {
        while self.tokens.next_if(is_space).is_some() {}
    }

    pub fn at_keyword(&mut self, keyword: &str) -> bool {
        self.tokens.peek().is_some_and(|t| is_keyword(t, keyword))
    }

    pub fn keyword(&mut self, keyword: &str) -> bool {
        let found = self.tokens.next_if(|t| is_keyword(t, keyword)).is_some();
        self.skip_space();
        found
    }

    pub fn expect(&mut self, keyword: &str) -> Result<(), InsightError> {
        if self.keyword(keyword) {
            Ok(())
        } else {
            Err(self.unexpected(keyword))
        }
    }

    pub fn unexpected(&mut self, wanted: &str) -> InsightError {
        let found = self
            .tokens
            .peek()
            .map_or("the end".to_owned(), |t| format!("{t}"));
        InsightError::statement(format!("expected {wanted}, found {found}"))
    }

    /// A dotted name: whatever stands before the next white space, since the tokenizer sees a
    /// number in `.2x`; or one quoted name.
    pub fn dotted_name(&mut self) -> String {
        let mut name = String::new();
        let more = |t: &Token| !is_space(t) && *t != Token::SemiColon && *t != Token::EOF;
        while let Some(token) = self.tokens.next_if(more) {
            match token {
                Token::Word(word) => name.push_str(&word.value),
                other => name.push_str(&other.to_string()),
            }
        }
        self.skip_space();
        name
    }

    pub fn text(&mut self, example: &str) -> Result<String, InsightError> {
        match self
            .tokens
            .next_if(|t| matches!(t, Token::SingleQuotedString(_)))
        {
            Some(Token::SingleQuotedString(text)) => {
                self.skip_space();
                Ok(text)
            }
            _ => Err(self.unexpected(example)),
        }
    }

    /// A number of at least 0.
    pub fn number(&mut self, example: &str) -> Result<f64, InsightError> {
        let number = match self.tokens.peek() {
            Some(Token::Number(text, _)) => text.parse::<f64>().ok(),
            _ => None,
        };
        match number.filter(|n| n.is_finite()) {
            Some(number) => {
                self.tokens.next();
                self.skip_space();
                Ok(number)
            }
            None => Err(self.unexpected(example)),
        }
    }

    pub fn comma(&mut self) -> bool {
        let found = self.tokens.next_if_eq(&Token::Comma).is_some();
        self.skip_space();
        found
    }

    /// Whether nothing stands here any more, but the sign that ends a statement.
    pub fn at_end(&mut self) -> bool {
        matches!(
            self.tokens.peek(),
            None | Some(Token::EOF | Token::SemiColon)
        )
    }

    pub fn end(mut self) -> Result<(), InsightError> {
        if self.tokens.next_if_eq(&Token::SemiColon).is_some() {
            self.skip_space();
        }
        match self.tokens.peek() {
            None | Some(Token::EOF) => Ok(()),
            Some(_) => Err(self.unexpected("the end of the statement")),
        }
    }

    /// The expression up to the next of these words outside of parentheses, or to the end.
    pub fn expression(&mut self, until: &[&str], what: &str) -> Result<ast::Expr, InsightError> {
        let mut depth = 0_i32;
        let mut tokens = Vec::new();
        let ends = |t: &Token| until.iter().any(|word| is_keyword(t, word));
        while let Some(token) = self.tokens.next_if(|t| {
            let over = depth <= 0 && (ends(t) || *t == Token::SemiColon);
            !over && *t != Token::EOF
        }) {
            match token {
                Token::LParen => depth += 1,
                Token::RParen => depth -= 1,
                _ => {}
            }
            tokens.push(token);
        }
        if tokens.iter().all(is_space) {
            return Err(self.unexpected(what));
        }
        let mut parser = Parser::new(&SQLiteDialect {})
            .with_recursion_limit(NESTING_MAX)
            .with_tokens(tokens);
        let fault = |e| InsightError::statement(format!("cannot read {what}: {e}"));
        let expression = parser.parse_expr().map_err(fault)?;
        match &parser.peek_token_ref().token {
            Token::EOF => Ok(expression),
            other => Err(InsightError::statement(format!(
                "expected the end of {what}, found {other}"
            ))),
        }
    }

    fn query(self) -> Result<Query, InsightError> {
        let mut parser = Parser::new(&SQLiteDialect {})
            .with_recursion_limit(NESTING_MAX)
            .with_tokens(self.tokens.map(value_as_name).collect());
        let fault = |e| InsightError::statement(format!("cannot read the SELECT: {e}"));
        let query = parser.parse_query().map_err(fault)?;
        let _optional = parser.consume_token(&Token::SemiColon);
        match &parser.peek_token_ref().token {
            Token::EOF => Ok(*query),
            other => Err(InsightError::statement(format!(
                "expected the end of the statement, found {other}"
            ))),
        }
    }
}

fn is_space(token: &Token) -> bool {
    matches!(token, Token::Whitespace(_))
}

/// `value` is the column of every table. The parser has a keyword of that name, and would read
/// `CASE value …` among arguments as `key VALUE value`.
fn value_as_name(token: Token) -> Token {
    match token {
        Token::Word(mut word) if word.keyword == Keyword::VALUE => {
            word.keyword = Keyword::NoKeyword;
            Token::Word(word)
        }
        other => other,
    }
}

fn is_keyword(token: &Token, keyword: &str) -> bool {
    matches!(token, Token::Word(w) if w.quote_style.is_none() && w.value.eq_ignore_ascii_case(keyword))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_statements() {
        let check = |sql: &str, expect: &str| {
            let seen = match parse(sql, &Limits::default()) {
                Ok(Statement::Create(c)) => {
                    let Create {
                        name,
                        or_replace,
                        unit,
                        help,
                        query,
                    } = *c;
                    format!("{name} {or_replace} {unit:?} {help:?} {query}")
                }
                Ok(Statement::Drop { name, if_exists }) => format!("drop {name} {if_exists}"),
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
            let seen = parse(bad, &Limits::default()).unwrap_err().to_string();
            assert!(seen.starts_with("stream name"), "{bad}: {seen}");
        }
    }

    #[test]
    fn bounds() {
        let deep = format!(
            "CREATE INSIGHT a AS SELECT {}1{}",
            "(".repeat(900),
            ")".repeat(900)
        );
        let long = format!("CREATE INSIGHT a AS SELECT 1{}", "+1".repeat(2_000));
        let huge = "x".repeat(Limits::default().sql_bytes_max + 1);
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
            let seen = parse(&sql, &Limits::default()).unwrap_err().to_string();
            assert_eq!(seen.to_lowercase(), expect.to_lowercase());
        }
    }
}
