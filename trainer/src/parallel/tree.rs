//! Sums in a balanced binary tree.
//!
//! Addition of floating-point numbers is not associative, so the bits of a sum depend on its order. Here neighbours are
//! added first, then neighbouring pairs, and so on: `((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7))`. When the numbers are
//! shared out in equal, contiguous runs of a power of two, each run's sum is a subtree, and the tree over those sums
//! gives the same bits as the tree over the numbers.

/// Adds up values that come in order. Holds one partial sum for each level of the tree.
#[derive(Clone, Debug)]
pub(crate) struct Tree<T> {
    /// Number of values in each sum, a falling sequence of powers of two, and the sum.
    sums: Vec<(usize, Option<T>)>,
}

impl<T> Default for Tree<T> {
    fn default() -> Self {
        Self { sums: Vec::new() }
    }
}

impl<T> Tree<T> {
    /// Takes the next value; `None` takes its place in the tree and adds nothing. `add` adds its second argument to its
    /// first.
    pub(crate) fn push(&mut self, value: Option<T>, add: impl Fn(&mut T, T)) {
        let (mut count, mut sum) = (1, value);
        while let Some((_, before)) = self.sums.pop_if(|(held, _)| *held == count) {
            sum = both(before, sum, &add);
            count *= 2;
        }
        self.sums.push((count, sum));
    }

    /// The sum of all; values outside of the largest full tree are added last. `None` where nothing
    /// was pushed.
    pub(crate) fn finish(self, add: impl Fn(&mut T, T)) -> Option<T> {
        let sums = self.sums.into_iter().rev().map(|(_, sum)| sum);
        sums.reduce(|right, left| both(left, right, &add)).flatten()
    }
}

fn both<T>(left: Option<T>, right: Option<T>, add: &impl Fn(&mut T, T)) -> Option<T> {
    match (left, right) {
        (Some(mut left), Some(right)) => {
            add(&mut left, right);
            Some(left)
        }
        (left, right) => left.or(right),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(values: &[&str]) -> String {
        let add = |left: &mut String, right: String| *left = format!("({left}{right})");
        let mut tree = Tree::default();
        for value in values {
            let value = (!value.is_empty()).then(|| (*value).to_owned());
            tree.push(value, add);
            assert!(tree.sums.len() <= 4, "one sum for each level");
        }
        tree.finish(add).unwrap_or_default()
    }

    #[test]
    fn neighbours_are_added_first() {
        assert_eq!(sum(&[]), "");
        assert_eq!(sum(&["0"]), "0");
        assert_eq!(sum(&["0", "1"]), "(01)");
        assert_eq!(sum(&["0", "1", "2"]), "((01)2)");
        assert_eq!(
            sum(&["0", "1", "2", "3", "4", "5", "6"]),
            "(((01)(23))((45)6))"
        );
        assert_eq!(
            sum(&["0", "1", "2", "3", "4", "5", "6", "7"]),
            "(((01)(23))((45)(67)))"
        );
    }

    #[test]
    fn nothing_takes_a_place_of_its_own() {
        assert_eq!(sum(&["0", "", "2", "3"]), "(0(23))");
        assert_eq!(sum(&["", "", "2", "3", "4"]), "((23)4)");
        assert_eq!(sum(&["", ""]), "");
    }

    #[test]
    fn sums_of_equal_runs_are_subtrees() {
        let all = ["0", "1", "2", "3", "4", "5", "6", "7"];
        for run in [1, 2, 4, 8] {
            let runs: Vec<String> = all.chunks(run).map(sum).collect();
            let runs: Vec<&str> = runs.iter().map(String::as_str).collect();
            assert_eq!(sum(&runs), sum(&all));
        }
    }
}
