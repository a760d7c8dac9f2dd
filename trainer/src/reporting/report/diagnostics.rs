//! Diagnostics of a split as tables and charts.

use feedline_report::{AxisX, Chart, ChartSeries, TableRow, escape, foldable, number};
use feedline_schemas::{
    count::counted,
    diagnostics::{
        ClassDiagnostics, ClassScores, ConfidenceBin, Diagnostics, MATRIX_CLASSES,
        NumberDiagnostics, TargetDiagnostics,
    },
};

use crate::{
    evaluation::metrics::metric,
    float_casts::{exact, exact_len, single},
};

/// Characters of a class name in the head of the confusion matrix.
const NAME: usize = 14;

/// Rows of a table that are shown at once; the others can be opened.
const AT_ONCE: usize = 20;

/// Diagnostics of a split, in a section of its own. `classes` are the names of the classes by id.
pub(super) fn section(split: &str, found: Option<&Diagnostics>, classes: &[String]) -> String {
    match found {
        None => String::new(),
        Some(Diagnostics::Classification(found)) => of_classes(split, found, classes),
        Some(Diagnostics::Regression(found)) => {
            of_numbers(&format!("Predictions, {split} split"), found)
        }
        Some(Diagnostics::Regressions(targets)) => {
            let of = |found: &TargetDiagnostics| {
                let name = short(&found.target, 40);
                of_numbers(
                    &format!("Predictions of {name}, {split} split"),
                    &found.numbers,
                )
            };
            targets.iter().map(of).collect()
        }
    }
}

fn of_classes(split: &str, found: &ClassDiagnostics, classes: &[String]) -> String {
    let mut out = format!("<h2>Classes, {split} split</h2>\n");
    out += &matrix(split, found, classes);
    out += &scores(found, classes);
    if found.matrix.is_empty() {
        out += &confusions(found, classes);
    }
    let mut charts = String::new();
    if !found.confidence.is_empty() {
        charts += &reliability(found, classes);
    }
    if !found.roc.is_empty() {
        charts += &roc(found, classes);
    }
    if !charts.is_empty() {
        out += &format!("<div class=\"charts\">\n{charts}</div>\n");
    }
    out
}

fn name_of(class: usize, classes: &[String]) -> String {
    let named = classes.get(class);
    named.map_or_else(|| class.to_string(), |name| short(name, 40))
}

/// The beginning of a name.
fn short(name: &str, most: usize) -> String {
    match name.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

fn index(class: u64) -> usize {
    usize::try_from(class).unwrap_or(usize::MAX)
}

/// Rows by class and predicted class; the darker, the larger the fraction of the class.
fn matrix(split: &str, found: &ClassDiagnostics, classes: &[String]) -> String {
    if found.matrix.is_empty() {
        return String::new();
    }
    let mut out = format!(
        "<div class=\"scroll\"><table class=\"matrix\"><caption>Confusion matrix: {} of the {split} split by class and \
         predicted class, with the fraction of the class.</caption>\n<thead><tr><th scope=\"col\">class \\ predicted</th>",
        counted(found.rows, "row")
    );
    for (class, _) in found.matrix.iter().enumerate() {
        let name = name_of(class, classes);
        out += &format!(
            "<th scope=\"col\" class=\"number\">{}</th>",
            escape(&short(&name, NAME))
        );
    }
    out += "<th scope=\"col\" class=\"number\">all</th></tr></thead>\n<tbody>\n";
    for (class, row) in found.matrix.iter().enumerate() {
        let all: u64 = row.iter().sum();
        out += &format!(
            "<tr><th scope=\"row\">{}</th>",
            escape(&name_of(class, classes))
        );
        for (predicted, rows) in row.iter().enumerate() {
            let share = if all > 0 {
                exact(*rows) / exact(all)
            } else {
                0.0
            };
            let kind = if class == predicted { "hit" } else { "miss" };
            let fraction = if *rows > 0 {
                format!(" <small>{:.1} %</small>", share * 100.0)
            } else {
                String::new()
            };
            out += &format!(
                "<td class=\"number {kind}\" style=\"--share:{:.0}%\">{rows}{fraction}</td>",
                (share * 70.0).ceil()
            );
        }
        out += &format!("<td class=\"number\">{all}</td></tr>\n");
    }
    out + "</tbody></table></div>\n"
}

fn scores(found: &ClassDiagnostics, classes: &[String]) -> String {
    let cell = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |v| format!("{v:.4}"));
    let row = |scores: &ClassScores| {
        vec![
            name_of(index(scores.class), classes),
            scores.rows.to_string(),
            scores.predicted.to_string(),
            cell(scores.precision),
            cell(scores.recall),
            cell(scores.f1),
        ]
    };
    let rows: Vec<Vec<String>> = found.classes.iter().map(row).collect();
    let caption = if classes.len() > rows.len() {
        format!(
            "The {} of {} classes with the lowest F1.",
            rows.len(),
            classes.len()
        )
    } else {
        "Each class. Precision: fraction of the predictions of a class that are right. Recall: fraction of its rows that are \
         found. F1: their harmonic mean."
            .to_owned()
    };
    let head = ["class", "rows", "predicted", "precision", "recall", "F1"];
    foldable(&caption, &head, 1.., &TableRow::of_texts(&rows), AT_ONCE)
}

