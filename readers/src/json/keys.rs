//! Paths of the values of documents, by number.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering},
};

use feedline_schemas::record::join_path;

use super::write_text;

/// Paths that a reader knows at most; documents with more are read as trees.
const MOST_KEYS: usize = 1 << 16;

/// Objects with more keys than this find them by hash.
const LINEAR_KEYS: usize = 16;

/// Paths, by number. The items of a list have one path together.
#[derive(Clone, Debug)]
pub struct Keys {
    /// Numbers of one family mean the same; it only grows.
    pub family: u64,
    keys: Vec<Key>,
}

#[derive(Clone, Debug, Default)]
struct Key {
    above: u32,
    name: Box<str>,
    /// The name as canonical JSON writes it, with the colon.
    written: Box<str>,
    /// Path of the items, if it is a list.
    item: u32,
    below: Vec<u32>,
    by_name: HashMap<Box<str>, u32>,
}

impl Default for Keys {
    fn default() -> Self {
        static FAMILIES: AtomicU64 = AtomicU64::new(0);
        Self {
            family: FAMILIES.fetch_add(1, Ordering::Relaxed),
            keys: vec![Key::default()],
        }
    }
}

impl Keys {
    /// Number of paths.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Path of the items of the list at `key`, if it had any.
    pub(super) fn item(&self, key: u32) -> u32 {
        self.key(key).item
    }

    /// The path that `key` is below; that of the document is below itself.
    pub(super) fn above(&self, key: u32) -> u32 {
        self.key(key).above
    }

    fn key(&self, key: u32) -> &Key {
        &self.keys[key as usize]
    }

    /// The path `key` as the name of a column.
    pub fn name(&self, key: u32) -> &str {
        &self.key(key).name
    }

    /// The last part of the path as canonical JSON writes it, with the colon.
    pub fn written(&self, key: u32) -> &str {
        &self.key(key).written
    }

    /// The path from `root` to `key` as a column is called.
    pub fn column(&self, root: u32, key: u32) -> String {
        let mut names = Vec::new();
        let mut at = key;
        while at != root {
            names.push(self.name(at));
            at = self.key(at).above;
        }
        join_path(names.into_iter().rev())
    }

    pub(super) fn below(&self, above: u32, name: &str) -> Option<u32> {
        let Key { below, by_name, .. } = self.key(above);
        if below.len() > LINEAR_KEYS {
            return by_name.get(name).copied();
        }
        below.iter().copied().find(|key| self.name(*key) == name)
    }

    fn push(&mut self, above: u32, name: &str) -> Option<u32> {
        let new = u32::try_from(self.keys.len()).ok()?;
        if self.keys.len() == MOST_KEYS {
            return None;
        }
        let mut written = String::with_capacity(name.len() + 3);
        write_text(name, &mut written);
        written.push(':');
        self.keys.push(Key {
            above,
            name: name.into(),
            written: written.into(),
            ..Key::default()
        });
        Some(new)
    }

    pub(super) fn add(&mut self, above: u32, name: &str) -> Option<u32> {
        let new = self.push(above, name)?;
        let parent = &mut self.keys[above as usize];
        parent.below.push(new);
        if parent.below.len() > LINEAR_KEYS {
            if parent.by_name.is_empty() {
                let below = self.keys[above as usize].below.clone();
                let names = below.iter().map(|key| (self.name(*key).into(), *key));
                let names = names.collect();
                self.keys[above as usize].by_name = names;
            } else {
                parent.by_name.insert(name.into(), new);
            }
        }
        Some(new)
    }

    pub(super) fn add_item(&mut self, list: u32) -> Option<u32> {
        let new = self.push(list, "")?;
        self.keys[list as usize].item = new;
        Some(new)
    }
}
