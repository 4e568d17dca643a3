//! Tests of documents with rules and tables of events.

use super::*;

const DOCUMENT: &str = "# New data

```sql
CREATE RULE h5 ON EVENT close_write, rename
    WHERE path GLOB '/data/*.h5' AND size > 0
    THEN RUN '/bin/index' '{path}'
```

| kind        | path             | size | fires |
|-------------|------------------|-----:|-------|
| close_write | /data/a.h5       | 5    | yes   |
| close_write | /data/a\\|b.h5   | 5    | yes   |
| rename      | /data/\\xff.h5   | 5    | no    |
| create      | `/data/a.h5`     | 5    | yes   |
| close_write | /data/a.h5       |      | no    |

| table | of others |

```sh
| this | is no table | fires |
```

```sql
CREATE RULE many ON EVENT unlink WHEN count_over('1 min') > 1 THEN RUN '/bin/warn' COOLDOWN '10 s'
```
| ts | kind | fires |
| --- | --- | --- |
| 2026-11-20T08:00:00Z | unlink | no |
| 2026-11-20T08:00:30Z | unlink | yes |
| 2026-11-20T08:00:35Z | unlink | yes |
| 2026-11-20T08:00:45Z | unlink | yes |
";

#[test]
fn rows_that_differ_are_told() {
    let tests = check_rule_markdown(DOCUMENT).unwrap();
    let rows: Vec<_> = tests.iter().map(|test| (&*test.name, test.rows)).collect();
    assert_eq!(rows, [("h5", 5), ("many", 4)]);
    let differences = |test: &MarkdownRule| -> Vec<(usize, bool, String)> {
        let all = test.differences.iter().map(|it| {
            let why = it.explanations.iter().find(|why| !why.holds());
            (
                it.line,
                it.fired,
                why.map_or(String::new(), ToString::to_string),
            )
        });
        all.collect()
    };
    assert_eq!(
        differences(&tests[0]),
        [
            (13, true, String::new()),
            (
                14,
                false,
                "does not hold: ON EVENT rename, close_write (kind = 'create')".into()
            )
        ]
    );
    assert_eq!(
        differences(&tests[1]),
        [(
            30,
            false,
            "does not hold: COOLDOWN 10 s (time to the last firing = 5 s)".into()
        )]
    );
}

#[test]
fn faults_have_lines() {
    let rule = "```sql\nCREATE RULE r ON EVENT open THEN RUN '/x'\n```\n";
    let check = |text: &str, expect: &str| {
        let fault = check_rule_markdown(text).unwrap_err();
        assert_eq!(fault.to_string(), expect, "{text}");
    };
    let table = |head: &str, rows: &str| {
        let lines = head.replace(|c| c != '|' && c != '\n', "-");
        format!("{rule}{head}\n{lines}\n{rows}\n")
    };
    check(
        "",
        "line 1: no rule: write it in a block that begins with ```sql",
    );
    check(
        rule,
        "line 1: the rule r has no table of events with kind and fires",
    );
    check("a\n```sql\nx", "line 2: the block is not closed");
    check(
        "```sql\nDROP RULE r\n```",
        "line 2: write CREATE RULE … ON EVENT …",
    );
    check(
        "| kind | fires |\n|---|---|\n",
        "line 1: a table of events stands below its rule",
    );
    check(
        &table("|kind|pth|fires|", ""),
        "line 4: an event has no column pth: did you mean path?",
    );
    check(
        &table("|kind|kind|fires|", ""),
        "line 4: the column kind stands twice",
    );
    check(
        &table("|path|fires|", ""),
        "line 4: a table of events has the column kind",
    );
    check(
        &table("|kind|fires|", "|open|"),
        "line 6: 1 cells, but 2 columns",
    );
    check(
        &table("|kind|fires|", "|open||"),
        "line 6: fires: write yes or no",
    );
    check(
        &table("|kind|fires|", "|opn|yes|"),
        "line 6: there is no kind of events 'opn': did you mean open?",
    );
    check(
        &table("|kind|size|fires|", "|open|-1|no|"),
        "line 6: size: write a whole number of at least 0",
    );
    check(
        &table("|kind|path|fires|", "|open|\\n|no|"),
        "line 6: path: write \\\\ for a backslash, \\| for a bar, \\xNN for a byte",
    );
    check(
        &table("|kind|ts|fires|", "|open|now|no|"),
        "line 6: ts: write ns since the epoch, or a time like 2026-11-20T08:00:00Z",
    );
    check(
        &format!("{rule}|kind|fires|\n|open|no|\n"),
        "line 4: the second line of a table is | --- | … with as many columns",
    );
}
