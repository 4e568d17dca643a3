//! Drawing of the board into a terminal buffer: blue for reads, amber for writes, red for trouble,
//! grey for stale values.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

use super::super::format;
use super::super::output::plain;
use super::board::{Board, Strip, Tank};
use super::causes::Cause;
use super::nodes::NodeLine;

const READ: Color = Color::Blue;
const WRITE: Color = Color::Yellow;
const TROUBLE: Color = Color::Red;
const OLD: Color = Color::DarkGray;

/// Columns left of a strip, for the device's name.
const NAME_COLUMNS: u16 = 10;
/// Columns right of the pen, for the newest values.
const VALUES_COLUMNS: u16 = 52;
/// Columns of the table of nodes.
const NODE_COLUMNS: [u16; 6] = [0, 20, 30, 44, 54, 66];
/// Busy share from which a device counts as saturated.
const SATURATED: f64 = 0.9;
/// Block characters for heights in eighths of a line.
const BLOCKS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

/// Draws everything.
pub(super) fn board(board: &Board, paused: bool, area: Rect, buffer: &mut Buffer) {
    let mut pen = Pen {
        buffer,
        area,
        line: 0,
    };
    let plain = if board.alive {
        Style::new()
    } else {
        Style::new().fg(OLD)
    };
    let state = match (board.alive, paused) {
        (false, _) => format!("dead for {}", format::age(board.heartbeat_age_ns)),
        (true, true) => "paused".into(),
        (true, false) => "live".into(),
    };
    pen.text(
        0,
        &format!("{}  {state}", board.node),
        plain.add_modifier(Modifier::BOLD),
    );
    pen.next();
    let calm = board.outlook == "calm";
    let sentence = if calm || !board.alive {
        plain
    } else {
        Style::new().fg(TROUBLE)
    };
    pen.text(0, &board.outlook, sentence.add_modifier(Modifier::BOLD));
    pen.next();
    pen.next();
    board.strips.iter().for_each(|s| strip(s, plain, &mut pen));
    if board.strips.is_empty() {
        pen.text(0, "no disk is seen: `baro doctor` says why", plain);
        pen.next();
    }
    pen.next();
    board.tanks.iter().for_each(|t| tank(t, plain, &mut pen));
    pen.next();
    pen.text(0, &board.who, plain);
    pen.next();
    causes(&board.causes, plain, &mut pen);
    if area.height > 0 {
        pen.line = area.height - 1;
        pen.text(0, "q quit   p pause   n nodes", Style::new().fg(OLD));
    }
}

/// Draws the nodes of the cluster.
pub(super) fn nodes(
    nodes: &[NodeLine],
    now_ns: i64,
    paused: bool,
    area: Rect,
    buffer: &mut Buffer,
) {
    let mut pen = Pen {
        buffer,
        area,
        line: 0,
    };
    let lost = nodes.iter().filter(|node| !node.is_heard()).count();
    let head = format!("{} nodes, {lost} not heard", nodes.len());
    let style = Style::new().add_modifier(Modifier::BOLD);
    pen.text(0, &head, style);
    if paused {
        pen.text(head.len() as u16 + 2, "paused", style);
    }
    pen.next();
    pen.next();
    let columns = ["node", "busy", "device", "heard", "round trip", "state"];
    for (at, name) in NODE_COLUMNS.into_iter().zip(columns) {
        pen.text(at, name, Style::new().fg(OLD));
    }
    pen.next();
    for node in nodes {
        let is_hot = node.busy.is_some_and(|busy| busy >= SATURATED);
        let style = match node.is_heard() {
            false => Style::new().fg(OLD),
            true if is_hot => Style::new().fg(TROUBLE),
            true => Style::new(),
        };
        let round_trip_s = node.round_trip_ns.unwrap_or_default() as f64 / 1e9;
        let known = |text: String| if node.is_heard() { text } else { String::new() };
        let cells = [
            node.node.clone(),
            known(format::number(node.busy.unwrap_or(f64::NAN), "ratio")),
            known(node.device.clone().unwrap_or_default()),
            match node.heard_ts {
                Some(heard_ns) => format::age(now_ns.saturating_sub(heard_ns)),
                None => node.state.clone(),
            },
            match node.round_trip_ns {
                Some(_) => format::number(round_trip_s, "seconds"),
                None => String::new(),
            },
            match node.is_heard() {
                true => node.outlook.clone().unwrap_or_default(),
                false => node.state.clone(),
            },
        ];
        for (at, cell) in NODE_COLUMNS.into_iter().zip(cells) {
            pen.text(at, &cell, style);
        }
        pen.next();
    }
    if area.height > 0 {
        pen.line = area.height - 1;
        pen.text(0, "q quit   p pause   n this node", Style::new().fg(OLD));
    }
}

