//! The words of a statement: its SQL tokens, read from the front.
//!
//! Barograph's own keywords around a SELECT or an expression are read here; SELECT and expression
//! are left to `sqlparser`. Bounds are checked first, because text from any user is parsed here.

use sqlparser::ast::{self, Query};
use sqlparser::dialect::SQLiteDialect;
use sqlparser::keywords::Keyword;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};

use crate::StatementError;

/// Longest statement, in bytes.
pub const SQL_BYTES_MAX: usize = 16_384;
/// Deepest nesting of parentheses and subexpressions that the parser follows.
const NESTING_MAX: usize = 50;
/// Most tokens of a statement, without white space. A chain `1+1+…` nests as deep as it is long, so
/// this bounds the stack of a walk over it.
const TOKENS_MAX: usize = 2_000;

/// The tokens of a statement, read from the front.
#[derive(Debug)]
pub struct StatementWords {
    tokens: std::iter::Peekable<std::vec::IntoIter<TokenWithSpan>>,
}

impl StatementWords {
    /// Splits a text of at most [`SQL_BYTES_MAX`] bytes into words.
    pub fn new(sql: &str) -> Result<Self, StatementError> {
        let mut tokens = tokens(sql)?;
        for token in &mut tokens {
            *token = TokenWithSpan::wrap(std::mem::replace(&mut token.token, Token::EOF));
        }
        Ok(Self::of(tokens))
    }

    /// Splits a text into words as [`StatementWords::new`] does. The words and the expressions that
    /// are read from them keep their places in the text, and errors name these.
    pub fn located(sql: &str) -> Result<Self, StatementError> {
        Ok(Self::of(tokens(sql)?))
    }

    fn of(tokens: Vec<TokenWithSpan>) -> Self {
        let mut words = Self {
            tokens: tokens.into_iter().peekable(),
        };
        words.skip_space();
        words
    }

    fn skip_space(&mut self) {
        while self.tokens.next_if(is_space).is_some() {}
    }

    /// Returns whether the next word is this keyword, in any case.
    pub fn at_keyword(&mut self, keyword: &str) -> bool {
        self.tokens.peek().is_some_and(|t| is_keyword(t, keyword))
    }

    /// Takes the next word if it is this keyword; returns whether it was.
    pub fn keyword(&mut self, keyword: &str) -> bool {
        let found = self.tokens.next_if(|t| is_keyword(t, keyword)).is_some();
        self.skip_space();
        found
    }

    /// Takes the next word, which must be this keyword.
    pub fn expect(&mut self, keyword: &str) -> Result<(), StatementError> {
        if self.keyword(keyword) {
            Ok(())
        } else {
            Err(self.unexpected(keyword))
        }
    }

    /// Returns an error that names the next word, and what is expected in its place.
    pub fn unexpected(&mut self, wanted: &str) -> StatementError {
        let found = self
            .tokens
            .peek()
            .map_or("the end".to_owned(), |t| format!("{t}{}", t.span.start));
        StatementError::new(format!("expected {wanted}, found {found}"))
    }

    /// Takes a dotted name: everything before the next white space, since the tokenizer sees a
    /// number in `.2x`; or one quoted name. The name is empty at the end of the statement.
    pub fn dotted_name(&mut self) -> String {
        let mut name = String::new();
        let more = |t: &TokenWithSpan| !is_space(t) && *t != Token::SemiColon && *t != Token::EOF;
        while let Some(token) = self.tokens.next_if(more) {
            match token.token {
                Token::Word(word) => name.push_str(&word.value),
                other => name.push_str(&other.to_string()),
            }
        }
        self.skip_space();
        name
    }

    /// Takes a text in single quotes. `example` is the expected text in an error.
    pub fn text(&mut self, example: &str) -> Result<String, StatementError> {
        match self.text_if_next() {
            Some(text) => Ok(text),
            None => Err(self.unexpected(example)),
        }
    }

    /// Takes a text in single quotes if it is next.
    pub fn text_if_next(&mut self) -> Option<String> {
        let is_text = |t: &TokenWithSpan| matches!(t.token, Token::SingleQuotedString(_));
        match self.tokens.next_if(is_text)?.token {
            Token::SingleQuotedString(text) => {
                self.skip_space();
                Some(text)
            }
            _ => None,
        }
    }

    /// Takes a word that is no quoted name, in lower case, if it is next.
    pub fn word_if_next(&mut self) -> Option<String> {
        let is_word =
            |t: &TokenWithSpan| matches!(&t.token, Token::Word(w) if w.quote_style.is_none());
        let word = self.tokens.next_if(is_word)?.token.to_string();
        self.skip_space();
        Some(word.to_ascii_lowercase())
    }

    /// The place of the next word, as errors name it; empty at the end, and if the words have none.
    pub fn place(&mut self) -> String {
        let place = self.tokens.peek().map(|t| t.span.start);
        place.as_ref().map(Location::to_string).unwrap_or_default()
    }

