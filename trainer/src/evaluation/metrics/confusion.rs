//! Rows by class and predicted class, and how sure the predictions were.

use std::collections::HashMap;

use feedline_schemas::diagnostics::{
    CONFIDENCE_BINS, ClassDiagnostics, ClassScores, ConfidenceBin, Confusion, LISTED_CLASSES,
    LISTED_CONFUSIONS, MATRIX_CLASSES,
};

use crate::float_casts::{exact, exact_len};

/// Classes up to which all pairs have a counter: 2 MiB of them.
const DENSE_CLASSES: usize = 512;

/// Pairs counted of more classes: about 5 MiB.
const PAIRS_MAX: usize = 100_000;

/// Counts of rows by class and predicted class. Their memory does not grow with the rows.
#[derive(Clone, Debug)]
pub(super) struct Confusions {
    classes: usize,
    pairs: Pairs,
    /// Wrong predictions of pairs that are not counted.
    uncounted: u64,
    bins: [Bin; CONFIDENCE_BINS],
    /// Of two classes, by the probability of the second.
    second_class: [Bin; CONFIDENCE_BINS],
}

#[derive(Clone, Debug)]
enum Pairs {
    /// `[class, predicted]`.
    Dense(Vec<u64>),
    /// The first [`PAIRS_MAX`] pairs of a class and another.
    Sparse(HashMap<(usize, usize), u64>),
}

/// Rows of one bin of confidence.
#[derive(Clone, Copy, Debug, Default)]
struct Bin {
    rows: u64,
    probabilities: f64,
    hits: u64,
}

impl Confusions {
    /// No rows yet.
    pub(super) fn new(classes: usize) -> Self {
        let pairs = if classes <= DENSE_CLASSES {
            Pairs::Dense(vec![0; classes * classes])
        } else {
            Pairs::Sparse(HashMap::new())
        };
        Self {
            classes,
            pairs,
            uncounted: 0,
            bins: [Bin::default(); CONFIDENCE_BINS],
            second_class: [Bin::default(); CONFIDENCE_BINS],
        }
    }

    /// Adds a row of `class` for which `predicted` was predicted with `probability`.
    pub(super) fn add(&mut self, class: usize, predicted: usize, probability: f64) {
        match &mut self.pairs {
            Pairs::Dense(counts) => counts[class * self.classes + predicted] += 1,
            Pairs::Sparse(_) if class == predicted => {}
            Pairs::Sparse(counts) => {
                let has_room = counts.len() < PAIRS_MAX;
                match counts.get_mut(&(class, predicted)) {
                    Some(count) => *count += 1,
                    None if has_room => {
                        counts.insert((class, predicted), 1);
                    }
                    None => self.uncounted += 1,
                }
            }
        }
        self.bins[bin_of(probability)].add(probability, class == predicted);
    }

    /// Adds the probability of the second of two classes for a row that is of it or not.
    pub(super) fn add_second_class(&mut self, probability: f64, is_second: bool) {
        self.second_class[bin_of(probability)].add(probability, is_second);
    }

    /// Diagnostics of these rows, with the counts of each class.
    pub(super) fn diagnostics(
        &self,
        actual: &[u64],
        predicted: &[u64],
        hits: &[u64],
    ) -> ClassDiagnostics {
        let scores = |class: usize| {
            let ratio = |of: u64| (of > 0).then(|| exact(hits[class]) / exact(of));
            ClassScores {
                class: class as u64,
                rows: actual[class],
                predicted: predicted[class],
                hits: hits[class],
                precision: ratio(predicted[class]),
                recall: ratio(actual[class]),
                f1: f1(hits[class], predicted[class], actual[class]),
            }
        };
        let mut classes: Vec<ClassScores> = (0..self.classes).map(scores).collect();
        if classes.len() > LISTED_CLASSES {
            classes.retain(|class| class.f1.is_some());
            let low = |class: &ClassScores| class.f1.unwrap_or(1.0);
            classes.sort_by(|a, b| low(a).total_cmp(&low(b)).then(b.rows.cmp(&a.rows)));
            classes.truncate(LISTED_CLASSES);
        }
        ClassDiagnostics {
            rows: actual.iter().sum(),
            classes,
            matrix: self.matrix(),
            confusions: self.most_frequent(),
            uncounted: self.uncounted,
            confidence: self.bins.iter().filter_map(Bin::shown).collect(),
            calibration: self.second_class.iter().filter_map(Bin::shown).collect(),
            roc: Vec::new(),
        }
    }

