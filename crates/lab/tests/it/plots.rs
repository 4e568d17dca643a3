//! Checks that figures are files that other programs can read, and that the document's generator
//! leaves nothing out.

use std::fs;
use std::path::Path;

use barograph_lab::cases;
use barograph_lab::evaluation::{Evaluation, EvaluationInputs};
use barograph_lab::page::{self, Section};
use barograph_lab::plot::{Figure, PlotAxis, PlotMark, PlotSeries, SIZE};
use barograph_lab::suite::{Case, policies, score};
use barograph_lab::{Trace, figures, fill, placeholders};

const TEMPLATE: &str = include_str!("../../examples/evaluation/forecast.md");

fn case() -> Case {
    let mut case = cases::made().remove(1);
    case.name = "a <b> & \"c\"".to_owned();
    case
}

/// Width and height of a PNG, whose rows are all unpacked, and the number of its pixels that are
/// not white.
fn unpacked(bytes: &[u8]) -> (u32, u32, usize) {
    let mut reader = png::Decoder::new(std::io::Cursor::new(bytes))
        .read_info()
        .expect("a PNG");
    let mut pixels = vec![0; reader.output_buffer_size().expect("it fits")];
    let info = reader.next_frame(&mut pixels).expect("rows");
    let inked = pixels
        .chunks(3)
        .filter(|pixel| pixel.iter().any(|part| *part < 200));
    (info.width, info.height, inked.count())
}

#[test]
fn a_figure_is_a_png_that_is_drawn_upon() {
    let case = case();
    let table = policies(&case, &mut || 0);
    for figure in [figures::frontier(&table), figures::over_time(&case)] {
        let bytes = figure.png().unwrap();
        let (width, height, inked) = unpacked(&bytes);
        assert_eq!((width, height), SIZE);
        assert!(inked > 1_000, "{inked}");
        assert!(bytes.len() < 60_000, "{}", bytes.len());
        assert_eq!(bytes, figure.png().unwrap());
    }
}

#[test]
fn text_is_drawn_with_the_font_that_is_kept() {
    let bare = Figure::default();
    let titled = Figure {
        title: "µs ≤ 5 × 10 °".to_owned(),
        ..Figure::default()
    };
    let ink = |figure: &Figure| unpacked(&figure.png().unwrap()).2;
    assert!(ink(&titled) > ink(&bare) + 100);
}

#[test]
fn what_no_axis_can_have_is_left_out() {
    let values = [
        f64::NAN,
        f64::INFINITY,
        f64::MAX,
        f64::MIN,
        0.0,
        -1.0,
        1e-300,
    ];
    for is_log in [false, true] {
        for marks in [PlotMark::Line, PlotMark::Steps, PlotMark::Points] {
            let axis = PlotAxis {
                is_log,
                ..PlotAxis::of("x")
            };
            let figure = Figure {
                x: axis.clone(),
                y: axis,
                series: vec![PlotSeries {
                    name: "s".to_owned(),
                    mark: marks,
                    color: 9,
                    points: values
                        .into_iter()
                        .flat_map(|x| values.map(|y| (x, y)))
                        .collect(),
                }],
                ..Figure::default()
            };
            assert!(!figure.png().unwrap().is_empty());
            assert!(figure.svg().unwrap().starts_with("<svg"));
        }
    }
}

#[test]
fn a_page_asks_nothing_of_any_other() {
    let case = case();
    let table = policies(&case, &mut || 0);
    let section = Section {
        name: case.name.clone(),
        figures: vec![figures::frontier(&table), figures::over_time(&case)],
        policies: Some(table),
        predictors: Some(score(&case, &mut || 0)),
    };
    let html = page::html("Replays", &[section]).unwrap();
    assert!(html.starts_with("<!doctype html>") && html.ends_with("</html>\n"));
    assert_eq!(html.matches("<svg").count(), 2);
    assert_eq!(html.matches("<table>").count(), 2);
    assert!(html.contains("a &lt;b&gt; &amp; &quot;c&quot;") && !html.contains("<b>"));
    for outside in ["src=", "href=", "url(", "@import", "<script"] {
        assert!(!html.contains(outside), "{outside}");
    }
    // The name of SVG's namespace is no address that is requested.
    assert_eq!(
        html.matches("http").count(),
        html.matches("http://www.w3.org/2000/svg").count()
    );
}

#[test]
fn the_document_has_all_of_its_sections() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let names = ["hacc-irregular-1s-test", "machine-1s-test"];
    let trace = |name: &str| {
        let bytes = fs::read(folder.join(format!("traces/{name}.csv.gz"))).unwrap();
        (name.to_owned(), Trace::parse(name, &bytes).unwrap())
    };
    let lstm = fs::read(folder.join("data/lstm.json")).unwrap();
    let inputs = EvaluationInputs {
        traces: names.map(trace).into(),
        selector: "steps                 1.000  1.000  1.000  1.000   98.1  93.5  90.2  89.8 *  143  155  p".to_owned(),
        lstm: Some(serde_json::from_slice(&lstm).unwrap()),
        machine: "a machine".to_owned(),
    };
    let evaluation = Evaluation::of(&inputs, &mut || 0).unwrap();
    for (name, text) in &evaluation.texts {
        assert!(!text.trim().is_empty(), "{name}");
    }
    let text = fill(TEMPLATE, &evaluation.texts).unwrap();
    assert!(placeholders(&text).is_empty());
    for (name, bytes) in &evaluation.images {
        assert!(text.contains(&format!("(../images/{name})")), "{name}");
        assert!(bytes.len() < 60_000 && unpacked(bytes).2 > 1_000, "{name}");
    }
    assert_eq!(text.matches("(../images/").count(), evaluation.images.len());
}

/// The script and the laboratory use the same quantities: they agree on persistence, the model that
/// both have.
#[test]
fn the_lstm_was_scored_on_the_same_values() {
    use barograph_lab::accuracy::{accuracy, quantities};
    use barograph_lab::evaluation::Lstm;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let lstm = fs::read(folder.join("data/lstm.json")).unwrap();
    let lstm: Lstm = serde_json::from_slice(&lstm).unwrap();
    // Four layers of 50 cells and a sum; with five inputs these are the paper's 71,851 parameters.
    let layer = |inputs: u32| 200 * (inputs + 50 + 1);
    assert_eq!(lstm.parameters, layer(lstm.inputs) + 3 * layer(50) + 51);
    let mut checked = 0;
    for series in lstm
        .series
        .iter()
        .filter(|series| series.trace.ends_with("-test"))
    {
        let bytes = fs::read(folder.join(format!("traces/{}.csv.gz", series.trace))).unwrap();
        let trace = Trace::parse(&series.trace, &bytes).unwrap();
        let all = quantities(&series.trace, &trace);
        let quantity = all
            .iter()
            .find(|quantity| quantity.metric == series.metric)
            .unwrap();
        let ours = accuracy(&quantity.values, &quantity.values);
        let off = (ours.mae - series.persistence.mae).abs();
        assert!(
            off <= 1e-9 * ours.mae.max(1e-9),
            "{} {}",
            series.trace,
            series.metric
        );
        checked += 1;
    }
    assert_eq!(checked, 30);
}
