//! `baro top`: the barograph sheet on a terminal: one strip per disk, the pen at the right edge.

mod board;
mod causes;
mod draw;
mod nodes;

use std::io::IsTerminal as _;
use std::time::Duration;

use barograph_client::SystemClock;
use barograph_model::Clock as _;
use clap::Args;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::layout::Rect;

use super::{Target, output};
use board::Board;
use nodes::NodeLine;

/// Width of a frame that is written to a file instead of a screen, in columns.
const PLAIN_COLUMNS: u16 = 100;
/// Height of such a frame, in lines.
const PLAIN_LINES: u16 = 40;

/// Arguments of `baro top`.
#[derive(Args)]
pub(super) struct Top {
    /// Milliseconds between frames
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(100..=60_000))]
    every: u64,
    /// Show the nodes of the cluster, worst first, instead of this node; the key n changes between
    /// the two
    #[arg(long)]
    nodes: bool,
    /// Print one frame and end
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    target: Target,
}

impl Top {
    /// Runs the screen until q, Esc or Ctrl-C.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let observer = self.target.observer()?;
        if self.target.json && self.nodes {
            return output::print_json(&nodes::json(&observer)?);
        }
        if self.target.json {
            return output::print_json(&Board::read(&observer).to_json());
        }
        if self.once || !std::io::stdout().is_terminal() {
            return output::print(&plain_frame(&Shown::read(&observer, self.nodes)?));
        }
        let mut terminal = ratatui::try_init()?;
        let ended = self.screen(&observer, &mut terminal);
        ratatui::restore();
        ended
    }

    fn screen(
        &self,
        observer: &barograph_client::Observer,
        terminal: &mut ratatui::DefaultTerminal,
    ) -> anyhow::Result<()> {
        let mut is_of_nodes = self.nodes;
        let mut shown = Shown::read(observer, is_of_nodes)?;
        let mut paused = false;
        loop {
            terminal.draw(|frame| shown.draw(paused, frame.area(), frame.buffer_mut()))?;
            if event::poll(Duration::from_millis(self.every))? {
                match event::read()? {
                    Event::Key(key)
                        if key.code == KeyCode::Char('c')
                            && key.modifiers.contains(KeyModifiers::CONTROL) =>
                    {
                        return Ok(());
                    }
                    Event::Key(key) => match key.code {
                        KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                        KeyCode::Char('p' | ' ') => paused = !paused,
                        KeyCode::Char('n') => {
                            is_of_nodes = !is_of_nodes;
                            shown = Shown::read(observer, is_of_nodes)?;
                        }
                        _ => {}
                    },
                    _ => {}
                }
            }
            if !paused {
                shown = Shown::read(observer, is_of_nodes)?;
            }
        }
    }
}

/// The view that is on the screen.
enum Shown {
    Board(Box<Board>),
    Nodes(Vec<NodeLine>),
}

impl Shown {
    fn read(observer: &barograph_client::Observer, is_of_nodes: bool) -> anyhow::Result<Self> {
        Ok(match is_of_nodes {
            true => Self::Nodes(nodes::nodes(observer)?),
            false => Self::Board(Box::new(Board::read(observer))),
        })
    }

    fn draw(&self, paused: bool, area: Rect, buffer: &mut Buffer) {
        match self {
            Self::Board(board) => draw::board(board, paused, area, buffer),
            Self::Nodes(nodes) => {
                draw::nodes(nodes, SystemClock::new().now_ns(), paused, area, buffer);
            }
        }
    }
}

fn plain_frame(shown: &Shown) -> String {
    let area = Rect::new(0, 0, PLAIN_COLUMNS, PLAIN_LINES);
    let mut buffer = Buffer::empty(area);
    shown.draw(false, area, &mut buffer);
    let lines = (0..PLAIN_LINES).map(|y| {
        let line: String = (0..PLAIN_COLUMNS)
            .map(|x| buffer[(x, y)].symbol())
            .collect();
        line.trim_end().to_owned()
    });
    let text = lines.collect::<Vec<_>>().join("\n");
    format!("{}\n", text.trim_end())
}