fn confusions(found: &ClassDiagnostics, classes: &[String]) -> String {
    if found.confusions.is_empty() {
        return "<p>No class was taken for another.</p>\n".to_owned();
    }
    let pairs = found.confusions.iter();
    let rows: Vec<Vec<String>> = pairs
        .map(|pair| {
            vec![
                name_of(index(pair.class), classes),
                name_of(index(pair.predicted), classes),
                pair.rows.to_string(),
            ]
        })
        .collect();
    let mut caption = format!(
        "The most frequent confusions. The matrix is complete for up to {MATRIX_CLASSES} classes."
    );
    if found.uncounted > 0 {
        caption += &format!(
            " {} wrong predictions of pairs that appeared late are not counted here.",
            found.uncounted
        );
    }
    let head = ["class", "predicted", "rows"];
    foldable(&caption, &head, 1.., &TableRow::of_texts(&rows), AT_ONCE)
}

/// Fraction of right predictions by their confidence; of two classes, the fraction of the second by its probability. Where one of
/// two classes is predicted too often, it is less often right than its probability and the other one more often: by confidence,
/// the two cancel.
fn reliability(found: &ClassDiagnostics, classes: &[String]) -> String {
    if found.calibration.is_empty() {
        let labels = [
            "Calibration",
            "probability of the predicted class",
            "fraction that is right",
        ];
        let below = "Below the line, the model is surer than it is right.";
        return calibration(&found.confidence, labels, below);
    }
    let name = name_of(1, classes);
    let labels = [
        &format!("Calibration of class {name}"),
        &format!("probability of {name}"),
        &format!("fraction of the rows that are {name}"),
    ];
    let below = "Below the line, the class is rarer than its probability, above it more frequent.";
    calibration(&found.calibration, labels.map(String::as_str), below)
}

/// Chart of bins with its title and the labels of x and y, and a sentence about its line.
fn calibration(bins: &[ConfidenceBin], [title, x, y]: [&str; 3], below: &str) -> String {
    let points = bins
        .iter()
        .map(|bin| (bin.mean, exact(bin.hits) / exact(bin.rows)))
        .collect();
    let gap = bins
        .iter()
        .map(|bin| (bin.mean * exact(bin.rows) - exact(bin.hits)).abs());
    let rows: u64 = bins.iter().map(|bin| bin.rows).sum();
    let gap = gap.sum::<f64>() / exact(rows.max(1));
    let chart = Chart {
        title,
        x,
        y,
        axis: AxisX::Linear,
        lines: vec![
            ChartSeries::new("predictions, in bins", points),
            ChartSeries::reference("calibrated", vec![(0.0, 0.0), (1.0, 1.0)]),
        ],
        mark: None,
    };
    note(
        &chart.figure(),
        &format!(
            "{below} Mean distance (expected calibration error): {}.",
            metric(gap)
        ),
    )
}

