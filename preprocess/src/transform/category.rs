//! Elements of a category: one element per id, or one that is a number.

use std::collections::HashMap;

use datafusion::arrow::array::{FixedSizeBinaryArray, StringArray};
use feedline_schemas::transform::{
    CategoryEncoding, FIRST_KNOWN_ID, Feature, FittedCategories, FittedOutcomes, FoldBy, NULL_ID,
    UNKNOWN_ID,
};
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};
use xxhash_rust::xxh3::xxh3_64;

use super::{bad_rows::Bad, reason};
use crate::{operators::split::Folds, schema::reject_reason::SHOWN};

/// A column of categories.
#[derive(Debug)]
pub(super) struct CategoryPlan {
    pub(super) name: String,
    /// First element.
    place: usize,
    ids: Ids,
    elements: Elements,
    /// True if rows of unknown values are bad.
    rejects_unknown: bool,
}

/// The id of a text.
#[derive(Debug)]
enum Ids {
    Known(HashMap<String, u32>),
    /// Number of ids that all texts share.
    Hashed(u64),
}

/// Output for an id.
#[derive(Debug)]
enum Elements {
    /// A 1 in the element of the id.
    OnePerId,
    /// The id itself.
    Id,
    /// A number for each id.
    Number(Vec<f32>),
    /// Numbers of each id by fold and element; the last fold is for rows that are in none.
    Folded(Folds, FoldBy, Vec<Vec<Vec<f32>>>),
}

impl CategoryPlan {
    /// Prepares the elements of `fitted`'s column, which begin at `place`.
    ///
    /// # Errors
    /// A message about the fault: a value that is listed twice, or an encoding without its numbers.
    pub(super) fn new(fitted: &FittedCategories, place: usize) -> Result<Self, String> {
        let column = &fitted.name;
        let lacks = |what: &str| format!("the categories of `{column}` lack {what}");
        let known = fitted.values.iter().cloned().zip(FIRST_KNOWN_ID..);
        let known: HashMap<String, u32> = known.collect();
        if known.len() != fitted.values.len() {
            return Err(format!("a category of `{column}` is listed twice"));
        }
        let ids = match (fitted.encoding, fitted.buckets) {
            (CategoryEncoding::Hash, Some(buckets)) if buckets > 0 => Ids::Hashed(buckets.into()),
            (CategoryEncoding::Hash, _) => return Err(lacks("buckets")),
            _ => Ids::Known(known),
        };
        let elements = match fitted.encoding {
            CategoryEncoding::OneHot | CategoryEncoding::Hash => Elements::OnePerId,
            CategoryEncoding::Ordinal => Elements::Id,
            CategoryEncoding::Frequency => {
                let of = fitted.frequency.filter(|of| of.rows > 0);
                let of = of.ok_or_else(|| lacks("the rows that shares are of"))?;
                let counts = [0, of.missing]
                    .into_iter()
                    .chain(fitted.counts.iter().copied());
                Elements::Number(counts.map(|count| share(count, of.rows)).collect())
            }
            CategoryEncoding::Target => {
                let outcomes = fitted.outcomes.as_ref();
                let outcomes = outcomes.ok_or_else(|| lacks("what the target is like"))?;
                let ids = fitted.values.len() + FIRST_KNOWN_ID as usize;
                let numbers =
                    by_fold(outcomes, ids).ok_or_else(|| lacks("a number for each value"))?;
                Elements::Folded(Folds::new(outcomes.folds), outcomes.fold_by, numbers)
            }
        };
        if let Elements::Number(numbers) = &elements
            && numbers.len() != fitted.values.len() + FIRST_KNOWN_ID as usize
        {
            return Err(lacks("a number for each value"));
        }
        Ok(Self {
            name: column.clone(),
            place,
            ids,
            elements,
            rejects_unknown: fitted.rejects_unknown,
        })
    }

    /// The hash that rows of a fold share, where training rows get other numbers than the rest.
    pub(super) const fn fold_by(&self) -> Option<FoldBy> {
        match &self.elements {
            Elements::Folded(_, by, _) => Some(*by),
            Elements::OnePerId | Elements::Id | Elements::Number(_) => None,
        }
    }

