//! Curves as SVG, readable in light and dark, by people and by screen readers, and without colour.

use std::fmt::Write as _;

use crate::{
    figure::{WIDTH, empty_figure, figure, note},
    text::{escape, exact_len, number},
    ticks::{linear_ticks, log_ticks, named_ticks},
};

/// Points of a line, x and y.
pub type Points = Vec<(f64, f64)>;

const HEIGHT: f64 = 270.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 46.0;

/// Points drawn of a line; of more, the lowest and the highest of each stretch.
const POINTS_MAX: usize = 400;

/// Points up to which each point of a line is marked.
const FEW: usize = 40;

/// Width of a character of a label.
const CHARACTER: f64 = 7.3;

/// Height of a slanted label, as a fraction of its length.
const SLANT: f64 = 0.6;

/// Values that span more than this factor are drawn on a logarithmic scale.
const LOG_SPAN: f64 = 50.0;

/// Dashes of lines, besides their colour.
const DASHES: [&str; 8] = [
    "none",
    "7 4",
    "2 3",
    "10 3 2 3",
    "5 2 1 2 1 2",
    "12 5",
    "1 5",
    "8 2",
];

/// Way to draw points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SeriesKind {
    /// A line through them.
    Line,
    /// Points alone.
    Dots,
    /// A line to compare others with.
    Reference,
}

/// Points of one kind.
#[derive(Clone, Debug)]
pub struct ChartSeries {
    /// Name in the legend.
    pub name: String,
    /// In the order of x.
    pub points: Points,
    kind: SeriesKind,
    /// True when y must have room for all of them. Points without room are drawn as arrows at the
    /// edge and counted below.
    has_room: bool,
}

impl ChartSeries {
    /// A line.
    #[must_use]
    pub fn new(name: impl Into<String>, points: Points) -> Self {
        Self {
            name: name.into(),
            points,
            kind: SeriesKind::Line,
            has_room: true,
        }
    }

    /// Points without a line.
    #[must_use]
    pub fn dots(name: impl Into<String>, points: Points) -> Self {
        Self {
            kind: SeriesKind::Dots,
            ..Self::new(name, points)
        }
    }

    /// A line to compare others with.
    #[must_use]
    pub fn reference(name: impl Into<String>, points: Points) -> Self {
        Self {
            kind: SeriesKind::Reference,
            ..Self::new(name, points)
        }
    }

    /// The same, without a say in the range of y.
    #[must_use]
    pub fn clipped(self) -> Self {
        Self {
            has_room: false,
            ..self
        }
    }
}

/// Values of x.
#[derive(Clone, Debug)]
pub enum AxisX {
    /// Numbers, from 0 or what is below it.
    FromZero,
    /// Numbers.
    Linear,
    /// Positive numbers on a logarithmic scale.
    Log,
    /// Values by name; x is the place in the list.
    Named(Vec<String>),
}

/// A chart.
#[derive(Clone, Debug)]
pub struct Chart<'a> {
    /// Title above the drawing.
    pub title: &'a str,
    /// Label of x, with its unit.
    pub x: &'a str,
    /// Label of y, with its unit.
    pub y: &'a str,
    /// Values of x.
    pub axis: AxisX,
    /// Lines, in the order of their colours.
    pub lines: Vec<ChartSeries>,
    /// A point that matters, and why.
    pub mark: Option<((f64, f64), String)>,
}

impl<'a> Chart<'a> {
    /// Lines over steps.
    #[must_use]
    pub const fn of_steps(title: &'a str, y: &'a str, lines: Vec<ChartSeries>) -> Self {
        Self {
            title,
            x: "step",
            y,
            axis: AxisX::FromZero,
            lines,
            mark: None,
        }
    }

    /// The chart as a `figure`, with a legend when it has several lines.
    #[must_use]
    pub fn figure(&self) -> String {
        let Some(frame) = ChartFrame::of(self) else {
            return empty_figure(self.title, "Nothing was measured.");
        };
        let mut drawn = String::new();
        frame.axes(self, &mut drawn);
        let mut clipped = Vec::new();
        for (i, line) in self.lines.iter().enumerate() {
            clipped.extend(frame.line(i, line, &mut drawn));
        }
        if let Some((at, why)) = &self.mark {
            frame.mark(*at, why, &mut drawn);
        }
        let mut below = String::new();
        if self.lines.len() > 1 {
            self.legend(&mut below);
        }
        below.extend(clipped.iter().map(|clipped| note(clipped)));
        figure(self.title, &self.words(), HEIGHT, &drawn, &below)
    }

