//! Counts of a split's classes, and the metrics that follow from them.

use feedline_schemas::diagnostics::{ClassDiagnostics, ROC_POINTS};

use super::{
    confusion::{Confusions, f1},
    values::{Metrics, named},
};
use crate::float_casts::{exact, exact_len};

/// Outputs that the target's class must be among for a hit in `top5_accuracy`.
const TOP: usize = 5;

/// Sums over rows of classes.
#[derive(Clone, Debug)]
pub(super) struct Classification {
    /// Training rows of each class.
    counts: Vec<u64>,
    /// Rows of each class.
    actual: Vec<u64>,
    /// Rows that were held for each class.
    predicted: Vec<u64>,
    /// Rows of each class that were held for it.
    hits: Vec<u64>,
    top_hits: u64,
    /// Minus the logarithm of the probability that each row's class was given.
    surprise: f64,
    /// With two classes, how much each row was held for class 1, and whether it is.
    scores: Vec<(f32, bool)>,
    confusions: Confusions,
}

impl Classification {
    /// No rows yet.
    pub(super) fn new(counts: &[u64]) -> Self {
        let zeros = vec![0; counts.len()];
        Self {
            counts: counts.to_vec(),
            actual: zeros.clone(),
            predicted: zeros.clone(),
            hits: zeros,
            top_hits: 0,
            surprise: 0.0,
            scores: Vec::new(),
            confusions: Confusions::new(counts.len()),
        }
    }

    /// Adds rows: outputs `[rows, classes]`, or `[rows, 1]` for two classes, the second's logit above the first's.
    pub(super) fn add(&mut self, outputs: &[f32], y: &[i32]) {
        let classes = self.counts.len();
        let width = outputs.len() / y.len().max(1);
        for (row, &y) in outputs.chunks_exact(width.max(1)).zip(y) {
            let y = usize::try_from(y).expect("class ids were checked");
            if width == classes {
                self.add_row(row, y);
            } else {
                self.add_row(&[0.0, row[0]], y);
            }
        }
    }

    fn add_row(&mut self, row: &[f32], y: usize) {
        self.actual[y] += 1;
        let log_sum = log_sum_exp(row);
        if let Some(class) = largest(row) {
            self.predicted[class] += 1;
            self.hits[y] += u64::from(class == y);
            let probability = (f64::from(row[class]) - log_sum).exp();
            self.confusions.add(y, class, probability);
            if let [_, second] = row {
                let probability = (f64::from(*second) - log_sum).exp();
                self.confusions.add_second_class(probability, y == 1);
            }
        }
        // Of equal outputs the first comes first; an output that is no number comes last.
        let before = |(i, value): (usize, &f32)| *value > row[y] || (*value >= row[y] && i < y);
        let rank = row.iter().enumerate().filter(|at| before(*at)).count();
        self.top_hits += u64::from(rank < TOP && !row[y].is_nan());
        self.surprise += log_sum - f64::from(row[y]);
        if let [first, second] = row {
            self.scores.push((second - first, y == 1));
        }
    }

    fn rows(&self) -> u64 {
        self.actual.iter().sum()
    }

    /// Metrics of the model.
    pub(super) fn metrics(&self) -> Metrics {
        let mut metrics = self.rates(&self.hits, &self.predicted, self.top_hits, self.surprise);
        if let Some(auc) = auc(&mut self.scores.clone()) {
            metrics.insert("auc".to_owned(), auc);
        }
        metrics
    }

    /// Counts behind these metrics.
    pub(super) fn diagnostics(&self) -> ClassDiagnostics {
        ClassDiagnostics {
            roc: roc(&mut self.scores.clone()),
            ..self
                .confusions
                .diagnostics(&self.actual, &self.predicted, &self.hits)
        }
    }

