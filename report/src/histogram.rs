//! Histograms: bars as high as their fraction of all cells.

use crate::{
    figure::{WIDTH, empty_figure, figure, note},
    text::{escape, exact, significant},
};

const HEIGHT: f64 = 200.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 24.0;

/// A histogram of a split: cells below its range, in parts of equal width, and above.
#[derive(Clone, Debug)]
pub struct Histogram<'a> {
    /// Title above the drawing.
    pub title: &'a str,
    /// Ends of the axis.
    pub range: [f64; 2],
    /// Cells below the range, in each part, and above.
    pub counts: &'a [u64],
    /// Another split in the same parts, with its name. It is drawn as an outline.
    pub beside: Option<(&'a str, &'a [u64])>,
    /// Places on the axis, with a word each.
    pub marks: &'a [(f64, String)],
}

impl Histogram<'_> {
    /// The drawing. Bars are as high as their fraction of all cells.
    #[must_use]
    pub fn figure(&self) -> String {
        let Some(bars) = HistogramBars::of(self) else {
            return empty_figure(self.title, "There is nothing to draw.");
        };
        let (low, high) = (significant(self.range[0]), significant(self.range[1]));
        let mut words = format!(
            "{}: {low} to {high}, at most {:.1} % of the cells in a bar.",
            self.title,
            bars.most * 100.0
        );
        let mut drawn = bars.grid() + &bars.rectangles();
        if let Some((name, shares)) = &bars.beside {
            drawn += &bars.outline(shares);
            words += &format!(" The outline is the {name} split.");
        }
        drawn += &self.axis_labels();
        for (i, mark) in self.marks.iter().enumerate() {
            words += &format!(" Marked: {}.", mark.1);
            drawn += &self.mark(i, mark);
        }
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        drawn += &format!("<path class=\"axis\" d=\"M{LEFT} {bottom}H{right}\"/>\n");
        let notes = bars.notes();
        let below = if notes.is_empty() {
            String::new()
        } else {
            note(&notes.join(" "))
        };
        figure(self.title, &words, HEIGHT, &drawn, &below)
    }

    /// Numbers below the axis: its ends and its middle.
    fn axis_labels(&self) -> String {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        let [low, high] = self.range;
        let middle = low / 2.0 + high / 2.0;
        let mut drawn = String::new();
        for (value, x, anchor) in [
            (low, LEFT, "start"),
            (middle, f64::midpoint(LEFT, right), "middle"),
            (high, right, "end"),
        ] {
            drawn += &format!(
                "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>\n",
                bottom + 17.0,
                significant(value)
            );
        }
        drawn
    }

    /// A place on the axis, with its word.
    fn mark(&self, i: usize, (at, word): &(f64, String)) -> String {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        let [low, high] = self.range;
        let share = ((at / 2.0 - low / 2.0) / (high / 2.0 - low / 2.0)).clamp(0.0, 1.0);
        let share = if share.is_finite() { share } else { 0.5 };
        let x = LEFT + share * (right - LEFT);
        // Half of a drawing has room for a word, and each word has a line of its own.
        let (anchor, beside) = if x < f64::midpoint(LEFT, right) {
            ("start", x + 4.0)
        } else {
            ("end", x - 4.0)
        };
        format!(
            "<path class=\"cap\" d=\"M{x:.1} {:.1}V{bottom}\"/><text class=\"strong\" x=\"{beside:.1}\" y=\"{:.1}\" \
             text-anchor=\"{anchor}\">{}</text>\n",
            TOP - 4.0,
            TOP - 8.0 - if i == 0 { 13.0 } else { 0.0 },
            escape(word)
        )
    }
}

/// Bars of a histogram as fractions of all cells, and the scale that they are drawn to.
struct HistogramBars<'a> {
    below: u64,
    above: u64,
    shares: Vec<f64>,
    /// Another split in the same parts, with its name.
    beside: Option<(&'a str, Vec<f64>)>,
    /// Height of the highest bar.
    most: f64,
    /// End of the axis of heights.
    top: f64,
}

impl<'a> HistogramBars<'a> {
    /// `None` where the histogram has no part.
    fn of(histogram: &Histogram<'a>) -> Option<Self> {
        let (below, inside, above) = parts(histogram.counts)?;
        let all = exact(histogram.counts.iter().sum::<u64>().max(1));
        let shares: Vec<f64> = inside.iter().map(|count| exact(*count) / all).collect();
        let beside = histogram.beside.and_then(|(name, counts)| {
            let (_, inside, _) = parts(counts)?;
            let all = exact(counts.iter().sum());
            let shares = inside.iter().map(|count| exact(*count) / all);
            (all > 0.0).then(|| (name, shares.collect::<Vec<f64>>()))
        });
        let others = beside.iter().flat_map(|(_, shares)| shares);
        let most = shares
            .iter()
            .chain(others)
            .fold(0.0, |most: f64, s| most.max(*s));
        Some(Self {
            below,
            above,
            shares,
            beside,
            most,
            top: round_up(most),
        })
    }

    /// Width of a bar with its space.
    fn width(&self) -> f64 {
        (WIDTH - RIGHT - LEFT) / exact(self.shares.len() as u64)
    }

    /// Height of a bar of this fraction of the cells.
    fn tall(&self, share: f64) -> f64 {
        share / self.top * (HEIGHT - BOTTOM - TOP)
    }

    /// Horizontal lines with their percentages.
    fn grid(&self) -> String {
        let (right, bottom, top) = (WIDTH - RIGHT, HEIGHT - BOTTOM, self.top);
        let mut drawn = String::new();
        for part in [0.0, 0.5, 1.0] {
            let y = bottom - self.tall(top * part);
            drawn += &format!(
                "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{} %</text>\n",
                LEFT - 5.0,
                y + 4.0,
                plain(top * part * 100.0)
            );
        }
        drawn
    }