    /// The chart in words.
    fn words(&self) -> String {
        let mut text = format!("{}: {} by {}.", self.title, self.y, self.x);
        for line in &self.lines {
            let (name, points) = (&line.name, &line.points);
            if let (Some(first), Some(last)) = (points.first(), points.last()) {
                let (first, last) = (number(first.1), number(last.1));
                text += &match line.kind {
                    SeriesKind::Dots if points.len() == 1 => format!(" {name}: 1 point."),
                    SeriesKind::Dots => format!(" {name}: {} points.", points.len()),
                    SeriesKind::Line => format!(" {name}: from {first} to {last}."),
                    SeriesKind::Reference => String::new(),
                };
            }
        }
        if let Some((_, why)) = &self.mark {
            text += &format!(" Marked: {why}.");
        }
        text
    }

    fn legend(&self, out: &mut String) {
        *out += "<ul class=\"legend\">";
        for (i, line) in self.lines.iter().enumerate() {
            let sample = if line.kind == SeriesKind::Dots {
                format!("<circle cx=\"14\" cy=\"5\" r=\"4\" class=\"d{}\"/>", i % 8)
            } else {
                format!("<path d=\"M0 5H28\" {}/>", stroke(i, line.kind))
            };
            let name = escape(&line.name);
            *out += &format!(
                "<li><svg viewBox=\"0 0 28 10\" width=\"28\" height=\"10\" aria-hidden=\"true\">{sample}</svg>{name}</li>"
            );
        }
        *out += "</ul>\n";
    }
}

fn stroke(line: usize, kind: SeriesKind) -> String {
    if kind == SeriesKind::Reference {
        return "class=\"reference\" stroke-dasharray=\"4 4\"".to_owned();
    }
    let i = line % DASHES.len();
    format!("class=\"l{i}\" stroke-dasharray=\"{}\"", DASHES[i])
}

/// From values to places.
struct ChartFrame {
    x: (f64, f64),
    y: (f64, f64),
    log_x: bool,
    log_y: bool,
    left: f64,
    bottom: f64,
    /// Labels of x, with their values.
    ticks_x: Vec<(f64, String)>,
    /// True when the labels of x are slanted.
    slanted: bool,
    ticks_y: Vec<(f64, String)>,
}

impl ChartFrame {
    /// Room for all points that must have it; `None` when there are no points.
    fn of(chart: &Chart<'_>) -> Option<Self> {
        let log_x = matches!(chart.axis, AxisX::Log);
        let drawn = |p: &&(f64, f64)| p.0.is_finite() && p.1.is_finite() && (!log_x || p.0 > 0.0);
        let span = |values: &mut dyn Iterator<Item = f64>| {
            values.fold(None, |span: Option<(f64, f64)>, v| {
                Some(span.map_or((v, v), |(low, high)| (low.min(v), high.max(v))))
            })
        };
        let points = || chart.lines.iter().flat_map(|l| &l.points).filter(drawn);
        let with_room = chart.lines.iter().filter(|l| l.has_room);
        let with_room = with_room.flat_map(|l| &l.points).filter(drawn);
        let x = span(&mut points().map(|p| p.0))?;
        let y = span(&mut with_room.map(|p| p.1));
        let y = y.or_else(|| span(&mut points().map(|p| p.1)))?;
        let log_y = y.0 > 0.0 && y.1 / y.0 > LOG_SPAN;
        let y = if log_y { (y.0.log10(), y.1.log10()) } else { y };
        let y = apart(y, 0.05);
        let x = match &chart.axis {
            AxisX::FromZero => apart((x.0.min(0.0), x.1), 0.0),
            AxisX::Linear => apart(x, 0.03),
            AxisX::Log => apart((x.0.log10(), x.1.log10()), 0.03),
            AxisX::Named(names) => (-0.5, exact_len(names.len().max(1)) - 0.5),
        };
        let ticks_y = if log_y { log_ticks(y) } else { linear_ticks(y) };
        let longest = ticks_y.iter().map(|(_, label)| label.chars().count()).max();
        let left = LEFT.max(exact_len(longest.unwrap_or(0)) * CHARACTER + 29.0);
        let ticks_x = match &chart.axis {
            AxisX::FromZero | AxisX::Linear => linear_ticks(x),
            AxisX::Log => log_ticks(x),
            AxisX::Named(names) => named_ticks(names),
        };
        let longest = ticks_x.iter().map(|(_, label)| label.chars().count()).max();
        let longest = exact_len(longest.unwrap_or(0)) * CHARACTER;
        let room = (WIDTH - left - RIGHT) / exact_len(ticks_x.len().max(1));
        let slanted = matches!(chart.axis, AxisX::Named(_)) && longest + 4.0 > room;
        let bottom = BOTTOM + if slanted { longest * SLANT } else { 0.0 };
        Some(Self {
            x,
            y,
            log_x,
            log_y,
            left,
            bottom,
            ticks_x,
            slanted,
            ticks_y,
        })
    }