    /// Writes the elements of `values` into `x`, rows of `features` elements that are 0 there. `folds` has the hashes that
    /// training rows are dealt into folds by. Rows of unknown values are added to `unknown`, and are `bad` where they are to be rejected.
    pub(super) fn write(
        &self,
        values: &StringArray,
        folds: Option<&FixedSizeBinaryArray>,
        x: &mut [f32],
        features: usize,
        bad: &mut Bad,
        unknown: &mut Vec<usize>,
    ) {
        for (i, (row, value)) in x.chunks_exact_mut(features).zip(values).enumerate() {
            let id = self.ids.of(value);
            if id == UNKNOWN_ID {
                unknown.push(i);
            }
            if self.rejects_unknown && id == UNKNOWN_ID {
                bad.add(i, reason::UNKNOWN_CATEGORY, || {
                    let shown: String = value.unwrap_or_default().chars().take(SHOWN).collect();
                    format!(
                        "column `{}`: category `{shown}` does not occur in the training split",
                        self.name
                    )
                });
            }
            match &self.elements {
                Elements::OnePerId => row[self.place + id as usize] = 1.0,
                #[expect(
                    clippy::cast_precision_loss,
                    reason = "at most 100,002 ids, exact in 24 bits"
                )]
                Elements::Id => row[self.place] = id as f32,
                Elements::Number(numbers) => row[self.place] = numbers[id as usize],
                Elements::Folded(of_hash, _, numbers) => {
                    let none = numbers.len() - 1;
                    let fold = folds.map_or(none, |folds| of_hash.of(folds.value(i)));
                    for (cell, numbers) in row[self.place..].iter_mut().zip(&numbers[fold]) {
                        *cell = numbers[id as usize];
                    }
                }
            }
        }
    }
}

/// The numbers of each fold, and of rows in none; `None` where there are not as many as there should be.
fn by_fold(outcomes: &FittedOutcomes, ids: usize) -> Option<Vec<Vec<Vec<f32>>>> {
    let elements = &outcomes.elements;
    let folds = outcomes.folds as usize;
    let numbers = elements
        .iter()
        .flat_map(|e| e.others.iter().chain([&e.all]));
    let complete = elements.iter().all(|e| e.others.len() == folds)
        && numbers.clone().all(|numbers| numbers.len() == ids)
        && numbers.flatten().all(|number| short(*number).is_finite());
    if elements.is_empty() || !complete {
        return None;
    }
    let rounded = |numbers: &Vec<f64>| numbers.iter().copied().map(short).collect();
    let fold = |fold: usize| elements.iter().map(|e| rounded(&e.others[fold])).collect();
    let all: Vec<Vec<f32>> = elements.iter().map(|e| rounded(&e.all)).collect();
    Some((0..folds).map(fold).chain([all]).collect())
}

/// Never -0.0, so that equal rows have equal bytes.
#[expect(
    clippy::cast_possible_truncation,
    reason = "rounding to 32 bits is the purpose, and overflow is checked"
)]
fn short(number: f64) -> f32 {
    number as f32 + 0.0
}

impl Ids {
    fn of(&self, value: Option<&str>) -> u32 {
        match (self, value) {
            (_, None) => NULL_ID,
            (Self::Known(ids), Some(value)) => ids.get(value).copied().unwrap_or(UNKNOWN_ID),
            (Self::Hashed(buckets), Some(value)) => {
                let bucket = hash(value) % buckets;
                FIRST_KNOWN_ID + u32::try_from(bucket).expect("buckets are counted in 32 bits")
            }
        }
    }
}

/// The hash of a text, the same for all ways to write it that Unicode holds equal.
fn hash(value: &str) -> u64 {
    if is_nfc_quick(value.chars()) == IsNormalized::Yes {
        xxh3_64(value.as_bytes())
    } else {
        xxh3_64(value.nfc().collect::<String>().as_bytes())
    }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "rounding to 32 bits is the purpose"
)]
fn share(count: u64, rows: u64) -> f32 {
    (count as f64 / rows as f64) as f32
}

/// Name and origin of each element of a category.
pub(super) fn category_features(fitted: &FittedCategories) -> Vec<Feature> {
    let column = &fitted.name;
    let feature = |name: String, category: Option<u32>| Feature {
        name,
        column: column.clone(),
        category,
    };
    let of_id = |(id, value): (u32, String)| feature(format!("{column}={value}"), Some(id));
    let reserved = [(UNKNOWN_ID, "__unknown__"), (NULL_ID, "__null__")];
    let reserved = reserved.map(|(id, name)| (id, name.to_owned())).into_iter();
    match fitted.encoding {
        CategoryEncoding::Ordinal | CategoryEncoding::Frequency => {
            vec![feature(column.clone(), None)]
        }
        CategoryEncoding::Target => {
            let elements = fitted
                .outcomes
                .iter()
                .flat_map(|outcomes| &outcomes.elements);
            let name = |class: Option<&String>| match class {
                Some(class) => format!("{column}~{class}"),
                None => column.clone(),
            };
            elements
                .map(|e| feature(name(e.class.as_ref()), None))
                .collect()
        }
        CategoryEncoding::OneHot => {
            let known = (FIRST_KNOWN_ID..).zip(fitted.values.iter().cloned());
            reserved.chain(known).map(of_id).collect()
        }
        CategoryEncoding::Hash => {
            let buckets = (0..fitted.buckets.unwrap_or(0)).map(|bucket| format!("#{bucket}"));
            let hashed = (FIRST_KNOWN_ID..).zip(buckets);
            reserved.chain(hashed).map(of_id).collect()
        }
    }
}