    fn rectangles(&self) -> String {
        let (width, bottom) = (self.width(), HEIGHT - BOTTOM);
        let mut drawn = String::new();
        let shares = self.shares.iter().enumerate();
        for (i, share) in shares.filter(|(_, share)| **share > 0.0) {
            let tall = self.tall(*share).max(0.5);
            let (x, y) = (LEFT + width * exact(i as u64), bottom - tall);
            drawn += &format!(
                "<rect class=\"bar\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{tall:.1}\"/>\n",
                (width - 1.0).max(0.5)
            );
        }
        drawn
    }

    /// The other split, as a line around its bars.
    fn outline(&self, shares: &[f64]) -> String {
        let (width, bottom) = (self.width(), HEIGHT - BOTTOM);
        let mut path = format!("M{LEFT} {bottom}");
        for (i, share) in shares.iter().enumerate() {
            let end = LEFT + width * exact(i as u64 + 1);
            path += &format!("V{:.1}H{end:.1}", bottom - self.tall(*share));
        }
        format!("<path class=\"beside\" d=\"{path}V{bottom}\"/>\n")
    }

    /// Sentences below the drawing.
    fn notes(&self) -> Vec<String> {
        let beside = self.beside.iter();
        let outline = beside.map(|(name, _)| format!("The outline is the {name} split."));
        let mut notes: Vec<String> = outline.collect();
        let (below, above) = (self.below, self.above);
        if below + above > 0 {
            notes.push(format!(
                "{below} cells are below what is drawn, {above} above."
            ));
        }
        notes
    }
}

/// Counts below, inside and above; `None` where nothing is inside.
fn parts(counts: &[u64]) -> Option<(u64, &[u64], u64)> {
    match counts {
        [below, inside @ .., above] if !inside.is_empty() => Some((*below, inside, *above)),
        _ => None,
    }
}

/// The end of an axis: a round number that is not below `value`, and above 0.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(value.log10().floor());
    [1.0, 1.2, 1.6, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|round| *round >= value)
        .unwrap_or(10.0 * power)
}

/// A percentage of an axis, without digits that say nothing.
fn plain(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_marks_stand_inside_of_the_drawing_wherever_the_marks_are() {
        let right = WIDTH - RIGHT;
        let at = |share: f64| LEFT + share * (right - LEFT);
        for (lower, upper, expected) in [
            (1.0, 9.0, [("start", at(0.1) + 4.0), ("end", at(0.9) - 4.0)]),
            (0.0, 0.0, [("start", LEFT + 4.0), ("start", LEFT + 4.0)]),
            (10.0, 10.0, [("end", right - 4.0), ("end", right - 4.0)]),
        ] {
            let marks = [(lower, "low".to_owned()), (upper, "high".to_owned())];
            let histogram = Histogram {
                title: "a",
                range: [0.0, 10.0],
                counts: &[0, 1, 1, 0],
                beside: None,
                marks: &marks,
            };
            let drawn = histogram.figure();
            let lines: Vec<&str> = drawn.lines().filter(|l| l.contains("\"cap\"")).collect();
            assert_eq!(lines.len(), 2);
            for (line, (anchor, x)) in lines.into_iter().zip(expected) {
                assert!(
                    line.contains(&format!("class=\"strong\" x=\"{x:.1}\"")),
                    "{line}"
                );
                assert!(
                    line.contains(&format!("text-anchor=\"{anchor}\"")),
                    "{line}"
                );
            }
        }
    }

    #[test]
    fn a_histogram_has_an_axis_of_fractions_and_the_other_split_as_an_outline() {
        let histogram = Histogram {
            title: "a",
            range: [0.0, 4.0],
            counts: &[1, 2, 5, 2, 0, 0],
            beside: Some(("test", &[0, 1, 0, 0, 4, 0])),
            marks: &[],
        };
        let drawn = histogram.figure();
        // The highest bar is 4 of 5 cells of the test split.
        for label in [">0 %<", ">40 %<", ">80 %<"] {
            assert!(drawn.contains(label), "{label}: {drawn}");
        }
        let (bottom, tall) = (HEIGHT - BOTTOM, HEIGHT - BOTTOM - TOP);
        let bar = format!("height=\"{:.1}\"", 0.5 / 0.8 * tall);
        assert!(drawn.contains(&bar), "{bar}: {drawn}");
        let outline = format!("M{LEFT} {bottom}V{:.1}", bottom - 0.2 / 0.8 * tall);
        assert!(drawn.contains(&outline), "{outline}: {drawn}");
        assert!(drawn.contains("The outline is the test split. 1 cells are below"));
    }

    #[test]
    fn drawings_of_odd_counts_have_no_odd_numbers() {
        let caps = [(1.0, "cap".to_owned()), (f64::MAX, "high".to_owned())];
        for (range, counts) in [
            ([0.0, 1.0], vec![1, 2, 3, 0]),
            ([5.0, 5.0], vec![0, 7, 0]),
            ([f64::MIN, f64::MAX], vec![0; 34]),
            ([0.0, 0.0], vec![3]),
        ] {
            let histogram = Histogram {
                title: "a",
                range,
                counts: &counts,
                beside: Some(("test", &counts)),
                marks: &caps,
            };
            let drawn = histogram.figure();
            assert!(!drawn.contains("NaN") && !drawn.contains("inf"), "{drawn}");
            assert!(drawn.ends_with("</figure>\n"));
        }
    }
}