    /// The same metrics of the most frequent training class; its probabilities are the training frequencies.
    pub(super) fn baseline(&self) -> Metrics {
        let mut by_count: Vec<usize> = (0..self.counts.len()).collect();
        by_count.sort_by_key(|&class| (std::cmp::Reverse(self.counts[class]), class));
        let only = |class: usize, value: u64| {
            let of = |i| if i == class { value } else { 0 };
            (0..self.counts.len()).map(of).collect::<Vec<_>>()
        };
        let first = by_count[0];
        let top_hits = by_count.iter().take(TOP).map(|&c| self.actual[c]).sum();
        let total = exact(self.counts.iter().sum());
        let of = |(&actual, &count): (&u64, &u64)| {
            if actual > 0 {
                exact(actual) * (total / exact(count)).ln()
            } else {
                0.0
            }
        };
        let surprise = self.actual.iter().zip(&self.counts).map(of).sum();
        let (hits, predicted) = (only(first, self.actual[first]), only(first, self.rows()));
        let mut metrics = self.rates(&hits, &predicted, top_hits, surprise);
        if self.metrics().contains_key("auc") {
            metrics.insert("auc".to_owned(), 0.5);
        }
        // A class without training rows has the frequency 0, whose logarithm is no number.
        if !surprise.is_finite() {
            metrics.remove("cross_entropy");
            metrics.remove("perplexity");
        }
        metrics
    }

    fn rates(&self, hits: &[u64], predicted: &[u64], top_hits: u64, surprise: f64) -> Metrics {
        let n = exact(self.rows());
        let cross_entropy = surprise / n;
        let mut metrics = named([
            ("accuracy", exact(hits.iter().sum()) / n),
            ("cross_entropy", cross_entropy),
            ("perplexity", cross_entropy.exp()),
        ]);
        let f1 = |class: usize| f1(hits[class], predicted[class], self.actual[class]);
        let seen: Vec<f64> = (0..hits.len()).filter_map(f1).collect();
        let macro_f1 = seen.iter().sum::<f64>() / exact(seen.len() as u64);
        metrics.insert("f1_macro".to_owned(), macro_f1);
        if hits.len() == 2 {
            metrics.insert("f1".to_owned(), f1(1).unwrap_or(0.0));
        }
        if hits.len() > TOP {
            metrics.insert("top5_accuracy".to_owned(), exact(top_hits) / n);
        }
        metrics
    }
}

/// Area under the receiver operating characteristic: the share of pairs of a row of class 1 and one of class 0 where the
/// first has the higher score, equal scores counting half (Mann and Whitney 1947). `None` where a class has no rows or
/// a score is no number.
fn auc(scores: &mut [(f32, bool)]) -> Option<f64> {
    if scores.iter().any(|(score, _)| score.is_nan()) {
        return None;
    }
    scores.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let (mut below, mut pairs, mut positives) = (0.0, 0.0, 0.0);
    // -0 and 0 are side by side and are one score.
    for equal in scores.chunk_by(|a, b| a.0 >= b.0) {
        let of_one = exact(equal.iter().filter(|(_, one)| *one).count() as u64);
        let of_zero = exact(equal.len() as u64) - of_one;
        pairs += of_one * (below + of_zero / 2.0);
        below += of_zero;
        positives += of_one;
    }
    (below > 0.0 && positives > 0.0).then(|| pairs / (below * positives))
}

/// Points of the receiver operating characteristic of class 1, as false and true positive rate, from (0, 0) to (1, 1): that
/// of each score where there are at most [`ROC_POINTS`], else about equally many scores apart. None where `auc` has no
/// value.
fn roc(scores: &mut [(f32, bool)]) -> Vec<[f64; 2]> {
    let ones = scores.iter().filter(|(_, one)| *one).count();
    let zeros = scores.len() - ones;
    if ones == 0 || zeros == 0 || scores.iter().any(|(score, _)| score.is_nan()) {
        return Vec::new();
    }
    scores.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
    let every = scores.len().div_ceil(ROC_POINTS - 2);
    let (mut of_ones, mut rows, mut shown) = (0, 0, 0);
    let mut points = vec![[0.0, 0.0]];
    for equal in scores.chunk_by(|a, b| a.0 <= b.0) {
        rows += equal.len();
        of_ones += equal.iter().filter(|(_, one)| *one).count();
        if rows - shown >= every || rows == scores.len() {
            let of_zeros = rows - of_ones;
            points.push([
                exact_len(of_zeros) / exact_len(zeros),
                exact_len(of_ones) / exact_len(ones),
            ]);
            shown = rows;
        }
    }
    points
}

