//! `baro generate` (hidden): the reference pages that `cargo xtask generate` writes and checks.

use clap::{Args, Command, CommandFactory as _, ValueEnum};

use super::{Cli, output};

/// The page to print.
#[derive(Clone, Copy, ValueEnum)]
enum Page {
    /// docs/reference/cli.md
    Cli,
    /// docs/reference/configuration.md
    Config,
    /// docs/reference/sources.md
    Sources,
    /// etc/barograph.toml
    ConfigFile,
}

/// Arguments of `baro generate`.
#[derive(Args)]
pub(super) struct Generate {
    page: Page,
}

impl Generate {
    /// Prints the page.
    pub(super) fn run(self) -> anyhow::Result<()> {
        output::print_own(&match self.page {
            Page::Cli => cli_markdown(),
            Page::Config => barograph_agent::config_markdown(),
            Page::Sources => barograph_agent::sources_markdown(),
            Page::ConfigFile => barograph_agent::config_file(),
        })
    }
}

fn cli_markdown() -> String {
    let mut page = String::from(
        "# Command line\n\nGenerated from `baro` itself by `cargo xtask generate`. Every command takes `--help`. \
         Exit codes: 0 done, 1 what was asked for failed, 2 wrong use.\n",
    );
    let mut root = Cli::command().term_width(100);
    root.build();
    section(&root, "baro", &mut page);
    page
}

fn section(command: &Command, path: &str, page: &mut String) {
    let mut shown = command.clone();
    let help = shown.render_long_help().to_string();
    let help: Vec<&str> = help.lines().map(str::trim_end).collect();
    page.push_str(&format!(
        "\n## {path}\n\n```text\n{}\n```\n",
        help.join("\n").trim_end()
    ));
    for sub in command
        .get_subcommands()
        .filter(|c| !c.is_hide_set() && c.get_name() != "help")
    {
        section(sub, &format!("{path} {}", sub.get_name()), page);
    }
}