fn roc(found: &ClassDiagnostics, classes: &[String]) -> String {
    let title = format!("ROC of class {}", name_of(1, classes));
    let points = found.roc.iter().map(|[x, y]| (*x, *y)).collect();
    let chart = Chart {
        title: &title,
        x: "false positive rate",
        y: "true positive rate",
        axis: AxisX::Linear,
        lines: vec![
            ChartSeries::new("model", points),
            ChartSeries::reference("by chance", vec![(0.0, 0.0), (1.0, 1.0)]),
        ],
        mark: None,
    };
    chart.figure()
}

/// A figure with a sentence at its end.
fn note(figure: &str, text: &str) -> String {
    let inside = figure.strip_suffix("</figure>\n").unwrap_or(figure);
    format!(
        "{inside}<p class=\"quiet\">{}</p>\n</figure>\n",
        escape(text)
    )
}

fn of_numbers(heading: &str, found: &NumberDiagnostics) -> String {
    let mut out = format!("<h2>{}</h2>\n", escape(heading));
    if found.sample.is_empty() {
        return out + "<p class=\"quiet\">There is nothing to draw.</p>\n";
    }
    let pairs = || found.sample.iter().map(|pair| pair.map(f64::from));
    let ends = pairs()
        .flatten()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
            (low.min(value), high.max(value))
        });
    let mut sampled: Vec<_> = pairs()
        .map(|[target, prediction]| (target, prediction))
        .collect();
    sampled.sort_by(|a, b| a.0.total_cmp(&b.0));
    let against = Chart {
        title: "Predicted against actual",
        x: "actual, in the target's units",
        y: "predicted",
        axis: AxisX::Linear,
        lines: vec![
            ChartSeries::dots("rows", sampled),
            ChartSeries::reference("equal", vec![(ends.0, ends.0), (ends.1, ends.1)]),
        ],
        mark: None,
    };
    let mut errors: Vec<_> = pairs()
        .map(|[target, prediction]| (prediction, prediction - target))
        .collect();
    errors.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (low, high) = (errors[0].0, errors[errors.len() - 1].0);
    let residuals = Chart {
        title: "Errors by prediction",
        x: "predicted, in the target's units",
        y: "predicted less actual",
        axis: AxisX::Linear,
        lines: vec![
            ChartSeries::dots("rows", errors.clone()),
            ChartSeries::reference("no error", vec![(low, 0.0), (high, 0.0)]),
        ],
        mark: None,
    };
    let rows = if found.stride > 1 {
        format!(
            "{} of {} rows are drawn, each {} apart.",
            found.sample.len(),
            found.rows,
            found.stride
        )
    } else {
        format!("All {} rows are drawn.", found.rows)
    };
    out += &format!(
        "<div class=\"charts\">\n{}{}</div>\n<p>{rows} {}</p>\n",
        note(&against.figure(), "On the line, the prediction is right."),
        note(
            &residuals.figure(),
            "A slope or a funnel is something that the model has not learnt."
        ),
        quantiles(found, errors.into_iter().map(|(_, error)| error).collect())
    );
    out
}

/// The mean error of all rows and the spread of those sampled.
fn quantiles(found: &NumberDiagnostics, mut errors: Vec<f64>) -> String {
    errors.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let place = exact_len(errors.len() - 1) * share;
        // The nearest rank: the list has at most some hundred entries.
        let rank = (0..errors.len()).min_by(|a, b| {
            let apart = |i: &usize| (exact_len(*i) - place).abs();
            apart(a).total_cmp(&apart(b))
        });
        rank.map_or(0.0, |rank| errors[rank])
    };
    format!(
        "The mean error of all rows is {}; of the rows drawn, half of the errors are between {} and {}, nine in ten between {} \
         and {}.",
        escape(&number(f64::from(single(found.bias)))),
        number(at(0.25)),
        number(at(0.75)),
        number(at(0.05)),
        number(at(0.95))
    )
}

