//! The columns of one event as conditions read them, and the functions beside them.
//!
//! They stand alone because the expressions around them are those of insights.

use std::cell::OnceCell;
use std::sync::Arc;

use barograph_model::near;
use barograph_statement::{
    ColumnField, ColumnRef, Compiled, Compiler, Expr, ExprEnvironment, ExprInput, SqlValue,
    StatementError, UncertainValue, ast, length_ns,
};

use super::limits::RULE_COUNTS_MAX;

/// The kinds of events, as words, in the order of their numbers in records.
pub const EVENT_RULE_KINDS: [&str; 24] = [
    "create",
    "mkdir",
    "link",
    "symlink",
    "mknod",
    "unlink",
    "rmdir",
    "rename",
    "open",
    "close",
    "close_write",
    "write",
    "truncate",
    "attrib",
    "xattr",
    "layout",
    "hsm",
    "migrate",
    "resync",
    "xattr_read",
    "open_denied",
    "mark",
    "gap",
    "reconciled",
];

/// The columns of an event. The first [`TEXTS`] are texts, the others are numbers.
pub const EVENT_RULE_COLUMNS: [&str; 17] = [
    "kind",
    "path",
    "old_path",
    "name",
    "dir",
    "ext",
    "job",
    "source",
    "node",
    "mark",
    "size",
    "uid",
    "gid",
    "ts",
    "directory",
    "complete",
    "reconciled",
];

const TEXTS: usize = 10;
pub(super) const PATH: usize = 1;
pub(super) const DIR: usize = 4;

/// The facts of an event that rules read. It borrows what the event has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventFacts<'a> {
    /// The kind of the event: one of [`EVENT_RULE_KINDS`]. No rule takes another one.
    pub kind: &'a str,
    /// The name of the source.
    pub source: &'a str,
    /// The node of the source.
    pub node: &'a str,
    /// The number of the event in its source.
    pub index: u64,
    /// The time of the event, in ns since the epoch.
    pub ts: i64,
    /// The path at the time of the event, as raw bytes; after the event for a rename.
    pub path: &'a [u8],
    /// The path before a rename or migration; empty for other kinds.
    pub old_path: &'a [u8],
    /// The size of the file after the event, in bytes.
    pub size: Option<u64>,
    /// The user that caused the event, or the owner of the file where only that is known.
    pub uid: Option<u32>,
    /// The group of that user.
    pub gid: Option<u32>,
    /// The job that caused the event; empty if it is unknown.
    pub job: &'a str,
    /// The mark that a rule has put on the file with this event; empty if it is another event.
    pub mark: &'a str,
    /// Whether the target is a directory.
    pub directory: bool,
    /// Whether the path has its beginning.
    pub complete: bool,
    /// Whether the event was found by comparing.
    pub reconciled: bool,
    /// Whether the target came from outside of what is watched, or went there.
    pub beyond: bool,
}

/// A set of kinds of events, as bits by their place in [`EVENT_RULE_KINDS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct KindSet(u32);

impl KindSet {
    /// The place of a kind; `None` if there is no such kind.
    pub(super) fn place(kind: &str) -> Option<usize> {
        EVENT_RULE_KINDS.iter().position(|known| *known == kind)
    }

    /// Adds the kind at this place; returns whether it was new.
    pub(super) fn add(&mut self, place: usize) -> bool {
        let before = self.0;
        self.0 |= 1 << place;
        before != self.0
    }

    /// The kinds as which rules take an event. A file that comparing has found, or that was moved
    /// in from outside, has no `close_write`, so that its first or changed contents count as one.
    pub(super) fn of(event: &EventFacts<'_>) -> Self {
        let mut kinds = Self::default();
        let is_whole = event.reconciled || event.beyond;
        let is_contents = ["create", "write"].contains(&event.kind) && !event.directory;
        let close_write = (is_whole && is_contents).then_some("close_write");
        for place in [Some(event.kind), close_write]
            .into_iter()
            .flatten()
            .filter_map(Self::place)
        {
            kinds.add(place);
        }
        kinds
    }

    pub(super) fn has(self, place: usize) -> bool {
        self.0 & (1 << place) != 0
    }

    pub(super) fn places(self) -> impl Iterator<Item = usize> {
        (0..EVENT_RULE_KINDS.len()).filter(move |place| self.has(*place))
    }

    /// Whether one of these kinds is among the others.
    pub(super) fn meets(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }

