//! Curves as SVG, readable in light and dark, by people and by screen readers, and without colour.

use std::fmt::Write as _;

use super::curves::Points;
use crate::number::exact_len;

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 270.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 46.0;

/// Points drawn of a line; of more, the lowest and the highest of each stretch.
const POINTS_MAX: usize = 400;

/// Values that span more than this factor are drawn on a logarithmic scale.
const LOG_SPAN: f64 = 50.0;

/// Dashes by which lines are told apart besides their colour.
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

/// A line.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) name: String,
    /// In the order of x.
    pub(crate) points: Points,
}

impl Series {
    pub(crate) fn new(name: impl Into<String>, points: Points) -> Self {
        Self {
            name: name.into(),
            points,
        }
    }
}

/// A chart.
#[derive(Clone, Debug)]
pub(crate) struct Chart<'a> {
    pub(crate) title: &'a str,
    /// What x is, with its unit.
    pub(crate) x: &'a str,
    /// What y is, with its unit.
    pub(crate) y: &'a str,
    pub(crate) lines: Vec<Series>,
    /// Whether only the points are drawn.
    pub(crate) scatter: bool,
    /// A point that matters, and why.
    pub(crate) mark: Option<((f64, f64), String)>,
}

impl<'a> Chart<'a> {
    /// Lines over steps.
    pub(crate) const fn of_steps(title: &'a str, y: &'a str, lines: Vec<Series>) -> Self {
        Self {
            title,
            x: "step",
            y,
            lines,
            scatter: false,
            mark: None,
        }
    }

    /// The chart as a `figure`, with a legend when it has several lines.
    pub(crate) fn figure(&self) -> String {
        let mut out = format!(
            "<figure>\n<figcaption>{}</figcaption>\n",
            escape(self.title)
        );
        let Some(frame) = Frame::of(self) else {
            out += "<p class=\"quiet\">Nothing was measured.</p>\n</figure>\n";
            return out;
        };
        let name = escape(self.title);
        let label = escape(&self.words());
        out += &format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{label}\"><title>{name}</title>\n"
        );
        frame.axes(self, &mut out);
        for (i, line) in self.lines.iter().enumerate() {
            frame.line(i, line, self.scatter, &mut out);
        }
        if let Some((at, why)) = &self.mark {
            frame.mark(*at, why, &mut out);
        }
        out += "</svg>\n";
        if self.lines.len() > 1 {
            self.legend(&mut out);
        }
        out += "</figure>\n";
        out
    }

    /// What one would say of it.
    fn words(&self) -> String {
        let mut text = format!("{}: {} by {}.", self.title, self.y, self.x);
        for line in &self.lines {
            if let (Some(first), Some(last)) = (line.points.first(), line.points.last()) {
                let (first, last) = (number(first.1), number(last.1));
                text += &format!(" {}: from {first} to {last}.", line.name);
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
            let sample = if self.scatter {
                format!("<circle cx=\"14\" cy=\"5\" r=\"4\" class=\"d{}\"/>", i % 8)
            } else {
                format!("<path d=\"M0 5H28\" {}/>", stroke(i))
            };
            let name = escape(&line.name);
            *out += &format!(
                "<li><svg viewBox=\"0 0 28 10\" width=\"28\" height=\"10\" aria-hidden=\"true\">{sample}</svg>{name}</li>"
            );
        }
        *out += "</ul>\n";
    }
}

fn stroke(line: usize) -> String {
    let i = line % DASHES.len();
    format!("class=\"l{i}\" stroke-dasharray=\"{}\"", DASHES[i])
}

/// From values to places.
struct Frame {
    x: (f64, f64),
    y: (f64, f64),
    log: bool,
}

impl Frame {
    /// Room for all points; `None` when there are none.
    fn of(chart: &Chart<'_>) -> Option<Self> {
        let finite = |p: &&(f64, f64)| p.0.is_finite() && p.1.is_finite();
        let points = || chart.lines.iter().flat_map(|l| &l.points).filter(finite);
        let span = |values: &mut dyn Iterator<Item = f64>| {
            values.fold(None, |span: Option<(f64, f64)>, v| {
                Some(span.map_or((v, v), |(low, high)| (low.min(v), high.max(v))))
            })
        };
        let x = span(&mut points().map(|p| p.0))?;
        let y = span(&mut points().map(|p| p.1))?;
        let log = y.0 > 0.0 && y.1 / y.0 > LOG_SPAN;
        let y = if log { (y.0.log10(), y.1.log10()) } else { y };
        let x = if chart.scatter {
            x
        } else {
            (x.0.min(0.0), x.1)
        };
        Some(Self {
            x: apart(x, 0.0),
            y: apart(y, 0.05),
            log,
        })
    }

    fn to_x(&self, x: f64) -> f64 {
        LEFT + (x - self.x.0) / (self.x.1 - self.x.0) * (WIDTH - LEFT - RIGHT)
    }

    fn to_y(&self, y: f64) -> f64 {
        let y = if self.log { y.log10() } else { y };
        HEIGHT - BOTTOM - (y - self.y.0) / (self.y.1 - self.y.0) * (HEIGHT - TOP - BOTTOM)
    }