    fn matrix(&self) -> Vec<Vec<u64>> {
        match &self.pairs {
            Pairs::Dense(counts) if self.classes <= MATRIX_CLASSES => {
                let rows = counts.chunks(self.classes.max(1));
                rows.map(<[u64]>::to_vec).collect()
            }
            Pairs::Dense(_) | Pairs::Sparse(_) => Vec::new(),
        }
    }

    /// The most frequent confusions; of equal ones the first by class and predicted class.
    fn most_frequent(&self) -> Vec<Confusion> {
        let confusion = |(class, predicted): (usize, usize), rows: u64| Confusion {
            class: class as u64,
            predicted: predicted as u64,
            rows,
        };
        let mut found: Vec<Confusion> = match &self.pairs {
            Pairs::Dense(counts) => {
                let pairs = counts.iter().enumerate().filter(|(_, rows)| **rows > 0);
                pairs
                    .map(|(i, rows)| confusion((i / self.classes, i % self.classes), *rows))
                    .collect()
            }
            Pairs::Sparse(counts) => counts
                .iter()
                .map(|(pair, rows)| confusion(*pair, *rows))
                .collect(),
        };
        found.retain(|pair| pair.class != pair.predicted);
        found.sort_by_key(|pair| (std::cmp::Reverse(pair.rows), pair.class, pair.predicted));
        found.truncate(LISTED_CONFUSIONS);
        found
    }
}

impl Bin {
    fn add(&mut self, probability: f64, is_hit: bool) {
        self.rows += 1;
        self.probabilities += probability;
        self.hits += u64::from(is_hit);
    }

    fn shown(&self) -> Option<ConfidenceBin> {
        (self.rows > 0).then(|| ConfidenceBin {
            rows: self.rows,
            mean: self.probabilities / exact(self.rows),
            hits: self.hits,
        })
    }
}

/// The bin of a probability; the last for 1.
fn bin_of(probability: f64) -> usize {
    let upper = |i: &usize| probability < exact_len(i + 1) / exact_len(CONFIDENCE_BINS);
    (0..CONFIDENCE_BINS - 1)
        .find(upper)
        .unwrap_or(CONFIDENCE_BINS - 1)
}

/// Harmonic mean of precision and recall: `2 hits / (predicted + actual)`; `None` for a class that no row has and none
/// was held for.
pub(super) fn f1(hits: u64, predicted: u64, actual: u64) -> Option<f64> {
    (predicted + actual > 0).then(|| exact(2 * hits) / exact(predicted + actual))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_classes_the_worst_are_listed_and_pairs_have_a_bound() {
        let classes = DENSE_CLASSES + 1;
        let mut confusions = Confusions::new(classes);
        let (mut actual, mut predicted, mut hits) =
            (vec![0; classes], vec![0; classes], vec![0; classes]);
        for row in 0..200_000 {
            // Pairs repeat after 513 * 400 rows: all are different.
            let (class, guess) = (row % classes, (row * 7 + row / classes) % classes);
            confusions.add(class, guess, 0.5);
            (actual[class], predicted[guess]) = (actual[class] + 1, predicted[guess] + 1);
            hits[class] += u64::from(class == guess);
        }
        let Pairs::Sparse(counted) = &confusions.pairs else {
            panic!("too many classes for a matrix")
        };
        assert_eq!(counted.len(), PAIRS_MAX);
        let wrong = 200_000 - hits.iter().sum::<u64>();
        assert_eq!(counted.values().sum::<u64>() + confusions.uncounted, wrong);
        let found = confusions.diagnostics(&actual, &predicted, &hits);
        assert!(found.uncounted > 0 && found.matrix.is_empty());
        assert_eq!(found.confusions.len(), LISTED_CONFUSIONS);
        assert_eq!(found.classes.len(), LISTED_CLASSES);
        assert!(found.classes.is_sorted_by(|a, b| a.f1 <= b.f1));
        let all: Vec<_> = (0..classes)
            .filter_map(|c| f1(hits[c], predicted[c], actual[c]))
            .collect();
        let kept = found.classes.last().and_then(|class| class.f1).unwrap();
        assert!(all.iter().filter(|f1| **f1 < kept).count() < LISTED_CLASSES);
    }

    #[test]
    fn probabilities_of_0_and_1_have_a_bin() {
        assert_eq!([0.0, 0.0999, 0.1, 0.95, 1.0].map(bin_of), [0, 0, 1, 9, 9]);
        assert_eq!(bin_of(f64::NAN), CONFIDENCE_BINS - 1);
    }
}