    pub(super) fn words(self) -> impl Iterator<Item = &'static str> {
        let all = EVENT_RULE_KINDS.into_iter().enumerate();
        all.filter(move |(at, _)| self.has(*at))
            .map(|(_, kind)| kind)
    }
}

/// The meaning of the names in the conditions of one rule.
#[derive(Debug, Default)]
pub(super) struct EventNames {
    /// The lengths of the windows of `count_over`, in ns, each once; `None` where the function has
    /// no place.
    pub windows_ns: Option<Vec<i64>>,
}

impl ExprEnvironment for &mut EventNames {
    const OWNER: &'static str = "a rule on events";
    const FUNCTIONS: &'static str = "count_over";

    fn column(&self, table: Option<&ast::Ident>, column: &ast::Ident) -> Compiled {
        let name = column.value.to_ascii_lowercase();
        let at = column.span.start;
        if let Some(table) = table {
            return Err(StatementError::new(format!(
                "{table}.{column}{}: write {column}, since a rule reads one event",
                table.span.start
            )));
        }
        if let Some(place) = EVENT_RULE_COLUMNS.iter().position(|known| *known == name) {
            return Ok(Expr::Column(column_at(place)));
        }
        let hint = match near(&name, EVENT_RULE_COLUMNS).as_slice() {
            [] => format!("the columns are {}", EVENT_RULE_COLUMNS.join(", ")),
            near => format!("did you mean {}?", near.join(" or ")),
        };
        Err(StatementError::new(format!(
            "an event has no column {column}{at}: {hint}"
        )))
    }

    fn function(
        compiler: &mut Compiler<Self>,
        name: &str,
        args: &[&ast::Expr],
    ) -> Result<Option<Expr>, StatementError> {
        if name != "count_over" {
            return Ok(None);
        }
        let Some(windows_ns) = &mut compiler.environment.windows_ns else {
            return Err(StatementError::new(
                "count_over counts the events for which WHERE holds: write it in WHEN",
            ));
        };
        let length = match args {
            [ast::Expr::Value(value)] => match &value.value {
                ast::Value::SingleQuotedString(text) => Some(text),
                _ => None,
            },
            _ => None,
        };
        let length = length.ok_or_else(|| StatementError::new("write count_over('1 min')"))?;
        let ns = length_ns(length)?;
        if let Some(number) = windows_ns.iter().position(|known| *known == ns) {
            return Ok(Some(Expr::Computed(number)));
        }
        if windows_ns.len() >= RULE_COUNTS_MAX {
            return Err(StatementError::Limit {
                what: "windows of a rule on events".into(),
                max: RULE_COUNTS_MAX,
                limit: "RULE_COUNTS_MAX",
            });
        }
        windows_ns.push(ns);
        Ok(Some(Expr::Computed(windows_ns.len() - 1)))
    }
}

/// The column at this place of [`EVENT_RULE_COLUMNS`]. An event is one row of one table, so the
/// number that is otherwise that of the table is the place of the column here; the field decides
/// how SQLite compares a column of its declared type.
fn column_at(place: usize) -> ColumnRef {
    let field = match place < TEXTS {
        true => ColumnField::Quality,
        false => ColumnField::Ts,
    };
    ColumnRef { from: place, field }
}

/// The place of a column in [`EVENT_RULE_COLUMNS`].
pub(super) fn place_of(column: &ColumnRef) -> usize {
    column.from
}

/// An event as a row. A text is made when it is first read.
pub(super) struct EventRow<'a> {
    pub facts: &'a EventFacts<'a>,
    texts: [OnceCell<SqlValue>; TEXTS],
}

impl<'a> EventRow<'a> {
    pub(super) fn new(facts: &'a EventFacts<'a>) -> Self {
        Self {
            facts,
            texts: [const { OnceCell::new() }; TEXTS],
        }
    }

    /// The value of the column at this place.
    pub(super) fn value(&self, place: usize) -> SqlValue {
        if let Some(text) = self.text_at(place) {
            return text.clone();
        }
        let facts = self.facts;
        let number = |number: Option<u32>| number.map(i64::from);
        let number = match EVENT_RULE_COLUMNS.get(place) {
            Some(&"size") => facts.size.map(|v| i64::try_from(v).unwrap_or(i64::MAX)),
            Some(&"uid") => number(facts.uid),
            Some(&"gid") => number(facts.gid),
            Some(&"ts") => Some(facts.ts),
            Some(&"directory") => Some(facts.directory.into()),
            Some(&"complete") => Some(facts.complete.into()),
            Some(&"reconciled") => Some(facts.reconciled.into()),
            _ => None,
        };
        number.map_or(SqlValue::Null, SqlValue::Int)
    }

