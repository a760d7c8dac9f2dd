//! Text, tables and drawings as HTML: all data is escaped, and each drawing has a description in
//! words.

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 200.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 24.0;

/// Height of a horizontal bar with its space, and where it begins.
const LINE: f64 = 24.0;
const LABEL: f64 = 170.0;

/// Characters of a text that a drawing shows.
const SHOWN: usize = 22;

/// A link. The path is relative.
pub(super) fn link(path: &str, text: &str) -> String {
    format!("<a href=\"{}\">{}</a>", escape(path), escape(text))
}

/// `body` with a table of contents before its first section.
fn with_contents(body: &str) -> String {
    let mut parts = body.split("<h2>");
    let mut out = parts.next().unwrap_or_default().to_owned();
    let (mut contents, mut sections) = (String::new(), String::new());
    for (i, part) in parts.enumerate() {
        let title = part.split("</h2>").next().unwrap_or_default();
        contents += &format!("<li><a href=\"#s{i}\">{title}</a></li>");
        sections += &format!("<h2 id=\"s{i}\">{part}");
    }
    out += &format!("<nav aria-label=\"Contents\"><ul>{contents}</ul></nav>\n");
    out + &sections
}

/// A page around `body`, which needs nothing but itself.
pub(super) fn document(title: &str, body: &str) -> String {
    let body = with_contents(body);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{}</title>\n<style>\n{}</style>\n\
         </head>\n<body>\n{body}</body>\n</html>\n",
        escape(title),
        include_str!("page.css")
    )
}

/// A table of texts; columns in `numbers` are right-aligned.
pub(super) fn table(
    caption: &str,
    head: &[&str],
    numbers: std::ops::Range<usize>,
    rows: &[Vec<String>],
) -> String {
    let escaped = |row: &Vec<String>| row.iter().map(|cell| escape(cell)).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(escaped).collect();
    table_of(caption, head, numbers, &rows)
}

/// The same of cells that are HTML.
pub(super) fn table_of(
    caption: &str,
    head: &[&str],
    numbers: std::ops::Range<usize>,
    rows: &[Vec<String>],
) -> String {
    let class = |i: usize| {
        if numbers.contains(&i) {
            " class=\"number\""
        } else {
            ""
        }
    };
    let mut out = format!(
        "<div class=\"scroll\"><table><caption>{}</caption>\n<thead><tr>",
        escape(caption)
    );
    for (i, name) in head.iter().enumerate() {
        out += &format!("<th scope=\"col\"{}>{}</th>", class(i), escape(name));
    }
    out += "</tr></thead>\n<tbody>\n";
    for row in rows {
        out += "<tr>";
        for (i, cell) in row.iter().enumerate() {
            out += &match i {
                0 => format!("<th scope=\"row\">{cell}</th>"),
                _ => format!("<td{}>{cell}</td>", class(i)),
            };
        }
        out += "</tr>\n";
    }
    out + "</tbody></table></div>\n"
}

/// A histogram of a split: cells below its range, in parts of equal width, and above.
pub(super) struct Histogram<'a> {
    pub(super) title: &'a str,
    pub(super) range: [f64; 2],
    pub(super) counts: &'a [u64],
    /// Another split in the same parts, with its name. It is drawn as an outline.
    pub(super) beside: Option<(&'a str, &'a [u64])>,
    /// Places on the axis, with a word each.
    pub(super) marks: &'a [(f64, String)],
}

