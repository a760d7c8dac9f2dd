//! Columns of a file matched to the wanted columns.
//!
//! A dataset of landed rows has its columns' names as they landed, where a dot in a name is escaped
//! (`a\.b`); one of files or of a query has the original names. So a column is looked up by its
//! original name, then by its landed name.

use std::collections::HashMap;

use feedline_schemas::record::{join_path, split_path};

/// The columns of a file, and where those are that are asked for.
#[derive(Debug)]
pub(super) struct Named {
    /// As they are written.
    names: Vec<String>,
    /// Of each that is asked for.
    places: Vec<Option<usize>>,
}

impl Named {
    /// Looks for `wanted` among `names`, which are written in the file. A column that one of them means as it lands is not
    /// taken for another.
    pub(super) fn new(names: Vec<String>, wanted: &[String]) -> Self {
        let landed: Vec<String> = names
            .iter()
            .map(|name| join_path([name.as_str()]))
            .collect();
        // The first of those that are called alike.
        let places = |names: &[String]| -> HashMap<String, usize> {
            let found = names.iter().enumerate().rev();
            found.map(|(place, name)| (name.clone(), place)).collect()
        };
        let (by_name, by_landed) = (places(&names), places(&landed));
        let is_meant = |place: usize| {
            let other = &landed[place];
            *other != names[place] && wanted.contains(other) && !by_name.contains_key(other)
        };
        let place = |name: &String| {
            let written = by_name.get(name).copied();
            let written = written.filter(|place| !is_meant(*place));
            written.or_else(|| by_landed.get(name).copied())
        };
        Self {
            places: wanted.iter().map(place).collect(),
            names,
        }
    }

    /// The same, where an absent column is at the column of objects that its path begins with.
    pub(super) fn with_nested(&self, wanted: &[String], is_nested: impl Fn(usize) -> bool) -> Self {
        let places = wanted.iter().zip(&self.places).map(|(name, place)| {
            let path = split_path(name);
            let root = path.first().filter(|_| path.len() > 1);
            let root = || self.names.iter().position(|own| Some(own) == root);
            place.or_else(|| root().filter(|root| is_nested(*root)))
        });
        Self {
            places: places.collect(),
            names: self.names.clone(),
        }
    }

    /// All columns.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// Position of each wanted column; `None` for one that is absent.
    pub(super) fn places(&self) -> &[Option<usize>] {
        &self.places
    }

    /// Columns that nothing asks for.
    pub(super) fn ignored(&self) -> Vec<String> {
        let others = self.names.iter().enumerate();
        let others = others.filter(|(place, _)| !self.places.contains(&Some(*place)));
        others.map(|(_, name)| name.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(names: &[&str], wanted: &[&str], expected: &[Option<usize>]) {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let wanted: Vec<String> = owned(wanted);
        assert_eq!(Named::new(owned(names), &wanted).places(), expected);
    }

    #[test]
    fn a_column_is_found_as_it_is_written_or_as_it_landed() {
        check(&["z", "a.b"], &["a.b"], &[Some(1)]);
        check(&["z", "a.b"], &[r"a\.b"], &[Some(1)]);
        check(&[r"c\d"], &[r"c\d"], &[Some(0)]);
        check(&[r"c\d"], &[r"c\\d"], &[Some(0)]);
        check(&["a"], &["a.b", "a"], &[None, Some(0)]);
    }

    #[test]
    fn a_nested_column_and_one_with_a_dot_are_not_taken_for_each_other() {
        // `a.b` is nested, and no such file can hold it beside the other.
        check(&["a.b"], &["a.b", r"a\.b"], &[None, Some(0)]);
        check(&["a.b", r"a\.b"], &["a.b", r"a\.b"], &[Some(0), Some(1)]);
    }
}