    /// Takes a finite number of at least 0. `example` is the expected text in an error.
    pub fn number(&mut self, example: &str) -> Result<f64, StatementError> {
        let number = match self.tokens.peek() {
            Some(TokenWithSpan {
                token: Token::Number(text, _),
                ..
            }) => text.parse::<f64>().ok(),
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

    /// Takes a comma if it is next; returns whether it was.
    pub fn comma(&mut self) -> bool {
        let found = self.tokens.next_if(|t| *t == Token::Comma).is_some();
        self.skip_space();
        found
    }

    /// Returns whether nothing is left, apart from a semicolon.
    pub fn at_end(&mut self) -> bool {
        let next = self.tokens.peek();
        next.is_none_or(|t| *t == Token::EOF || *t == Token::SemiColon)
    }

    /// Ends the statement; further words are an error.
    pub fn end(mut self) -> Result<(), StatementError> {
        if self.tokens.next_if(|t| *t == Token::SemiColon).is_some() {
            self.skip_space();
        }
        match self.tokens.peek() {
            Some(t) if *t != Token::EOF => Err(self.unexpected("the end of the statement")),
            _ => Ok(()),
        }
    }

    /// Takes an expression, up to the next of these keywords or to the end. Keywords inside
    /// parentheses or CASE do not count.
    /// `what` names the expression in errors.
    pub fn expression(&mut self, until: &[&str], what: &str) -> Result<ast::Expr, StatementError> {
        let mut depth = 0_i32;
        let mut tokens = Vec::new();
        let ends = |t: &TokenWithSpan| until.iter().any(|word| is_keyword(t, word));
        while let Some(token) = self.tokens.next_if(|t| {
            let over = depth <= 0 && (ends(t) || *t == Token::SemiColon);
            !over && *t != Token::EOF
        }) {
            match &token.token {
                Token::LParen => depth += 1,
                Token::RParen => depth -= 1,
                Token::Word(word) if word.quote_style.is_none() => match word.keyword {
                    Keyword::CASE => depth += 1,
                    Keyword::END => depth -= 1,
                    _ => {}
                },
                _ => {}
            }
            tokens.push(token);
        }
        if tokens.iter().all(is_space) {
            return Err(self.unexpected(what));
        }
        let mut parser = Parser::new(&SQLiteDialect {})
            .with_recursion_limit(NESTING_MAX)
            .with_tokens_with_locations(tokens);
        let fault = |e| StatementError::new(format!("cannot read {what}: {e}"));
        let expression = parser.parse_expr().map_err(fault)?;
        match &parser.peek_token_ref().token {
            Token::EOF => Ok(expression),
            other => Err(StatementError::new(format!(
                "expected the end of {what}, found {other}"
            ))),
        }
    }

    /// Takes the rest of the statement as a SELECT.
    pub fn query(self) -> Result<Query, StatementError> {
        let mut parser = Parser::new(&SQLiteDialect {})
            .with_recursion_limit(NESTING_MAX)
            .with_tokens_with_locations(self.tokens.map(value_as_name).collect());
        let fault = |e| StatementError::new(format!("cannot read the SELECT: {e}"));
        let query = parser.parse_query().map_err(fault)?;
        let _optional = parser.consume_token(&Token::SemiColon);
        match &parser.peek_token_ref().token {
            Token::EOF => Ok(*query),
            other => Err(StatementError::new(format!(
                "expected the end of the statement, found {other}"
            ))),
        }
    }
}

/// The tokens of a text within the bounds of statements.
fn tokens(sql: &str) -> Result<Vec<TokenWithSpan>, StatementError> {
    if sql.len() > SQL_BYTES_MAX {
        return Err(StatementError::Limit {
            what: format!("a statement of {} bytes", sql.len()),
            max: SQL_BYTES_MAX,
            limit: "SQL_BYTES_MAX",
        });
    }
    let tokens = Tokenizer::new(&SQLiteDialect {}, sql)
        .tokenize_with_location()
        .map_err(|e| StatementError::new(format!("not SQL: {e}")))?;
    let count = tokens.iter().filter(|t| !is_space(t)).count();
    if count > TOKENS_MAX {
        return Err(StatementError::Limit {
            what: format!("a statement of {count} words and signs"),
            max: TOKENS_MAX,
            limit: "TOKENS_MAX",
        });
    }
    Ok(tokens)
}

fn is_space(token: &TokenWithSpan) -> bool {
    matches!(token.token, Token::Whitespace(_))
}

/// Makes the keyword VALUE a name, since `value` is the column of every table. Otherwise the parser
/// would read `CASE value …` among arguments as `key VALUE value`.
fn value_as_name(mut token: TokenWithSpan) -> TokenWithSpan {
    if let Token::Word(word) = &mut token.token
        && word.keyword == Keyword::VALUE
    {
        word.keyword = Keyword::NoKeyword;
    }
    token
}

fn is_keyword(token: &TokenWithSpan, keyword: &str) -> bool {
    matches!(&token.token, Token::Word(w) if w.quote_style.is_none() && w.value.eq_ignore_ascii_case(keyword))
}
