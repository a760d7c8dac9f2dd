//! Values at wanted paths in records of tapes, found by the numbers of the paths.

use super::{JsonRecord, Keys, NodeKind, Tape};

/// Number of a path below which nothing is wanted.
const UNUSED: u32 = u32::MAX;

/// Place of an absent value.
const ABSENT: u32 = u32::MAX;

/// Paths that are looked for in each record.
#[derive(Debug)]
pub struct WantedPaths {
    /// Wanted paths as a tree, the record first.
    branches: Vec<PathBranch>,
    /// PathBranch of each path of `keys`, or [`UNUSED`].
    by_key: Vec<u32>,
    /// Family of the numbers, and the path of the records.
    keys: Option<(u64, u32)>,
    /// Node of each wanted path in the last record, or [`ABSENT`].
    places: Vec<u32>,
    /// New keys of records below which nothing is wanted.
    unused: Vec<u32>,
}

#[derive(Debug, Default)]
struct PathBranch {
    below: Vec<(String, u32)>,
    /// Index of the wanted path that ends here.
    wanted: Option<usize>,
}

impl Default for WantedPaths {
    fn default() -> Self {
        Self {
            branches: vec![PathBranch::default()],
            by_key: Vec::new(),
            keys: None,
            places: Vec::new(),
            unused: Vec::new(),
        }
    }
}

impl WantedPaths {
    /// Adds a path before the first record. Returns its index; equal paths have one.
    pub fn add<'k>(&mut self, path: impl IntoIterator<Item = &'k str>) -> usize {
        let mut at = 0;
        for key in path {
            at = match self.below(at, key) {
                Some(below) => below,
                None => self.add_branch(at, key),
            };
        }
        let count = self.places.len();
        let wanted = *self.branches[at as usize].wanted.get_or_insert(count);
        if wanted == count {
            self.places.push(ABSENT);
        }
        wanted
    }

    fn add_branch(&mut self, above: u32, key: &str) -> u32 {
        let new = u32::try_from(self.branches.len()).expect("few paths are wanted");
        self.branches.push(PathBranch::default());
        let above = &mut self.branches[above as usize];
        above.below.push((key.to_owned(), new));
        new
    }

    fn below(&self, branch: u32, key: &str) -> Option<u32> {
        let mut below = self.branches[branch as usize].below.iter();
        let found = below.find(|(name, _)| name == key);
        found.map(|(_, branch)| *branch)
    }

    /// Returns true if something at or below the key `key` of records is wanted.
    pub fn uses(&self, key: &str) -> bool {
        self.below(0, key).is_some()
    }

    /// Finds the values of `record`. Returns the keys of records that are new and below which nothing
    /// is wanted.
    pub fn find<'t>(&mut self, record: &'t JsonRecord) -> impl Iterator<Item = &'t str> {
        self.learn(&record.tape.keys, record.key());
        self.places.fill(ABSENT);
        self.walk(&record.tape, record.place);
        let keys = &record.tape.keys;
        self.unused.drain(..).map(|key| keys.name(key))
    }

    /// Node of the wanted path `wanted` in the last record.
    pub fn place(&self, wanted: usize) -> Option<u32> {
        Some(self.places[wanted]).filter(|place| *place != ABSENT)
    }

    /// Finds the branches of paths that are new; records are at `root`.
    fn learn(&mut self, keys: &Keys, root: u32) {
        if self.keys != Some((keys.family, root)) {
            self.keys = Some((keys.family, root));
            self.by_key.clear();
        }
        for key in self.by_key.len()..keys.len() {
            let key = u32::try_from(key).expect("a path has a number");
            let branch = match keys.above(key) {
                _ if key == root => 0,
                // A path above or beside the records.
                above if above >= key => UNUSED,
                above => self.branch_of(keys, above, key, root),
            };
            self.by_key.push(branch);
        }
    }

    fn branch_of(&mut self, keys: &Keys, above: u32, key: u32, root: u32) -> u32 {
        let branch = self.by_key[above as usize];
        if branch == UNUSED || keys.item(above) == key {
            return UNUSED;
        }
        let below = self.below(branch, keys.name(key));
        if below.is_none() && above == root {
            self.unused.push(key);
        }
        below.unwrap_or(UNUSED)
    }

    /// Notes the wanted nodes below `record`.
    fn walk(&mut self, tape: &Tape, record: u32) {
        let end = tape.node(record).end;
        let mut at = record + 1;
        while at < end {
            let node = tape.node(at);
            let branch = self.by_key[node.key as usize];
            if branch == UNUSED {
                at = node.end;
                continue;
            }
            if let Some(wanted) = self.branches[branch as usize].wanted {
                self.places[wanted] = at;
            }
            at = match node.kind {
                NodeKind::Object => at + 1,
                _ => node.end,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use feedline_schemas::config::JsonConfig;

    use super::{super::Reader, *};
    use crate::value_view::ValueView;

    fn record(reader: &mut Reader, text: &str) -> JsonRecord {
        let tape = reader.read(text.into(), &JsonConfig::default()).unwrap();
        JsonRecord {
            tape: Arc::new(tape),
            place: 0,
        }
    }

    #[test]
    fn values_are_found_by_their_paths() {
        let mut paths = WantedPaths::default();
        let [a, a_b, dotted, again] = [
            paths.add(["a"]),
            paths.add(["a", "b"]),
            paths.add(["a.b"]),
            paths.add(["a", "b"]),
        ];
        assert_eq!(again, a_b);
        let mut reader = Reader::default();
        let mut check = |text: &str, expected: [Option<ValueView<'_>>; 3], unused: &[&str]| {
            let record = record(&mut reader, text);
            let new: Vec<&str> = paths.find(&record).collect();
            assert_eq!(new, unused, "{text}");
            let found = [a, a_b, dotted].map(|path| paths.place(path));
            assert_eq!(
                found.map(|place| place.map(|place| record.tape.view(place))),
                expected,
                "{text}"
            );
        };
        let text = |text: &'static str| Some(ValueView::Text(text.into()));
        let int = |value| Some(ValueView::Int(value));
        check(
            r#"{"a":1,"a.b":"x\n","z":{"a":2}}"#,
            [int(1), None, text("x\n")],
            &["z"],
        );
        check(
            r#"{"y":0,"a":{"c":3,"b":null}}"#,
            [Some(ValueView::Object), Some(ValueView::Null), None],
            &["y"],
        );
        // A path is not looked for in the items of a list.
        check(
            r#"{"a":[{"b":1}],"z":0}"#,
            [Some(ValueView::List), None, None],
            &[],
        );
        check("{}", [None, None, None], &[]);
    }

    #[test]
    fn records_of_a_list_are_found_below_their_own_path() {
        let mut paths = WantedPaths::default();
        let n = paths.add(["n"]);
        let page = record(
            &mut Reader::default(),
            r#"{"n":0,"data":[{"n":1},{"m":2},{"n":3}]}"#,
        );
        let list = page.tape.at_path("data").unwrap();
        let places = page.tape.below(list);
        let found = places.map(|place| {
            let record = JsonRecord {
                tape: Arc::clone(&page.tape),
                place,
            };
            let unused: Vec<String> = paths.find(&record).map(str::to_owned).collect();
            (paths.place(n).map(|place| page.tape.view(place)), unused)
        });
        let found: Vec<_> = found.collect();
        // All paths of a page are known at its first record.
        let expected = [
            (Some(ValueView::Int(1)), vec!["m".to_owned()]),
            (None, Vec::new()),
            (Some(ValueView::Int(3)), Vec::new()),
        ];
        assert_eq!(found, expected);
    }
}
