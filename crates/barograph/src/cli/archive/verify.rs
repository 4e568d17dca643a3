//! `baro archive verify`: reads everything and reports damage.

use barograph_archive::{Verified, verify};
use clap::Args;
use serde_json::{Value as Json, json};

use super::ArchiveChoice;
use crate::cli::{format, output};

/// Most findings that are printed for people; JSON has them all.
const FINDINGS_MAX: usize = 50;

/// Arguments of `baro archive verify`.
#[derive(Args)]
pub(super) struct Verify {
    #[command(flatten)]
    place: ArchiveChoice,
}

impl Verify {
    /// Runs the command; findings are a failure (exit code 1), printed as they are found.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let archives = self.place.archives()?;
        let mut all = Verified::default();
        let mut broken = Vec::new();
        for kept in &archives.kept {
            let verified = verify(&kept.dir, &mut |done, all| {
                let name = kept.name();
                output::progress(&format!("{name}: {done} of {all} files"), true);
                if done == all {
                    output::progress("", false);
                }
            })?;
            if !verified.findings.is_empty() || verified.twice > 0 {
                broken.push(kept.dir.display().to_string());
            }
            all.add(verified);
        }
        if self.place.json() {
            let mut report = report(&all);
            report["unreadable"] = archives.closed.into();
            output::print_json(&report)?;
        } else {
            output::print(&text(&all))?;
            archives.tell_closed();
        }
        if !broken.is_empty() {
            anyhow::bail!("{} is not whole: see above", broken.join(", "));
        }
        Ok(())
    }
}

fn report(verified: &Verified) -> Json {
    let findings = verified
        .findings
        .iter()
        .map(|f| json!({ "path": f.path.display().to_string(), "what": f.what }));
    json!({
        "files": verified.files,
        "samples": verified.samples,
        "bytes": verified.bytes,
        "twice": verified.twice,
        "missing": verified.missing,
        "findings": findings.collect::<Vec<_>>(),
    })
}

fn text(verified: &Verified) -> String {
    let mut text = String::new();
    for finding in verified.findings.iter().take(FINDINGS_MAX) {
        text += &format!("{}: {}\n", finding.path.display(), finding.what);
    }
    let more = verified.findings.len().saturating_sub(FINDINGS_MAX);
    if more > 0 {
        text += &format!("and {more} more findings: --json lists them all\n");
    }
    let state = match verified.findings.len() {
        0 if verified.twice == 0 => "whole".to_owned(),
        0 => "damaged".to_owned(),
        n => format!("{n} findings"),
    };
    text += &format!(
        "{state}: {} files, {} samples, {} read; {} samples twice, {} missing between others\n",
        verified.files,
        verified.samples,
        format::number(verified.bytes as f64, "bytes"),
        verified.twice,
        verified.missing,
    );
    text
}

#[cfg(test)]
mod tests {
    use barograph_archive::Finding;

    use super::*;

    #[test]
    fn what_is_wrong_comes_first() {
        let mut verified = Verified {
            files: 2,
            samples: 10,
            bytes: 2048,
            missing: 3,
            ..Verified::default()
        };
        assert_eq!(
            text(&verified),
            "whole: 2 files, 10 samples, 2 KiB read; 0 samples twice, 3 missing between others\n"
        );
        let finding = Finding {
            path: "/a/b".into(),
            what: "cut".into(),
        };
        verified.findings = vec![finding; FINDINGS_MAX + 1];
        let text = text(&verified);
        assert!(text.starts_with("/a/b: cut\n/a/b: cut\n"), "{text}");
        assert!(text.contains("\nand 1 more findings: --json lists them all\n51 findings: "));
    }
}