    fn axes(&self, chart: &Chart<'_>, out: &mut String) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for value in self.ticks_of_y() {
            let y = self.to_y(value);
            *out += &format!(
                "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n",
                LEFT - 7.0,
                y + 4.0,
                number(value)
            );
        }
        for value in ticks(self.x, 5) {
            let x = self.to_x(value);
            *out += &format!(
                "<path class=\"axis\" d=\"M{x:.1} {bottom}v4\"/><text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n",
                bottom + 18.0,
                number(value)
            );
        }
        let scale = if self.log { ", log scale" } else { "" };
        let (middle_x, middle_y) = (f64::midpoint(LEFT, right), f64::midpoint(TOP, bottom));
        *out += &format!(
            "<path class=\"axis\" d=\"M{LEFT} {bottom}H{right}\"/>\n\
             <text x=\"{middle_x}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n\
             <text transform=\"translate(14 {middle_y}) rotate(-90)\" text-anchor=\"middle\">{}{scale}</text>\n",
            HEIGHT - 7.0,
            escape(chart.x),
            escape(chart.y)
        );
    }

    fn ticks_of_y(&self) -> Vec<f64> {
        if !self.log {
            return ticks(self.y, 5);
        }
        let decades = ticks((self.y.0, self.y.1), 4);
        let whole: Vec<f64> = decades.iter().map(|d| d.round()).collect();
        let mut found: Vec<f64> = whole
            .into_iter()
            .filter(|d| (self.y.0..=self.y.1).contains(d))
            .collect();
        found.dedup_by(|a, b| (*a - *b).abs() < 0.5);
        found.into_iter().map(|d| 10_f64.powf(d)).collect()
    }

    fn line(&self, i: usize, line: &Series, scatter: bool, out: &mut String) {
        let points = thinned(&line.points);
        if scatter || points.len() == 1 {
            for (x, y) in points {
                let (x, y) = (self.to_x(x), self.to_y(y));
                *out += &format!(
                    "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" class=\"d{}\"/>",
                    i % DASHES.len()
                );
            }
            out.push('\n');
            return;
        }
        let mut path = String::new();
        for (x, y) in points {
            let letter = if path.is_empty() { 'M' } else { 'L' };
            let written = write!(path, "{letter}{:.1} {:.1}", self.to_x(x), self.to_y(y));
            debug_assert!(written.is_ok(), "text can always grow");
        }
        *out += &format!("<path d=\"{path}\" {}/>\n", stroke(i));
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
            HEIGHT - BOTTOM,
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

/// About `count` round values inside the span.
fn ticks((low, high): (f64, f64), count: usize) -> Vec<f64> {
    let rough = (high - low) / exact_len(count);
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= rough)
        .unwrap_or(10.0 * power);
    let first = (low / step).ceil();
    (0..=2 * count)
        .map(|i| (first + exact_len(i)) * step)
        .take_while(|value| *value <= high + step * 1e-9)
        .collect()
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

/// A number as short as it can be read: `1.2M`, `30k`, `0.015`, `1e-5`.
pub(crate) fn number(value: f64) -> String {
    let magnitude = value.abs();
    let (scaled, unit) = match magnitude {
        m if m >= 1e9 => return format!("{value:.2e}"),
        m if m >= 1e6 => (value / 1e6, "M"),
        m if m >= 1e4 => (value / 1e3, "k"),
        m if m > 0.0 && m < 1e-3 => {
            let text = format!("{value:.1e}");
            return text.replace(".0e", "e");
        }
        _ => (value, ""),
    };
    let digits = match scaled.abs() {
        m if m >= 100.0 => 0,
        m if m >= 10.0 => 1,
        m if m >= 1.0 => 2,
        _ => 4,
    };
    let text = format!("{scaled:.digits$}");
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        &text
    };
    let text = if text == "-0" { "0" } else { text };
    format!("{text}{unit}")
}

/// Text as it may stand in HTML, in attributes too.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (0.015, "0.015"),
            (1e-5, "1e-5"),
            (2.5e-4, "2.5e-4"),
            (3.0, "3"),
            (12.34, "12.3"),
            (9_500.0, "9500"),
            (30_000.0, "30k"),
            (1_250_000.0, "1.25M"),
            (-0.5, "-0.5"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(ticks((0.0, 10.0), 5), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(ticks((3.0, 47.0), 4), [20.0, 40.0]);
        assert_eq!(ticks((-1.0, 1.0), 4), [-1.0, -0.5, 0.0, 0.5, 1.0]);
    }

    #[test]
    fn thinning_keeps_the_peak() {
        let mut points: Points = (0..5000_i32).map(|i| (f64::from(i), 0.0)).collect();
        points[3333].1 = 7.0;
        let kept = thinned(&points);
        assert!(kept.len() <= POINTS_MAX + 2, "{}", kept.len());
        assert!(kept.contains(&(3333.0, 7.0)) && kept.is_sorted_by(|a, b| a.0 < b.0));
    }

    fn chart(points: Points) -> String {
        Chart::of_steps("loss <of> it", "loss", vec![Series::new("a", points)]).figure()
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
