//! Draws figures with lines and points over two axes, as PNG and as SVG. The font is part of the
//! crate, so that a figure has the same bytes on every machine. Figures are dark on white, which is
//! legible on dark pages too.

use std::sync::Once;

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};

/// Width and height, in pixels.
pub const SIZE: (u32, u32) = (860, 420);
/// Most points that are drawn of a series; of a longer one only every n-th is drawn.
pub const POINTS_MAX: usize = 1_500;

/// Greatest coordinate that is drawn: axes with a greater range would have no numbers.
const PLACE_MAX: f64 = 1e100;
const LEGEND_WIDTH: u32 = 220;
const FONT: &[u8] = include_bytes!("../fonts/DejaVuSans-ascii.ttf");
/// Number of shapes of points; a colour always has the same shape.
const SHAPES: usize = 3;
/// The palette of Okabe and Ito, which is legible for the colour-blind; yellow is left out, since
/// it is too light on white.
const COLORS: [RGBColor; 7] = [
    RGBColor(0, 0, 0),
    RGBColor(213, 94, 0),
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];

/// The reason why a figure could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("the figure {title:?} cannot be drawn: {fault}")]
pub struct PlotError {
    title: String,
    fault: String,
}

/// One axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlotAxis {
    /// The quantity, and its unit in brackets.
    pub label: String,
    /// Whether the axis is logarithmic; values that are not above 0 are not drawn.
    pub is_log: bool,
    /// Start and end, which is greater; values beyond are drawn on the border. If `None`, the range
    /// of the points.
    pub range: Option<(f64, f64)>,
    /// Names that replace the numbers 0, 1, 2 and so on.
    pub names: Vec<String>,
}

/// The style of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlotMark {
    /// A line from point to point.
    Line,
    /// A line of steps: each value holds until the next.
    Steps,
    /// Points without a line.
    Points,
}

/// Points that are drawn with the same name, mark and colour.
#[derive(Clone, Debug, PartialEq)]
pub struct PlotSeries {
    /// Name in the legend; a series with an empty name is not in it.
    pub name: String,
    /// The style of the points.
    pub mark: PlotMark,
    /// Index of the colour and of the shape of points.
    pub color: usize,
    /// Coordinates; a point that is not finite, or beyond 1e100, is left out.
    pub points: Vec<(f64, f64)>,
}

/// One figure.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figure {
    /// The title above the figure.
    pub title: String,
    /// The horizontal axis.
    pub x: PlotAxis,
    /// The vertical axis.
    pub y: PlotAxis,
    /// The series, in the order of drawing.
    pub series: Vec<PlotSeries>,
}

impl Figure {
    /// Draws the bytes of a PNG file.
    pub fn png(&self) -> Result<Vec<u8>, PlotError> {
        let (width, height) = SIZE;
        let mut pixels = vec![0; width as usize * height as usize * 3];
        self.draw(&BitMapBackend::with_buffer(&mut pixels, SIZE).into_drawing_area())?;
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, width, height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.set_compression(png::Compression::High);
        let written = encoder
            .write_header()
            .and_then(|mut writer| writer.write_image_data(&pixels));
        written.map_err(|error| self.fault(&error))?;
        Ok(bytes)
    }

    /// Draws an `<svg>` element; its text is in the reader's sans-serif font.
    pub fn svg(&self) -> Result<String, PlotError> {
        let mut text = String::new();
        self.draw(&SVGBackend::with_string(&mut text, SIZE).into_drawing_area())?;
        Ok(text)
    }

    fn fault(&self, error: &dyn std::fmt::Display) -> PlotError {
        PlotError {
            title: self.title.clone(),
            fault: error.to_string(),
        }
    }

    fn draw<B: DrawingBackend>(&self, root: &DrawingArea<B, Shift>) -> Result<(), PlotError> {
        static FONTS: Once = Once::new();
        // The font is compiled in and checked by a test; if it failed, figures would only lack
        // text.
        FONTS.call_once(|| {
            let _ = register_font("sans-serif", FontStyle::Normal, FONT);
        });
        self.draw_all(root).map_err(|error| self.fault(&error))
    }

    fn draw_all<B: DrawingBackend>(
        &self,
        root: &DrawingArea<B, Shift>,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        root.fill(&WHITE)?;
        let (panel, legend) = root.split_horizontally(SIZE.0 - LEGEND_WIDTH);
        let x = self.x.span(self.points().map(|(x, _)| x));
        let y = self.y.span(self.points().map(|(_, y)| y));
        let names = !self.y.names.is_empty();
        let mut chart = ChartBuilder::on(&panel)
            .caption(&self.title, ("sans-serif", 15))
            .margin(8)
            .x_label_area_size(42)
            .y_label_area_size(if names { 170 } else { 84 })
            .build_cartesian_2d(x.0..x.1, y.0..y.1)?;
        let mut mesh = chart.configure_mesh();
        mesh.light_line_style(TRANSPARENT)
            .bold_line_style(RGBColor(225, 225, 225))
            .label_style(("sans-serif", 12))
            .axis_desc_style(("sans-serif", 13))
            .x_desc(&self.x.label)
            .y_desc(&self.y.label)
            .x_labels(7)
            .y_labels(if names { self.y.names.len() + 2 } else { 7 });
        mesh.x_label_formatter(&|at| self.x.text(*at))
            .y_label_formatter(&|at| self.y.text(*at))
            .draw()?;
        for series in &self.series {
            self.draw_series(&mut chart, series)?;
        }
        self.draw_legend(&legend)?;
        root.present()
    }

