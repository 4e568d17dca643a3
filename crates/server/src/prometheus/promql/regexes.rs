//! Bounds on the regular expressions of a request, checked before the parser compiles them: the
//! parser would allow ten times as much memory for each one, and any number of them.

use promql_parser::util::unquote_string;
use regex::RegexBuilder;

use super::PromFault;

/// Most regular expressions of one request.
const COUNT_MAX: usize = 20;
/// Most bytes of all of them together.
const BYTES_MAX: usize = 4 << 10;
/// Largest compiled size of one, in bytes.
const SIZE_MAX: usize = 1 << 20;

/// The number and length of the regular expressions of a request so far.
#[derive(Debug, Default)]
pub struct Regexes {
    count: usize,
    bytes: usize,
}

impl Regexes {
    /// Counts the regular expressions of the matchers in a query.
    pub fn admit_matchers(&mut self, text: &str) -> Result<(), PromFault> {
        let mut before = ' ';
        for piece in pieces(text) {
            if let QueryPiece::Text(quoted) = piece {
                check_escapes(quoted)?;
            }
            match piece {
                QueryPiece::Bare(c) if c.is_whitespace() => {}
                QueryPiece::Bare(c) => before = c,
                // Only `=~` and `!~` end with this character.
                QueryPiece::Text(quoted) if before == '~' => {
                    before = ' ';
                    // A text that cannot be unquoted is refused by the parser.
                    if let Ok(expression) = unquote_string(quoted) {
                        self.admit(&expression)?;
                    }
                }
                QueryPiece::Text(_) => before = ' ',
                QueryPiece::Comment => {}
            }
        }
        Ok(())
    }

    /// Counts one expression and checks that it compiles to a small program.
    pub fn admit(&mut self, expression: &str) -> Result<(), PromFault> {
        self.count += 1;
        self.bytes += expression.len();
        if self.count > COUNT_MAX || self.bytes > BYTES_MAX {
            return Err(PromFault::bad(format!(
                "more than {COUNT_MAX} regular expressions or {BYTES_MAX} bytes of them: ask in parts"
            )));
        }
        let anchored = format!("^(?:{expression})$");
        let made = |text: &str| RegexBuilder::new(text).size_limit(SIZE_MAX).build();
        // The parser tries both ways too; it refuses a text that is no expression in either.
        let made = match made(&anchored) {
            Err(regex::Error::Syntax(_)) => made(&with_plain_braces(&anchored)),
            made => made,
        };
        match made {
            Err(regex::Error::CompiledTooBig(_)) => Err(PromFault::bad(format!(
                "the regular expression {expression:?} is too large: use shorter repetitions, or [0-9] \
                 and [A-Za-z] for \\d and \\w"
            ))),
            _ => Ok(()),
        }
    }
}

/// Refuses an escape on which the parser would panic: it cuts the text after the byte behind a
/// backslash, even in the middle of a character.
fn check_escapes(quoted: &str) -> Result<(), PromFault> {
    if quoted.starts_with('`') {
        return Ok(());
    }
    let mut chars = quoted.chars();
    while let Some(c) = chars.next() {
        if c == '\\' && chars.next().is_some_and(|escaped| !escaped.is_ascii()) {
            return Err(PromFault::bad(format!(
                "invalid syntax in {quoted}: a backslash escapes ASCII characters alone"
            )));
        }
    }
    Ok(())
}

/// Escapes braces that repeat nothing, as the parser does: they stand for themselves, as in Go.
fn with_plain_braces(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => plain.extend(chars.next().into_iter().flat_map(|next| [c, next])),
            '{' => {
                let mut body = String::new();
                let repeats = loop {
                    let Some(c) = chars.next() else { break false };
                    let is_first = body.is_empty();
                    let has_comma = body.contains(',');
                    body.push(c);
                    match c {
                        '}' => break !is_first,
                        ',' if !is_first && !has_comma => {}
                        c if c.is_ascii_digit() => {}
                        _ => break false,
                    }
                };
                plain.push_str(if repeats { "{" } else { "\\{" });
                plain.push_str(&body);
            }
            c => plain.push(c),
        }
    }
    plain
}

/// A piece of a query, as the parser's lexer splits it.
pub(super) enum QueryPiece<'a> {
    /// A character outside of quoted strings.
    Bare(char),
    /// A string with its quotes; the last one may be missing.
    Text(&'a str),
    /// A comment with the end of its line.
    Comment,
}

/// Splits a query as the parser's lexer does: a backslash escapes in backticks too, and a comment
/// ends at a carriage return.
pub(super) fn pieces(text: &str) -> impl Iterator<Item = QueryPiece<'_>> {
    let mut chars = text.char_indices();
    std::iter::from_fn(move || {
        let (at, first) = chars.next()?;
        Some(match first {
            '"' | '\'' | '`' => {
                while let Some((_, c)) = chars.next() {
                    match c {
                        '\\' => drop(chars.next()),
                        c if c == first => break,
                        _ => {}
                    }
                }
                QueryPiece::Text(&text[at..chars.offset()])
            }
            '#' => {
                chars.find(|(_, c)| ['\r', '\n'].contains(c));
                QueryPiece::Comment
            }
            c => QueryPiece::Bare(c),
        })
    })
}
