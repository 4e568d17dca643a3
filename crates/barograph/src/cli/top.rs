//! `baro top`: the barograph sheet on a terminal: one strip per disk, the pen at the right edge.

mod board;
mod causes;
mod draw;

use std::io::IsTerminal as _;
use std::time::Duration;

use clap::Args;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::layout::Rect;

use super::{Target, output};
use board::Board;

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
        if self.target.json {
            return output::print_json(&Board::read(&observer).to_json());
        }
        if self.once || !std::io::stdout().is_terminal() {
            return output::print(&plain_frame(&Board::read(&observer)));
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
        let mut board = Board::read(observer);
        let mut paused = false;
        loop {
            terminal.draw(|frame| draw::board(&board, paused, frame.area(), frame.buffer_mut()))?;
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
                        _ => {}
                    },
                    _ => {}
                }
            }
            if !paused {
                board = Board::read(observer);
            }
        }
    }
}

fn plain_frame(board: &Board) -> String {
    let area = Rect::new(0, 0, PLAIN_COLUMNS, PLAIN_LINES);
    let mut buffer = ratatui::buffer::Buffer::empty(area);
    draw::board(board, false, area, &mut buffer);
    let lines = (0..PLAIN_LINES).map(|y| {
        let line: String = (0..PLAIN_COLUMNS)
            .map(|x| buffer[(x, y)].symbol())
            .collect();
        line.trim_end().to_owned()
    });
    let text = lines.collect::<Vec<_>>().join("\n");
    format!("{}\n", text.trim_end())
}