/// A position in the buffer, a line at a time; text that does not fit is cut.
struct Pen<'a> {
    buffer: &'a mut Buffer,
    area: Rect,
    line: u16,
}

impl Pen<'_> {
    fn text(&mut self, column: u16, text: &str, style: Style) {
        // The last line is for the keys.
        if self.line < self.area.height && column < self.area.width {
            let room = (self.area.width - column) as usize;
            self.buffer.set_stringn(
                self.area.x + column,
                self.area.y + self.line,
                plain(text),
                room,
                style,
            );
        }
    }

    fn next(&mut self) {
        self.line += 1;
    }
}

fn strip(strip: &Strip, plain: Style, pen: &mut Pen<'_>) {
    let style = if strip.stale {
        Style::new().fg(OLD)
    } else {
        plain
    };
    let hot = strip.saturated && !strip.stale;
    let ink = if hot { Style::new().fg(TROUBLE) } else { style };
    pen.text(0, &strip.device, ink);
    let values_at = pen
        .area
        .width
        .saturating_sub(VALUES_COLUMNS)
        .max(NAME_COLUMNS);
    let columns = values_at.saturating_sub(NAME_COLUMNS + 1) as usize;
    let shown = &strip.busy[strip.busy.len().saturating_sub(columns)..];
    let line: String = shown.iter().map(|b| b.map_or(" ", block)).collect();
    pen.text(NAME_COLUMNS + (columns - shown.len()) as u16, &line, ink);
    pen.text(values_at - 1, "▏", Style::new().fg(OLD));
    let number = |v: Option<f64>, unit: &str| v.map_or("-".into(), |v| format::number(v, unit));
    pen.text(
        values_at,
        &format!("{:>7}", number(strip.busy_now, "ratio")),
        ink,
    );
    let read = if strip.stale { style } else { style.fg(READ) };
    let write = if strip.stale { style } else { style.fg(WRITE) };
    pen.text(
        values_at + 8,
        &format!("r {:>10}", number(strip.read, "bytes/s")),
        read,
    );
    pen.text(
        values_at + 22,
        &format!("w {:>10}", number(strip.write, "bytes/s")),
        write,
    );
    pen.text(
        values_at + 36,
        &format!("{:>8}", number(strip.latency, "seconds")),
        style,
    );
    if strip.stale {
        pen.text(values_at + 46, "old", style);
    }
    pen.next();
}

fn block(ratio: f64) -> &'static str {
    // Any value above zero is visible.
    let eighths = (ratio.clamp(0.0, 1.0) * 8.0).ceil() as usize;
    BLOCKS[eighths.min(8)]
}

fn tank(tank: &Tank, plain: Style, pen: &mut Pen<'_>) {
    let used = tank.used;
    let columns = 30usize;
    let filled = (used * columns as f64).round().clamp(0.0, columns as f64) as usize;
    let style = if used > 0.95 {
        Style::new().fg(TROUBLE)
    } else {
        plain
    };
    let bar = format!("{}{}", "█".repeat(filled), "░".repeat(columns - filled));
    // The figures of file systems in memory are their limits, not those of the RAM.
    let what = if tank.tier == "memory" {
        " in tmpfs and the like"
    } else {
        ""
    };
    let text = format!(
        "{:<10}{bar}  {} available of {}{what}",
        tank.tier,
        format::number(tank.available, "bytes"),
        format::number(tank.total, "bytes"),
    );
    pen.text(0, &text, style);
    pen.next();
}

fn causes(causes: &[Cause], plain: Style, pen: &mut Pen<'_>) {
    for cause in causes {
        pen.text(0, &format!("{:<14}{:<26}", cause.kind, cause.name), plain);
        pen.text(41, &format!("{:<10}", cause.device), plain);
        pen.text(
            52,
            &format!("r {:>10}", format::number(cause.read, "bytes/s")),
            plain.fg(READ),
        );
        pen.text(
            66,
            &format!("w {:>10}", format::number(cause.write, "bytes/s")),
            plain.fg(WRITE),
        );
        pen.next();
    }
}