impl Histogram<'_> {
    /// The drawing. Bars are as high as their fraction of all cells.
    pub(super) fn figure(&self) -> String {
        let Some(bars) = HistogramBars::of(self) else {
            return empty(self.title);
        };
        let (low, high) = (number(self.range[0]), number(self.range[1]));
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
        let mut out = figure(self.title, &words, HEIGHT, &drawn);
        let notes = bars.notes();
        if !notes.is_empty() {
            out.truncate(out.len() - "</figure>\n".len());
            let notes = escape(&notes.join(" "));
            out += &format!("<p class=\"quiet\">{notes}</p></figure>\n");
        }
        out
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
                number(value)
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
            "<path class=\"mark\" d=\"M{x:.1} {:.1}V{bottom}\"/><text class=\"strong\" x=\"{beside:.1}\" y=\"{:.1}\" \
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

/// Horizontal bars, each with its name, count and a note.
pub(super) fn bars(title: &str, rows: &[(String, u64, String)]) -> String {
    if rows.is_empty() {
        return empty(title);
    }
    let most = rows.iter().map(|row| row.1).max().unwrap_or(0).max(1);
    let room = WIDTH - LABEL - 130.0;
    let (mut drawn, mut words) = (String::new(), format!("{title}."));
    for (i, (name, count, note)) in rows.iter().enumerate() {
        let y = LINE * exact(i as u64);
        let long = (exact(*count) / exact(most) * room).max(if *count > 0 { 1.0 } else { 0.0 });
        let says = format!("{count}{}{note}", if note.is_empty() { "" } else { " " });
        words += &format!(" {name}: {says}.");
        drawn += &format!(
            "<g><title>{}</title><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             <rect class=\"bar\" x=\"{LABEL}\" y=\"{:.1}\" width=\"{long:.1}\" height=\"16\"/>\
             <text class=\"strong\" x=\"{:.1}\" y=\"{:.1}\">{}</text></g>\n",
            escape(name),
            LABEL - 8.0,
            y + 16.0,
            escape(&short(name)),
            y + 3.0,
            LABEL + long + 6.0,
            y + 16.0,
            escape(&says)
        );
    }
    figure(title, &words, LINE * exact(rows.len() as u64) + 2.0, &drawn)
}

fn figure(title: &str, words: &str, height: f64, drawn: &str) -> String {
    let (title, words) = (escape(title), escape(words));
    format!(
        "<figure>\n<figcaption>{title}</figcaption>\n\
         <svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{words}\">\n{drawn}</svg>\n</figure>\n"
    )
}

fn empty(title: &str) -> String {
    format!(
        "<figure>\n<figcaption>{}</figcaption>\n<p class=\"quiet\">There is nothing to draw.</p>\n</figure>\n",
        escape(title)
    )
}

/// The beginning of a text.
pub(super) fn short(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Text escaped for HTML, including attributes. Characters that would hide or reverse other text
/// become `U+FFFD`.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            '\n' | '\t' => out.push(' '),
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                out.push('\u{fffd}')
            }
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// A number with four significant digits or so; a whole number as it is.
pub(super) fn number(value: f64) -> String {
    let magnitude = value.abs();
    let text = match magnitude {
        m if m.fract() == 0.0 && m < 1e9 => format!("{value:.0}"),
        m if !(1e-3..1e7).contains(&m) => format!("{value:.3e}"),
        m if m >= 1000.0 => format!("{value:.1}"),
        m if m >= 10.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    };
    if text == "-0" { "0".to_owned() } else { text }
}

/// A percentage of an axis, without digits that say nothing.
fn plain(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A share as a percentage.
pub(super) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    format!("{:.2} %", exact(part) / exact(whole) * 100.0)
}

#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
fn exact(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_texts_are_harmless() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "0"),
            (1234.0, "1234"),
            (0.015, "0.0150"),
            (1e-5, "1.000e-5"),
            (54_321.98, "54322.0"),
            (12.345, "12.35"),
            (2.5e12, "2.500e12"),
        ] {
            assert_eq!(number(value), text);
        }
        assert_eq!(
            escape("<a b='\"&'>\u{0}\u{202e}x\n"),
            "&lt;a b=&#39;&quot;&amp;&#39;&gt;\u{fffd}\u{fffd}x "
        );
        assert_eq!(
            short("äöüäöüäöüäöüäöüäöüäöüäöüäöü").chars().count(),
            SHOWN + 1
        );
    }

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
            let lines: Vec<&str> = drawn.lines().filter(|l| l.contains("\"mark\"")).collect();
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
        assert!(bars("b", &[("x".into(), 0, String::new())]).contains("width=\"0.0\""));
        assert!(bars("b", &[]).contains("nothing to draw"));
    }
}