    fn to_x(&self, x: f64) -> f64 {
        let x = if self.log_x { x.log10() } else { x };
        self.left + (x - self.x.0) / (self.x.1 - self.x.0) * (WIDTH - self.left - RIGHT)
    }

    fn to_y(&self, y: f64) -> f64 {
        let y = if self.log_y { y.log10() } else { y };
        let share = (y - self.y.0) / (self.y.1 - self.y.0);
        HEIGHT - self.bottom - share * (HEIGHT - TOP - self.bottom)
    }

    fn axes(&self, chart: &Chart<'_>, out: &mut String) {
        let (left, right, bottom) = (self.left, WIDTH - RIGHT, HEIGHT - self.bottom);
        for (value, label) in &self.ticks_y {
            let y = self.to_y(*value);
            *out += &format!(
                "<path class=\"grid\" d=\"M{left:.1} {y:.1}H{right}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>\n",
                left - 7.0,
                y + 4.0,
            );
        }
        for (value, label) in &self.ticks_x {
            let (x, label) = (self.to_x(*value), escape(label));
            let below = bottom + 18.0;
            *out += &format!("<path class=\"axis\" d=\"M{x:.1} {bottom:.1}v4\"/>");
            *out += &if self.slanted {
                format!(
                    "<text transform=\"translate({:.1} {:.1}) rotate(-35)\" text-anchor=\"end\">{label}</text>\n",
                    x + 4.0,
                    bottom + 14.0
                )
            } else {
                format!(
                    "<text x=\"{x:.1}\" y=\"{below:.1}\" text-anchor=\"middle\">{label}</text>\n"
                )
            };
        }
        let scale = |log: bool| if log { ", log scale" } else { "" };
        let (middle_x, middle_y) = (f64::midpoint(left, right), f64::midpoint(TOP, bottom));
        *out += &format!(
            "<path class=\"axis\" d=\"M{left:.1} {bottom:.1}H{right}\"/>\n\
             <text x=\"{middle_x:.1}\" y=\"{}\" text-anchor=\"middle\">{}{}</text>\n\
             <text transform=\"translate(14 {middle_y:.1}) rotate(-90)\" text-anchor=\"middle\">{}{}</text>\n",
            HEIGHT - 7.0,
            escape(chart.x),
            scale(self.log_x),
            escape(chart.y),
            scale(self.log_y)
        );
    }

