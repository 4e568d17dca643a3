//! Texts that are almost rules, and almost documents of rules. The fuzz targets do the same with
//! more of them.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::exercise;

#[test]
fn what_is_whole_is_read() {
    exercise::statement("CREATE RULE r ON EVENT create WHERE size > 1 THEN RUN '/x' '{path}'");
    exercise::statement("size / 0 > 1 AND path GLOB '/a*'");
    exercise::statement("count_over('1 s') > 2");
    exercise::document("| create | /a | 5 | 1 | yes |\n| create | `/b\\xff` | | 2 | no |");
    exercise::document("| kind | fires |\n| --- | --- |\n| create | no |");
}

proptest! {
    #[test]
    fn no_rule_panics(words in vec(select(vec![
        "path", "name", "size", "uid", "ts", "job", "GLOB", "'/a*'", "LIKE", "'%'", "AND", "OR",
        "NOT", "(", ")", "<", "=", "+", "-", "*", "/", "%", "0", "9223372036854775807", "1e308",
        "NULL", "IS", "IN", "BETWEEN", "CASE", "WHEN", "THEN", "ELSE", "END", "count_over",
        "('1 s')", "abs", "length", "substr", ",", "||", "'{path}'", "'{'", "COOLDOWN", "'10 s'",
        "RETRY", "QUIET", "'08:00'", "TO", "'18:00'", "é",
    ]), 0..20)) {
        exercise::statement(&words.join(" "));
    }

    #[test]
    fn no_document_panics(words in vec(select(vec![
        "|", "\n", "```", "```sql", "\n|", "---", "create", "write", "/a", "`", "\\", "\\x", "ff",
        "\\|", "yes", "no", "kind", "path", "fires", "ts", "size", "1", "-1", "é",
        "2026-11-20T08:00:00Z", "CREATE RULE q ON EVENT create THEN RUN '/x'",
    ]), 0..40)) {
        exercise::document(&words.join(" "));
    }
}