    /// The value of the text column at this place; `None` for a column of numbers.
    pub(super) fn text_at(&self, place: usize) -> Option<&SqlValue> {
        let text = self.texts.get(place)?;
        Some(text.get_or_init(|| self.text(place)))
    }

    /// The path as text; empty if it is unknown.
    pub(super) fn path(&self) -> Arc<str> {
        match self.value(PATH) {
            SqlValue::Text(text) => text,
            _ => Arc::default(),
        }
    }

    fn text(&self, place: usize) -> SqlValue {
        let facts = self.facts;
        let text = |text: &str| SqlValue::Text(text.into());
        let some = |bytes: &[u8]| match bytes {
            [] => SqlValue::Null,
            bytes => text(&String::from_utf8_lossy(bytes)),
        };
        let of_path = |bytes: &[u8]| match facts.path {
            [] => SqlValue::Null,
            _ => text(&String::from_utf8_lossy(bytes)),
        };
        let (dir, name) = split(facts.path);
        match EVENT_RULE_COLUMNS[place] {
            "kind" => text(facts.kind),
            "path" => some(facts.path),
            "old_path" => some(facts.old_path),
            "name" => of_path(name),
            "dir" => of_path(dir),
            "ext" => of_path(extension(name)),
            "job" => some(facts.job.as_bytes()),
            "mark" => some(facts.mark.as_bytes()),
            "source" => text(facts.source),
            _ => text(facts.node),
        }
    }
}

/// Directory and name of a path.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        None => (&[], path),
        Some(0) => (&path[..1], &path[1..]),
        Some(at) => (&path[..at], &path[at + 1..]),
    }
}

/// The extension of a name. A dot at the beginning begins none.
fn extension(name: &[u8]) -> &[u8] {
    match name.iter().rposition(|byte| *byte == b'.') {
        None | Some(0) => &[],
        Some(at) => &name[at + 1..],
    }
}

/// An event and the counts of a rule's windows: all that its expressions read.
#[derive(Clone, Copy)]
pub(super) struct EventValues<'a> {
    pub row: &'a EventRow<'a>,
    pub counts: &'a [u64],
}

impl ExprInput for EventValues<'_> {
    fn column(self, column: &ColumnRef) -> UncertainValue {
        UncertainValue::exact(self.row.value(place_of(column)))
    }

    fn computed(self, number: usize) -> UncertainValue {
        let count = self.counts.get(number);
        let count = count.map(|count| i64::try_from(*count).unwrap_or(i64::MAX));
        UncertainValue::exact(count.map_or(SqlValue::Null, SqlValue::Int))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_paths() {
        let check = |path: &[u8], dir: &str, name: &str, ext: &str| {
            let facts = EventFacts {
                path,
                ..EventFacts::default()
            };
            let row = EventRow::new(&facts);
            let seen = [DIR, 3, 5].map(|at| match row.value(at) {
                SqlValue::Text(text) => text.to_string(),
                other => format!("{other:?}"),
            });
            assert_eq!(seen, [dir, name, ext], "{path:?}");
        };
        check(b"/a/b.tar.gz", "/a", "b.tar.gz", "gz");
        check(b"/b", "/", "b", "");
        check(b"/a/.hidden", "/a", ".hidden", "");
        check(b"/a/b.", "/a", "b.", "");
        check(b"b.c", "", "b.c", "c");
        check(b"/", "/", "", "");
        check(b"", "Null", "Null", "Null");
        check(b"/a\xff/b.\xfe", "/a\u{fffd}", "b.\u{fffd}", "\u{fffd}");
    }

    #[test]
    fn texts_are_before_numbers() {
        let facts = EventFacts {
            path: b"/a",
            old_path: b"/b",
            job: "j",
            mark: "m",
            size: Some(u64::MAX),
            uid: Some(u32::MAX),
            gid: Some(1),
            ..EventFacts::default()
        };
        let row = EventRow::new(&facts);
        for (place, name) in EVENT_RULE_COLUMNS.into_iter().enumerate() {
            let is_text = matches!(row.value(place), SqlValue::Text(_));
            assert_eq!(is_text, place < TEXTS, "{name}");
            assert!(!row.value(place).is_null(), "{name}");
        }
        assert_eq!(row.value(TEXTS), SqlValue::Int(i64::MAX));
        assert_eq!(EVENT_RULE_COLUMNS[PATH], "path");
        assert_eq!(EVENT_RULE_COLUMNS[DIR], "dir");
    }
}