    fn points(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        self.series.iter().flat_map(|series| self.places(series))
    }

    /// The points of a series that are drawn, in the coordinates of the axes.
    fn places<'a>(&'a self, series: &'a PlotSeries) -> impl Iterator<Item = (f64, f64)> + 'a {
        let every = series.points.len().div_ceil(POINTS_MAX).max(1);
        let places = series.points.iter().step_by(every);
        places
            .map(|(x, y)| (self.x.place(*x), self.y.place(*y)))
            .filter(|(x, y)| x.abs() <= PLACE_MAX && y.abs() <= PLACE_MAX)
    }

    fn draw_series<B: DrawingBackend>(
        &self,
        chart: &mut ChartContext<'_, B, Cartesian2d<RangedCoordf64, RangedCoordf64>>,
        series: &PlotSeries,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        let color = COLORS[series.color % COLORS.len()];
        let places: Vec<(f64, f64)> = self.places(series).collect();
        let line = match series.mark {
            PlotMark::Points => {
                let dots = places.into_iter();
                match series.color % SHAPES {
                    0 => chart.draw_series(dots.map(|at| Circle::new(at, 4, color.filled())))?,
                    1 => chart
                        .draw_series(dots.map(|at| TriangleMarker::new(at, 6, color.filled())))?,
                    _ => chart
                        .draw_series(dots.map(|at| Cross::new(at, 5, color.stroke_width(2))))?,
                };
                return Ok(());
            }
            PlotMark::Line => places,
            PlotMark::Steps => {
                let corner = |pair: &[(f64, f64)]| [pair[0], (pair[1].0, pair[0].1)];
                let last = places.last().copied();
                places.windows(2).flat_map(corner).chain(last).collect()
            }
        };
        chart.draw_series([PathElement::new(line, color.stroke_width(2))])?;
        Ok(())
    }

    fn draw_legend<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        let mut y = 42;
        for series in self.series.iter().filter(|series| !series.name.is_empty()) {
            let color = COLORS[series.color % COLORS.len()];
            if series.mark == PlotMark::Points {
                match series.color % SHAPES {
                    0 => area.draw(&Circle::new((16, y), 4, color.filled()))?,
                    1 => area.draw(&TriangleMarker::new((16, y), 6, color.filled()))?,
                    _ => area.draw(&Cross::new((16, y), 5, color.stroke_width(2)))?,
                }
            } else {
                area.draw(&PathElement::new([(6, y), (26, y)], color.stroke_width(2)))?;
            }
            let text = Text::new(series.name.clone(), (34, y - 6), ("sans-serif", 12));
            area.draw(&text)?;
            y += 19;
        }
        Ok(())
    }
}

impl PlotAxis {
    /// Creates an axis of numbers.
    pub fn of(label: &str) -> Self {
        Self {
            label: label.to_owned(),
            ..Self::default()
        }
    }

    fn place(&self, value: f64) -> f64 {
        let scale = |value: f64| if self.is_log { value.log10() } else { value };
        match self.range {
            Some((from, to)) => scale(value).clamp(scale(from), scale(to)),
            None => scale(value),
        }
    }

    fn span(&self, places: impl Iterator<Item = f64>) -> (f64, f64) {
        if !self.names.is_empty() {
            return (-0.5, self.names.len() as f64 - 0.5);
        }
        if let Some((from, to)) = self.range {
            return (self.place(from), self.place(to));
        }
        let (from, to) = places.fold((f64::INFINITY, f64::NEG_INFINITY), |(from, to), at| {
            (from.min(at), to.max(at))
        });
        if from > to {
            return (0.0, 1.0);
        }
        // The range of one value, or of values that hardly differ, would be empty.
        let wide = (to - from).max(from.abs().max(to.abs()) * 1e-6).max(1e-12);
        (from - 0.05 * wide, to + 0.05 * wide)
    }

    fn text(&self, place: f64) -> String {
        if !self.names.is_empty() {
            let name = (place >= -0.01 && (place - place.round()).abs() < 0.01)
                .then(|| self.names.get(place.round() as usize));
            return name.flatten().cloned().unwrap_or_default();
        }
        match self.is_log {
            true if (place - place.round()).abs() < 0.01 => number(10_f64.powf(place.round())),
            // Half a decade is no round number.
            true => String::new(),
            false => number(place),
        }
    }
}

/// A number for axes and tables: four digits at most, large ones with a prefix.
pub fn number(value: f64) -> String {
    let size = value.abs();
    let (scaled, prefix) = match size {
        _ if size >= 1e15 => return format!("{value:.1e}"),
        _ if size >= 1e12 => (value / 1e12, "T"),
        _ if size >= 1e9 => (value / 1e9, "G"),
        _ if size >= 1e6 => (value / 1e6, "M"),
        _ if size >= 1e4 => (value / 1e3, "k"),
        _ if size < 1e-3 && size > 1e-12 => return format!("{value:.0e}"),
        _ => (value, ""),
    };
    let digits = match scaled.abs() {
        size if size >= 1000.0 => 0,
        size if size >= 100.0 => 1,
        size if size >= 10.0 => 2,
        _ => 3,
    };
    let text = format!("{scaled:.digits$}");
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        &text
    };
    format!("{text}{prefix}")
}