    /// Draws a line or its points. Returns a note of the points that have no room.
    fn line(&self, i: usize, line: &ChartSeries, out: &mut String) -> Option<String> {
        let (inside, outside): (Points, Points) = line
            .points
            .iter()
            .filter(|p| p.0.is_finite() && p.1.is_finite())
            .partition(|p| self.has(p.1));
        let points = thinned(&inside);
        let points: Points = points
            .into_iter()
            .map(|(x, y)| (self.to_x(x), self.to_y(y)))
            .filter(|(x, _)| x.is_finite())
            .collect();
        let is_line = line.kind != SeriesKind::Dots && points.len() > 1;
        if is_line {
            let mut path = String::new();
            for (x, y) in &points {
                let letter = if path.is_empty() { 'M' } else { 'L' };
                let written = write!(path, "{letter}{x:.1} {y:.1}");
                debug_assert!(written.is_ok(), "text can always grow");
            }
            *out += &format!("<path d=\"{path}\" {}/>\n", stroke(i, line.kind));
        }
        let radius = match points.len() {
            ..=FEW if is_line && line.kind == SeriesKind::Line => 2.5,
            _ if is_line => return self.arrows(i, line, &outside, out),
            ..=100 => 3.5,
            _ => 2.2,
        };
        let class = i % DASHES.len();
        for (x, y) in &points {
            *out +=
                &format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" class=\"d{class}\"/>");
        }
        out.push('\n');
        self.arrows(i, line, &outside, out)
    }

    /// Returns true if y has room for a value.
    fn has(&self, y: f64) -> bool {
        let place = self.to_y(y);
        (TOP - 0.1..=HEIGHT - self.bottom + 0.1).contains(&place)
    }

    /// Draws points that have no room as arrows at the edge, and says how many they are.
    fn arrows(
        &self,
        i: usize,
        line: &ChartSeries,
        outside: &Points,
        out: &mut String,
    ) -> Option<String> {
        let (mut above, mut below, mut farthest) = (0, 0, 0.0_f64);
        for (x, y) in outside {
            let x = self.to_x(*x);
            // What a logarithmic scale has no place for is below all.
            let is_above = self.to_y(*y) < TOP;
            let (edge, away) = if is_above {
                (TOP, 8.0)
            } else {
                (HEIGHT - self.bottom, -8.0)
            };
            *out += &format!(
                "<path class=\"d{}\" d=\"M{x:.1} {edge:.1}l-4.5 {away}h9z\"/>",
                i % DASHES.len()
            );
            *(if is_above { &mut above } else { &mut below }) += 1;
            if y.abs() > farthest.abs() {
                farthest = *y;
            }
        }
        let (count, side) = match (above, below) {
            (0, 0) => return None,
            (above, 0) => (above, "above"),
            (0, below) => (below, "below"),
            (above, below) => (above + below, "above or below"),
        };
        let name = &line.name;
        Some(format!(
            "{count} of {} {name}: {side} what is drawn, as far as {}.",
            line.points.len(),
            number(farthest)
        ))
    }

    fn mark(&self, at: (f64, f64), why: &str, out: &mut String) {
        let (x, y) = (self.to_x(at.0), self.to_y(at.1));
        let (anchor, beside) = if x > WIDTH / 2.0 {
            ("end", x - 9.0)
        } else {
            ("start", x + 9.0)
        };
        *out += &format!(
            "<path class=\"mark\" d=\"M{x:.1} {TOP}V{:.1}\"/><circle class=\"mark\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\"/>\
             <text class=\"strong\" x=\"{beside:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>\n",
            HEIGHT - self.bottom,
            TOP + 12.0,
            escape(why)
        );
    }
}

/// A span that is not empty, wider by a share of itself at both ends.
fn apart((low, high): (f64, f64), margin: f64) -> (f64, f64) {
    let width = high - low;
    if width > 0.0 {
        return (low - margin * width, high + margin * width);
    }
    let around = if low == 0.0 { 1.0 } else { low.abs() * 0.1 };
    (low - around, high + around)
}

/// At most about [`POINTS_MAX`] points; peaks stay.
fn thinned(points: &[(f64, f64)]) -> Points {
    let finite: Points = points
        .iter()
        .copied()
        .filter(|p| p.0.is_finite() && p.1.is_finite())
        .collect();
    if finite.len() <= POINTS_MAX {
        return finite;
    }
    let stretch = (2 * finite.len()).div_ceil(POINTS_MAX);
    let mut kept = Points::new();
    for part in finite.chunks(stretch) {
        let by_value = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        let (low, high) = (part.iter().min_by(by_value), part.iter().max_by(by_value));
        let mut pair: Points = low.into_iter().chain(high).copied().collect();
        pair.sort_by(|a, b| a.0.total_cmp(&b.0));
        pair.dedup();
        kept.extend(pair);
    }
    kept
}