/// Index of the largest element, the first of several; `None` where none is a number.
pub(crate) fn largest(row: &[f32]) -> Option<usize> {
    let mut best: Option<usize> = None;
    for (i, value) in row.iter().enumerate() {
        if !value.is_nan() && best.is_none_or(|best| *value > row[best]) {
            best = Some(i);
        }
    }
    best
}

fn log_sum_exp(row: &[f32]) -> f64 {
    let most = row.iter().copied().map(f64::from).fold(f64::MIN, f64::max);
    let sum: f64 = row.iter().map(|&v| (f64::from(v) - most).exp()).sum();
    most + sum.ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::uniform;

    fn check(found: &Metrics, expected: &[(&str, f64)]) {
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (name, value) in expected {
            assert!(
                (found[*name] - value).abs() < 1e-6,
                "{name}: {found:?}, expected {value}"
            );
        }
    }

    #[test]
    fn two_classes_are_counted_and_compared_with_the_most_frequent() {
        let mut sums = Classification::new(&[1, 3]);
        // Rows: hit; tie that goes to class 0 and hits; miss. As pairs of outputs, and as one output each.
        let mut one = sums.clone();
        sums.add(&[0.0, 1.0, 5.0, 5.0, 2.0, 1.0], &[1, 0, 1]);
        one.add(&[1.0, 0.0, -1.0], &[1, 0, 1]);
        let softplus = |x: f64| (1.0 + x.exp()).ln();
        let cross_entropy = (softplus(-1.0) + softplus(0.0) + softplus(1.0)) / 3.0;
        let expected = [
            ("accuracy", 2.0 / 3.0),
            ("cross_entropy", cross_entropy),
            ("perplexity", cross_entropy.exp()),
            // Class 0: precision 1/2, recall 1. Class 1: precision 1, recall 1/2.
            ("f1", 2.0 / 3.0),
            ("f1_macro", 2.0 / 3.0),
            ("auc", 0.5),
        ];
        check(&sums.metrics(), &expected);
        check(&one.metrics(), &expected);
        let surprise = (2.0 * (4.0_f64 / 3.0).ln() + 4.0_f64.ln()) / 3.0;
        check(
            &sums.baseline(),
            &[
                ("accuracy", 2.0 / 3.0),
                ("cross_entropy", surprise),
                ("perplexity", surprise.exp()),
                ("f1", 0.8),
                ("f1_macro", 0.4),
                ("auc", 0.5),
            ],
        );
    }

    #[test]
    fn many_classes_count_the_first_five_and_average_over_those_seen() {
        let mut sums = Classification::new(&[9, 8, 7, 6, 5, 4, 3]);
        // The target is the largest; the fifth of equals; the sixth of equals; the smallest.
        let mut falling: Vec<f32> = (0..7_u8).map(|i| -f32::from(i)).collect();
        sums.add(&falling, &[0]);
        sums.add(&[0.0; 7], &[4]);
        sums.add(&[0.0; 7], &[5]);
        falling.reverse();
        sums.add(&falling, &[0]);
        let metrics = sums.metrics();
        assert!((metrics["accuracy"] - 0.25).abs() < 1e-12);
        assert!((metrics["top5_accuracy"] - 0.5).abs() < 1e-12);
        // Class 0: 1 hit of 3 held for it and 2 rows; 4 and 5 are rows without hit; 6 was held for; 1 to 3 do not count.
        assert!((metrics["f1_macro"] - (2.0 / 5.0) / 4.0).abs() < 1e-12);
        assert!(!metrics.contains_key("f1") && !metrics.contains_key("auc"));
        assert!((sums.baseline()["top5_accuracy"] - 0.75).abs() < 1e-12);
    }

    #[test]
    fn auc_is_the_share_of_ordered_pairs() {
        // Few distinct scores, so that many are equal.
        let scores: Vec<(f32, bool)> = uniform(300, 110)
            .iter()
            .zip(uniform(300, 111))
            .map(|(score, class)| ((score * 6.0).round(), class + 0.4 * score > 0.1))
            .collect();
        let (mut wins, mut pairs) = (0.0, 0.0);
        for (one, _) in scores.iter().filter(|(_, class)| *class) {
            for (zero, _) in scores.iter().filter(|(_, class)| !*class) {
                pairs += 1.0;
                wins += match one.partial_cmp(zero).unwrap() {
                    std::cmp::Ordering::Greater => 1.0,
                    std::cmp::Ordering::Equal => 0.5,
                    std::cmp::Ordering::Less => 0.0,
                };
            }
        }
        let found = auc(&mut scores.clone()).unwrap();
        assert!((found - wins / pairs).abs() < 1e-12, "{found}");
        assert!((0.6..0.9).contains(&found), "{found}");
        assert_eq!(auc(&mut [(0.0, true), (-0.0, false)]), Some(0.5));
    }

    #[test]
    fn the_area_below_the_roc_points_is_the_auc_and_points_have_a_bound() {
        for (rows, tolerance) in [(40, 1e-12), (5000, 1e-3)] {
            let classes = uniform(rows, 115);
            let scores: Vec<(f32, bool)> = uniform(rows, 114)
                .iter()
                .zip(classes)
                .map(|(score, class)| (*score, class + 0.4 * score > 0.1))
                .collect();
            let points = roc(&mut scores.clone());
            assert!(points.len() <= ROC_POINTS, "{}", points.len());
            assert_eq!((points[0], points.last()), ([0.0; 2], Some(&[1.0; 2])));
            let area: f64 = points
                .windows(2)
                .map(|p| (p[1][0] - p[0][0]) * f64::midpoint(p[0][1], p[1][1]))
                .sum();
            let auc = auc(&mut scores.clone()).unwrap();
            assert!((area - auc).abs() < tolerance, "{area} {auc}");
        }
        assert_eq!(roc(&mut [(0.0, true), (-0.0, false)]), [[0.0; 2], [1.0; 2]]);
        assert_eq!(roc(&mut [(0.3, true), (f32::NAN, false)]), [[0.0; 2]; 0]);
        assert_eq!(roc(&mut [(0.3, true)]), [[0.0; 2]; 0]);
    }

    #[test]
    fn diagnostics_are_what_counting_the_rows_gives() {
        // Three classes; the largest of three random outputs is predicted.
        let outputs = uniform(3 * 700, 112);
        let y: Vec<i32> = uniform(700, 113)
            .iter()
            .map(|u| i32::from(*u > -0.5) + i32::from(*u > 0.6))
            .collect();
        let mut sums = Classification::new(&[1, 1, 1]);
        for (outputs, y) in outputs.chunks(3 * 64).zip(y.chunks(64)) {
            sums.add(outputs, y);
        }
        let found = sums.diagnostics();
        let mut matrix = vec![vec![0_u64; 3]; 3];
        let mut sure = [(0_u64, 0.0, 0_u64); 10];
        for (row, y) in outputs.chunks(3).zip(&y) {
            let y = usize::try_from(*y).unwrap();
            let class = (0..3).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap();
            matrix[y][class] += 1;
            let sum: f64 = row.iter().map(|v| f64::from(*v).exp()).sum();
            let probability = f64::from(row[class]).exp() / sum;
            let bin = format!("{}", (probability * 10.0).floor());
            let bin = &mut sure[bin.parse::<usize>().unwrap()];
            *bin = (
                bin.0 + 1,
                bin.1 + probability,
                bin.2 + u64::from(y == class),
            );
        }
        assert_eq!(found.matrix, matrix);
        assert_eq!(found.rows, 700);
        assert_eq!(found.matrix.iter().flatten().sum::<u64>(), 700);
        for (class, scores) in found.classes.iter().enumerate() {
            let column: u64 = matrix.iter().map(|row| row[class]).sum();
            let row: u64 = matrix[class].iter().sum();
            let hits = exact(matrix[class][class]);
            assert_eq!((scores.rows, scores.predicted), (row, column));
            let (precision, recall) = (hits / exact(column), hits / exact(row));
            assert!((scores.precision.unwrap() - precision).abs() < 1e-12);
            assert!((scores.recall.unwrap() - recall).abs() < 1e-12);
            let f1 = 2.0 * precision * recall / (precision + recall);
            assert!((scores.f1.unwrap() - f1).abs() < 1e-12);
        }
        let f1: f64 = found.classes.iter().filter_map(|class| class.f1).sum();
        assert!((sums.metrics()["f1_macro"] - f1 / 3.0).abs() < 1e-12);
        let mut wrong = Vec::new();
        for (class, row) in matrix.iter().enumerate() {
            for (predicted, rows) in row.iter().enumerate() {
                if class != predicted && *rows > 0 {
                    wrong.push((*rows, class as u64, predicted as u64));
                }
            }
        }
        wrong
            .sort_by_key(|(rows, class, predicted)| (std::cmp::Reverse(*rows), *class, *predicted));
        let confusions = found.confusions.iter();
        let confusions: Vec<_> = confusions.map(|c| (c.rows, c.class, c.predicted)).collect();
        assert_eq!(confusions, wrong);
        let sure = sure.iter().filter(|bin| bin.0 > 0);
        for ((rows, sum, hits), bin) in sure.zip(&found.confidence) {
            assert_eq!((bin.rows, bin.hits), (*rows, *hits));
            assert!((bin.mean - sum / exact(*rows)).abs() < 1e-9);
        }
        let in_bins: u64 = found.confidence.iter().map(|bin| bin.rows).sum();
        assert_eq!(in_bins, 700);
    }

    #[test]
    fn two_classes_are_calibrated_by_the_probability_of_the_second() {
        // Both classes are predicted with 0.75: class 0 is right each time, class 1 every other time.
        let sure = 3.0_f32.ln();
        let mut sums = Classification::new(&[1, 1]);
        let mut one = sums.clone();
        for (logit, y) in [(-sure, 0), (-sure, 0), (sure, 1), (sure, 0)] {
            sums.add(&[0.0, logit], &[y]);
            one.add(&[logit], &[y]);
        }
        for sums in [sums, one] {
            let found = sums.diagnostics();
            let bins: Vec<_> = found.calibration.iter().map(|b| (b.rows, b.hits)).collect();
            assert_eq!(bins, [(2, 0), (2, 1)]);
            for (bin, probability) in found.calibration.iter().zip([0.25, 0.75]) {
                assert!((bin.mean - probability).abs() < 1e-6, "{bin:?}");
            }
            // By the predicted class, the two errors cancel.
            let [bin] = &found.confidence[..] else {
                panic!("{found:?}")
            };
            assert_eq!((bin.rows, bin.hits), (4, 3));
        }
        let mut three = Classification::new(&[1, 1, 1]);
        three.add(&[0.0, 1.0, 2.0], &[2]);
        assert!(three.diagnostics().calibration.is_empty());
    }

    #[test]
    fn without_a_class_or_with_a_score_that_is_no_number_there_is_no_auc() {
        assert_eq!(auc(&mut [(0.3, true), (0.1, true)]), None);
        assert_eq!(auc(&mut [(0.3, false)]), None);
        assert_eq!(auc(&mut [(0.3, true), (f32::NAN, false)]), None);
    }

    #[test]
    fn an_output_that_is_no_number_is_never_a_hit() {
        let mut sums = Classification::new(&[1; 6]);
        sums.add(&[f32::NAN, 0.0, 1.0, 2.0, 3.0, 4.0], &[0]);
        sums.add(&[f32::NAN; 6], &[0]);
        let metrics = sums.metrics();
        assert_eq!((metrics["accuracy"], metrics["top5_accuracy"]), (0.0, 0.0));
        sums.add(&[f32::NAN, 0.0, 1.0, 2.0, 3.0, 4.0], &[5]);
        assert!((sums.metrics()["accuracy"] - 1.0 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn a_baseline_has_no_cross_entropy_where_a_class_has_no_training_rows() {
        let mut sums = Classification::new(&[3, 0]);
        sums.add(&[1.0, 0.0, 0.0, 1.0], &[0, 1]);
        let baseline = sums.baseline();
        assert!((baseline["accuracy"] - 0.5).abs() < 1e-12, "{baseline:?}");
        assert!(
            baseline.values().all(|value| value.is_finite()),
            "{baseline:?}"
        );
        assert!(!baseline.contains_key("cross_entropy"), "{baseline:?}");
    }

    #[test]
    fn cross_entropy_of_huge_outputs_is_finite() {
        let mut sums = Classification::new(&[1, 1]);
        sums.add(&[1e4, 0.0], &[1]);
        assert!((sums.metrics()["cross_entropy"] - 1e4).abs() < 1e-6);
    }
}