#[cfg(test)]
mod tests {
    use feedline_schemas::diagnostics::Confusion;

    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|i| format!("<b>{i}</b>")).collect()
    }

    #[test]
    fn a_matrix_shows_all_rows_and_names_are_escaped() {
        let found = ClassDiagnostics {
            rows: 10,
            classes: vec![ClassScores {
                class: 1,
                rows: 4,
                predicted: 3,
                hits: 2,
                precision: Some(2.0 / 3.0),
                recall: Some(0.5),
                f1: Some(4.0 / 7.0),
            }],
            matrix: vec![vec![5, 1], vec![2, 2]],
            confidence: vec![ConfidenceBin {
                rows: 10,
                mean: 0.9,
                hits: 7,
            }],
            roc: vec![[0.0, 0.0], [0.25, 0.75], [1.0, 1.0]],
            ..ClassDiagnostics::default()
        };
        let page = of_classes("test", &found, &names(2));
        for part in [
            "Confusion matrix: 10 rows of the test split",
            ">5 <small>83.3 %</small></td>",
            ">2 <small>50.0 %</small></td><td class=\"number\">4</td>",
            "<th scope=\"row\">&lt;b&gt;1&lt;/b&gt;</th><td class=\"number\">4</td><td class=\"number\">3</td><td \
             class=\"number\">0.6667</td><td class=\"number\">0.5000</td><td class=\"number\">0.5714</td>",
            "expected calibration error): 0.2000",
            "ROC of class &lt;b&gt;1&lt;/b&gt;",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(!page.contains("<b>") && !page.contains("NaN"));
        assert!(!page.contains("most frequent confusions"));
        // Of two classes, the probability of the second is compared.
        let bin = |mean, hits| ConfidenceBin {
            rows: 5,
            mean,
            hits,
        };
        let found = ClassDiagnostics {
            calibration: vec![bin(0.2, 2), bin(0.8, 3)],
            ..found
        };
        let page = of_classes("test", &found, &names(2));
        for part in [
            "Calibration of class &lt;b&gt;1&lt;/b&gt;",
            "probability of &lt;b&gt;1&lt;/b&gt;",
            "the class is rarer than its probability",
            "expected calibration error): 0.2000",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(!page.contains("<b>") && !page.contains("the model is surer"));
    }

    #[test]
    fn of_many_classes_the_worst_confusions_are_listed() {
        let pair = |rows| Confusion {
            class: 3,
            predicted: 7,
            rows,
        };
        let found = ClassDiagnostics {
            rows: 500,
            classes: vec![ClassScores::default(); 25],
            confusions: vec![pair(9), pair(4)],
            uncounted: 5,
            ..ClassDiagnostics::default()
        };
        let page = of_classes("validation", &found, &names(400));
        for part in [
            "The 25 of 400 classes with the lowest F1",
            "<summary>5 more</summary>",
            "<th scope=\"row\">&lt;b&gt;3&lt;/b&gt;</th><td class=\"number\">&lt;b&gt;7&lt;/b&gt;</td><td \
             class=\"number\">9</td>",
            "5 wrong predictions of pairs that appeared late",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(!page.contains("Confusion matrix"));
    }

    #[test]
    fn predicted_numbers_are_drawn_beside_the_actual_ones() {
        let sample = (0..100_u8).map(|i| [f32::from(i), f32::from(i) + f32::from(i % 2)]);
        let found = NumberDiagnostics {
            rows: 400,
            bias: 0.5,
            sample: sample.collect(),
            stride: 4,
        };
        let page = of_numbers("Predictions, test split", &found);
        assert!(page.contains("100 of 400 rows are drawn, each 4 apart."));
        assert!(page.contains("The mean error of all rows is 0.5; of the rows drawn, half of the errors are between 0 and 1"));
        assert_eq!(page.matches("<circle").count(), 2 * (100 + 1), "{page}");
        assert!(of_numbers("test", &NumberDiagnostics::default()).contains("nothing to draw"));
    }
}