/// A chart of a number that only some runs have.
#[must_use]
pub fn some_steps(title: &str, y: &str, points: Points) -> String {
    if points.is_empty() {
        return String::new();
    }
    Chart::of_steps(title, y, vec![ChartSeries::new(y, points)]).figure()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_keeps_the_peak() {
        let mut points: Points = (0..5000_i32).map(|i| (f64::from(i), 0.0)).collect();
        points[3333].1 = 7.0;
        let kept = thinned(&points);
        assert!(kept.len() <= POINTS_MAX + 2, "{}", kept.len());
        assert!(kept.contains(&(3333.0, 7.0)) && kept.is_sorted_by(|a, b| a.0 < b.0));
    }

    #[test]
    fn a_list_of_values_is_an_axis_of_their_names() {
        let names = ["[64]", "[64,64]", "<b>"].map(str::to_owned).to_vec();
        let chart = Chart {
            axis: AxisX::Named(names),
            x: "model.hidden",
            ..Chart::of_steps(
                "t",
                "rmse",
                vec![ChartSeries::dots("a", vec![(0.0, 1.0), (2.0, 3.0)])],
            )
        };
        let page = chart.figure();
        for label in [">[64]<", ">[64,64]<", ">&lt;b&gt;<"] {
            assert!(page.contains(label), "{label}: {page}");
        }
        assert!(!page.contains(">0.5<"), "{page}");
    }

    #[test]
    fn points_without_a_say_are_arrows_and_do_not_squash_the_others() {
        let finished = vec![(0.0, 20.41), (1.0, 20.44), (2.0, 20.47)];
        let stopped = vec![(3.0, 20.43), (4.0, 65.0), (5.0, 78.0), (6.0, 0.5)];
        let lines = vec![
            ChartSeries::dots("finished", finished),
            ChartSeries::dots("stopped early", stopped).clipped(),
        ];
        let page = Chart::of_steps("t", "rmse", lines).figure();
        assert!(page.contains(">20.42<") && !page.contains(">60<"), "{page}");
        assert_eq!(page.matches("h9z").count(), 3, "{page}");
        let note = "3 of 4 stopped early: above or below what is drawn, as far as 78.";
        assert!(page.contains(note), "{page}");
        // Where there are no others, they have their own range.
        let lines =
            vec![ChartSeries::dots("stopped early", vec![(4.0, 65.0), (5.0, 78.0)]).clipped()];
        let page = Chart::of_steps("t", "rmse", lines).figure();
        assert!(
            page.contains(">70<") && !page.contains("what is drawn"),
            "{page}"
        );
    }

    #[test]
    fn one_point_is_not_counted_as_several() {
        let of = |points| Chart::of_steps("t", "rmse", vec![ChartSeries::dots("a", points)]);
        assert!(of(vec![(0.0, 1.0)]).words().ends_with(" a: 1 point."));
        let two = of(vec![(0.0, 1.0), (1.0, 2.0)]);
        assert!(two.words().ends_with(" a: 2 points."));
    }

    #[test]
    fn a_line_of_few_points_marks_them() {
        let dots = |count: u32| {
            let points = (0..count).map(|i| (f64::from(i), f64::from(i))).collect();
            chart(points).matches("<circle").count()
        };
        assert_eq!([1, 2, 6, 40, 41].map(dots), [1, 2, 6, 40, 0]);
    }

    fn chart(points: Points) -> String {
        Chart::of_steps("loss <of> it", "loss", vec![ChartSeries::new("a", points)]).figure()
    }

    #[test]
    fn a_wide_span_is_logarithmic_and_no_points_no_chart() {
        assert!(chart(vec![(1.0, 0.001), (2.0, 10.0)]).contains("log scale"));
        let plain = chart(vec![(1.0, 1.0), (2.0, 10.0)]);
        assert!(!plain.contains("log scale") && plain.contains("loss &lt;of&gt; it"));
        assert!(chart(vec![]).contains("Nothing was measured"));
        assert!(chart(vec![(1.0, f64::NAN)]).contains("Nothing was measured"));
        assert!(
            !chart(vec![(5.0, 1.0)]).contains("NaN"),
            "one point, no width"
        );
    }
}
