//! Duplicate images, found after all of them are decoded: those with equal pixels are one image,
//! and perceptual duplicates share a split.
//!
//! A group's split is that of the smallest hash in it (of the split's key where there is one, else of the content), so
//! it depends on the images alone: not on their order, and not on partitions. Where a frozen source is the test split, its
//! images stay there, and images of other sources that are in a group with one of them are rejected. For each image about
//! 300 bytes are held in memory, for all of them at once. Embeddings are in an index of their own, on disk where they are many.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::PathBuf,
    sync::Arc,
};

use arrow::{
    array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, UInt8Array},
    compute::filter_record_batch,
    datatypes::{SchemaRef, UInt64Type},
    util::display::array_value_to_string,
};
use datafusion::logical_expr::{Expr, ident};
use feedline_image::{Groups, Looks, perceptual};
use feedline_schemas::{
    config::{DedupMode, ImageDuplicates},
    manifest::{NearImageCounts, Split},
};
use futures::TryStreamExt;

use super::staged::{Part, Staged};
use crate::{
    Error,
    engine::scratch::{Scratch, ScratchFile},
    operators::{
        dedup::{conflicts::LabelConflicts, content_hash::HASH_BYTES},
        images::{Images, Neighbours, Seen},
        split::{Splitter, code},
        text::near::{Clusters, Scheme},
    },
    schema::{
        dataset_spec::DatasetSpec,
        reject_reason::{self, Reason},
        system_columns::{self, column},
    },
    staging::rejects::{RejectWriter, Rejects},
};

/// A group of up to so many images is never worth a warning.
const MANY: u64 = 1000;

/// Hashes and group of an image.
struct Image {
    origin: u64,
    /// Group that decides its split.
    group: [u8; HASH_BYTES as usize],
    pixels: [u8; HASH_BYTES as usize],
    looks: Option<Looks>,
    /// Name of its embedding; none where it is near to no other.
    embedding: Option<u64>,
    /// True if it is of the frozen source.
    is_frozen: bool,
    /// Its target, where copies are dropped whatever their targets are.
    label: Option<Arc<str>>,
}

/// Splits of images, by origin.
#[derive(Debug, Default, PartialEq, Eq)]
struct AssignedImages {
    /// Splits of those that stay.
    splits: HashMap<u64, u8>,
    /// Those that are not of the frozen source and in a group with one that is.
    of_frozen: Vec<u64>,
}

/// Returns the staged rows without duplicates, each in the split of its group, and the rejects:
/// rows with embeddings of an unusual length.
pub(super) async fn settle(
    staged: Staged,
    spec: &DatasetSpec,
    images: &Images,
    lengths: &BTreeMap<usize, u64>,
    scratch: &Scratch,
) -> Result<(Staged, Rejects), Error> {
    // A row that has more than its image is another row.
    let dedup = match spec.payload {
        Some(_) => spec.config.dedup,
        None => DedupMode::None,
    };
    let mut reader = ImageReader::new(spec, images, dedup);
    reader.neighbours = images.neighbours(lengths, &scratch.path("embeddings"))?;
    let mut rejects = RejectWriter::new(scratch.path("rejects-embeddings.parquet"));
    reader.read(&staged, &mut rejects).await?;
    let (found, neighbours) = reader.finish();
    let (clusters, near_images) = cluster_embeddings(&found, neighbours).await?;
    let splitter = Splitter::new(&spec.config.split);
    let AssignedImages { splits, of_frozen } =
        assign_splits(&found, &clusters, dedup, images, &splitter);
    let conflicts = count_label_conflicts(&found);
    drop((found, clusters));
    rejects.push(reject_groups_of_frozen(of_frozen, images))?;
    let path = |split| scratch.path(&format!("settled-{split}.parquet"));
    let staged = Staged {
        near_images,
        conflicts,
        ..rewrite_splits(staged, &splits, path).await?
    };
    Ok((staged, rejects.finish()?))
}

/// Clusters of near embeddings, with their counts where embeddings are compared.
async fn cluster_embeddings(
    found: &[Image],
    neighbours: Option<Neighbours>,
) -> Result<(Clusters, Option<NearImageCounts>), Error> {
    let Some(neighbours) = neighbours else {
        return Ok((Clusters::default(), None));
    };
    let scheme = neighbours.scheme();
    let work = move || neighbours.clusters();
    let clusters = tokio::task::spawn_blocking(work).await??;
    let counts = counts(found, &clusters, scheme);
    Ok((clusters, Some(counts)))
}

/// Rejects of the images that are in a group with one of the frozen source.
fn reject_groups_of_frozen(of_frozen: Vec<u64>, images: &Images) -> Vec<(u64, String)> {
    let reason = Reason {
        reason: reject_reason::OF_FROZEN.to_owned(),
        column: images.column.clone(),
        value: "it is in a group with an image of the frozen source: the same pixels, a similar look, or the same key of the split"
            .to_owned(),
    };
    let reason = reason.to_json();
    let rejects = of_frozen.into_iter();
    rejects.map(|origin| (origin, reason.clone())).collect()
}

/// Counts images of equal pixels that have several targets.
fn count_label_conflicts(found: &[Image]) -> LabelConflicts {
    let mut by_pixels: HashMap<_, (u64, &Image, Option<&Arc<str>>)> = HashMap::new();
    for image in found {
        let entry = by_pixels.entry((image.pixels, image.is_frozen));
        let (rows, first, other) = entry.or_insert((0, image, None));
        *rows += 1;
        if image.label != first.label {
            *other = other.or(image.label.as_ref());
        }
    }
    let mut conflicts = LabelConflicts::default();
    for (rows, first, other) in by_pixels.into_values() {
        if let (Some(label), Some(other)) = (&first.label, other) {
            conflicts.add(rows, first.origin, [label, other].map(|l| l.to_string()));
        }
    }
    conflicts
}

/// Reader of staged images. Their embeddings go to the search for near ones.
struct ImageReader<'a> {
    images: &'a Images,
    /// True if the test split is a frozen source.
    has_frozen: bool,
    /// Column of the target, where copies are dropped whatever their targets are.
    label: Option<&'a str>,
    /// Labels read so far, each stored once.
    labels: HashMap<String, Arc<str>>,
    /// Search for near embeddings, if they are compared.
    neighbours: Option<Neighbours>,
    found: Vec<Image>,
}

impl<'a> ImageReader<'a> {
    fn new(spec: &'a DatasetSpec, images: &'a Images, dedup: DedupMode) -> Self {
        let label = spec.target.as_ref().map(|target| target.column.as_str());
        Self {
            images,
            has_frozen: spec.config.split.frozen().is_some(),
            label: label.filter(|_| dedup == DedupMode::Exact),
            labels: HashMap::new(),
            neighbours: None,
            found: Vec::new(),
        }
    }

    /// Reads all staged images. Those with embeddings of an unusual length go to `rejects`.
    async fn read(&mut self, staged: &Staged, rejects: &mut RejectWriter) -> Result<(), Error> {
        let columns = self.columns_of(staged);
        for split in Split::ALL {
            let rows = staged.frame(split)?.select(columns.clone())?;
            let mut batches = rows.execute_stream().await?;
            while let Some(batch) = batches.try_next().await? {
                rejects.push(self.add(split, &batch).await?)?;
            }
        }
        Ok(())
    }

    /// Columns to read: first origin, group and hashes.
    fn columns_of(&self, staged: &Staged) -> Vec<Expr> {
        let group = match staged.schema.index_of(system_columns::GROUP) {
            Ok(_) => system_columns::GROUP,
            Err(_) => system_columns::HASH,
        };
        let mut columns = vec![
            system_columns::ORIGIN,
            group,
            system_columns::PIXELS,
            system_columns::LOOKS,
        ];
        columns.extend(self.neighbours.as_ref().map(|_| system_columns::EMBEDDING));
        columns.extend(self.label);
        columns.into_iter().map(ident).collect()
    }

    /// Adds the images of a batch, and returns the rejected rows.
    async fn add(
        &mut self,
        split: Split,
        batch: &RecordBatch,
    ) -> Result<Vec<(u64, String)>, Error> {
        let origins = batch.column(0).as_primitive::<UInt64Type>().values();
        let hashes = [1, 2, 3].map(|at: usize| batch.column(at).as_fixed_size_binary());
        let [groups, pixels, looks] = hashes;
        let seen = self.search(batch).await?;
        let labels = self.label.map(|name| column(batch, name));
        let mut rejects = Vec::new();
        for (row, origin) in origins.iter().enumerate() {
            let embedding = match seen.get(row) {
                None | Some(Seen::Nothing) => None,
                Some(Seen::Vector(name)) => Some(*name),
                Some(Seen::Odd(found)) => {
                    rejects.push((*origin, self.bad_embedding(found).to_json()));
                    continue;
                }
            };
            let label = labels
                .map(|labels| self.label_of(labels, row))
                .transpose()?;
            self.found.push(Image {
                origin: *origin,
                group: hash(groups.value(row)),
                pixels: hash(pixels.value(row)),
                looks: looks.is_valid(row).then(|| looks_of(looks.value(row))),
                embedding,
                // No other row is in the test split then.
                is_frozen: self.has_frozen && split == Split::Test,
                label,
            });
        }
        Ok(rejects)
    }

    /// Search results for the embeddings of a batch; empty where they are not compared.
    async fn search(&mut self, batch: &RecordBatch) -> Result<Vec<Seen>, Error> {
        let Some(mut neighbours) = self.neighbours.take() else {
            return Ok(Vec::new());
        };
        let cells = column(batch, system_columns::EMBEDDING)
            .as_string::<i32>()
            .clone();
        // It keeps a processor busy for long.
        let work = move || {
            let seen: Result<Vec<Seen>, Error> =
                cells.iter().map(|cell| neighbours.add(cell)).collect();
            seen.map(|seen| (neighbours, seen))
        };
        let (neighbours, seen) = tokio::task::spawn_blocking(work).await??;
        self.neighbours = Some(neighbours);
        Ok(seen)
    }

    fn bad_embedding(&self, found: &str) -> Reason {
        Reason {
            reason: reject_reason::BAD_EMBEDDING.to_owned(),
            column: self.images.column.clone(),
            value: format!("its embedding: {found}"),
        }
    }

    fn label_of(&mut self, labels: &ArrayRef, row: usize) -> Result<Arc<str>, Error> {
        let label = array_value_to_string(labels, row)?;
        let shared = || Arc::from(label.as_str());
        let stored = self.labels.entry(label.clone()).or_insert_with(shared);
        Ok(Arc::clone(stored))
    }

    /// Returns the images in the order they landed, and the search with all of their embeddings.
    fn finish(mut self) -> (Vec<Image>, Option<Neighbours>) {
        self.found.sort_unstable_by_key(|image| image.origin);
        (self.found, self.neighbours)
    }
}

/// Counts of the search for near embeddings; warns if it joined most images.
fn counts(found: &[Image], clusters: &Clusters, scheme: Scheme) -> NearImageCounts {
    let mut sizes: HashMap<u64, u64> = HashMap::new();
    for name in found.iter().filter_map(|image| image.embedding) {
        let first = clusters.member(name).map_or(name, |member| member.first.id);
        *sizes.entry(first).or_default() += 1;
    }
    let counts = NearImageCounts {
        bands: u32::try_from(scheme.bands).unwrap_or(u32::MAX),
        bits: u32::try_from(scheme.rows).unwrap_or(u32::MAX),
        images: sizes.values().sum(),
        clusters: sizes.values().filter(|size| **size > 1).count() as u64,
        largest: sizes.values().copied().max().unwrap_or(0),
        hubs: clusters.hubs,
    };
    if counts.largest > MANY && counts.largest > counts.images / 2 {
        tracing::warn!(
            images = counts.images,
            largest = counts.largest,
            "more than half of the images are joined by their embeddings and share a split; raise \
             `dataset.image.embedding_cosine`"
        );
    }
    counts
}

fn hash(bytes: &[u8]) -> [u8; HASH_BYTES as usize] {
    bytes.try_into().expect("a hash has 16 bytes")
}

/// `phash u64 | dhash u64`, big endian.
fn looks_of(bytes: &[u8]) -> Looks {
    let (phash, dhash) = bytes.split_at(8);
    let number = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().expect("half a hash"));
    Looks {
        phash: number(phash),
        dhash: number(dhash),
    }
}

/// Assigns a split to each image that stays, and finds those that are rejected for a frozen one. `found` is in the order of
/// origins.
fn assign_splits(
    found: &[Image],
    clusters: &Clusters,
    dedup: DedupMode,
    images: &Images,
    splitter: &Splitter,
) -> AssignedImages {
    let mut joined = JoinedImages::of_equal(found, dedup);
    if images.config.duplicates == ImageDuplicates::Perceptual {
        let looks: Vec<Option<Looks>> = found.iter().map(|image| image.looks).collect();
        perceptual(&looks, images.config.perceptual_bits, &mut joined.groups);
    }
    joined.join_clusters(clusters);
    joined.assign(found, splitter)
}

/// Images, joined to groups that share a split.
struct JoinedImages {
    groups: Groups,
    /// First image of each embedding.
    first_embedding: HashMap<u64, u32>,
    /// False for duplicates that are dropped.
    stays: Vec<bool>,
}

impl JoinedImages {
    /// Joins images of equal pixels, of one key of the split, and of equal embeddings.
    fn of_equal(found: &[Image], dedup: DedupMode) -> Self {
        let mut joined = Self {
            groups: Groups::new(found.len()),
            first_embedding: HashMap::new(),
            stays: vec![true; found.len()],
        };
        let groups = &mut joined.groups;
        let (mut first_pixels, mut first_key) = (HashMap::new(), HashMap::new());
        let mut first_kept = HashMap::new();
        for (index, image) in (0..).zip(found) {
            groups.join(*first_pixels.entry(image.pixels).or_insert(index), index);
            let kept = first_kept.entry((image.pixels, image.is_frozen));
            if *kept.or_insert(index) != index {
                joined.stays[index as usize] = dedup == DedupMode::None;
            }
            groups.join(*first_key.entry(image.group).or_insert(index), index);
            if let Some(name) = image.embedding {
                let first = joined.first_embedding.entry(name).or_insert(index);
                groups.join(*first, index);
            }
        }
        joined
    }

    /// Joins images of near embeddings.
    fn join_clusters(&mut self, clusters: &Clusters) {
        for member in &clusters.members {
            let pair = [member.first.id, member.id].map(|name| self.first_embedding.get(&name));
            if let [Some(first), Some(other)] = pair {
                self.groups.join(*first, *other);
            }
        }
    }

    fn assign(self, found: &[Image], splitter: &Splitter) -> AssignedImages {
        let firsts = self.groups.into_firsts();
        let mut smallest: HashMap<u32, &[u8]> = HashMap::new();
        let mut frozen = HashSet::new();
        for (first, image) in firsts.iter().zip(found) {
            let least = smallest.entry(*first).or_insert(&image.group);
            *least = (*least).min(&image.group);
            if image.is_frozen {
                frozen.insert(*first);
            }
        }
        let mut assigned = AssignedImages::default();
        let each = found.iter().zip(&firsts).zip(self.stays);
        for ((image, first), _) in each.filter(|(_, stays)| *stays) {
            let split = match (image.is_frozen, frozen.contains(first)) {
                (true, _) => Split::Test,
                (false, true) => {
                    assigned.of_frozen.push(image.origin);
                    continue;
                }
                (false, false) => splitter.split_of(smallest[first]),
            };
            assigned.splits.insert(image.origin, code(split));
        }
        assigned
    }
}

/// The rows that `splits` has, each in the file of its split, without their embeddings.
async fn rewrite_splits(
    staged: Staged,
    splits: &HashMap<u64, u8>,
    path: impl Fn(Split) -> PathBuf,
) -> Result<Staged, Error> {
    let fields = staged.schema.fields().iter().enumerate();
    let kept = fields.filter(|(_, field)| field.name() != system_columns::EMBEDDING);
    let kept: Vec<usize> = kept.map(|(at, _)| at).collect();
    let schema: SchemaRef = Arc::new(staged.schema.project(&kept)?);
    let mut files = Split::ALL.map(|split| ScratchFile::new(path(split), Arc::clone(&schema)));
    let mut parts = [const {
        Part {
            files: Vec::new(),
            rows: 0,
        }
    }; 3];
    for split in Split::ALL {
        let mut batches = staged.frame(split)?.execute_stream().await?;
        while let Some(batch) = batches.try_next().await? {
            let batch = batch.project(&kept)?;
            for (to, rows) in Split::ALL.into_iter().zip(divide_rows(&batch, splits)?) {
                let at = usize::from(code(to));
                files[at].write(&rows)?;
                parts[at].rows += rows.num_rows() as u64;
            }
        }
    }
    for (part, file) in parts.iter_mut().zip(files) {
        part.files.extend(file.finish()?);
    }
    Ok(Staged {
        schema,
        splits: parts,
        ..staged
    })
}

/// Rows of a batch that `splits` puts into each split, in the order of [`Split::ALL`].
fn divide_rows(batch: &RecordBatch, splits: &HashMap<u64, u8>) -> Result<Vec<RecordBatch>, Error> {
    let origins = column(batch, system_columns::ORIGIN).as_primitive::<UInt64Type>();
    let origins = origins.values().iter();
    let codes: Vec<Option<u8>> = origins.map(|origin| splits.get(origin).copied()).collect();
    let rows_of = |to: Split| {
        let mask = codes.iter().map(|found| Some(*found == Some(code(to))));
        let mask: BooleanArray = mask.collect();
        with_split(&filter_record_batch(batch, &mask)?, to)
    };
    Split::ALL.into_iter().map(rows_of).collect()
}

fn with_split(rows: &RecordBatch, split: Split) -> Result<RecordBatch, Error> {
    let schema = rows.schema();
    let mut columns: Vec<ArrayRef> = rows.columns().to_vec();
    let codes = UInt8Array::from_value(code(split), rows.num_rows());
    columns[schema.index_of(system_columns::SPLIT)?] = Arc::new(codes);
    Ok(RecordBatch::try_new(schema, columns)?)
}

#[cfg(test)]
mod tests {
    use feedline_schemas::config::{DatasetConfig, SplitConfig, StoredImageConfig};

    use super::*;

    fn images(duplicates: ImageDuplicates) -> Images {
        let config = DatasetConfig {
            image: Some(StoredImageConfig {
                duplicates,
                ..StoredImageConfig::default()
            }),
            ..DatasetConfig::default()
        };
        crate::operators::images::resolve(&config, "image", &[])
            .unwrap()
            .unwrap()
    }

    fn image(origin: u64, pixels: u8, phash: u64) -> Image {
        Image {
            origin,
            group: u128::from(origin).to_be_bytes(),
            pixels: [pixels; 16],
            looks: Some(Looks { phash, dhash: 0 }),
            embedding: None,
            is_frozen: false,
            label: None,
        }
    }

    /// With a salt that puts images apart which belong together.
    fn splitter() -> Splitter {
        let salted = (0..).map(|salt: u32| {
            Splitter::new(&SplitConfig {
                salt: salt.to_string(),
                train: 0.4,
                validation: 0.3,
                test: 0.3,
                ..SplitConfig::default()
            })
        });
        let apart = |s: &Splitter, a: usize, b: usize| own(s)[a] != own(s)[b];
        let mut suits = salted.filter(|s| apart(s, 0, 3) && apart(s, 1, 2));
        suits.next().unwrap()
    }

    /// The split that each image would have by itself.
    fn own(splitter: &Splitter) -> Vec<u8> {
        let split = |origin| code(splitter.split_of(&image(origin, 0, 0).group));
        (0..5).map(split).collect()
    }

    /// Splits of images; 0 and 3 have the same pixels, 1 and 2 similar ones.
    fn splits(duplicates: ImageDuplicates, dedup: DedupMode) -> Vec<Option<u8>> {
        let far = [0, u64::MAX, u64::MAX - 1, 0, 0x5555_5555_5555_5555];
        let each = (0..).zip([7, 1, 2, 7, 4]).zip(far);
        let found: Vec<Image> = each
            .map(|((origin, pixels), phash)| image(origin, pixels, phash))
            .collect();
        let none = Clusters::default();
        let assigned = assign_splits(&found, &none, dedup, &images(duplicates), &splitter());
        assert_eq!(assigned.of_frozen, [0; 0]);
        (0..5)
            .map(|origin| assigned.splits.get(&origin).copied())
            .collect()
    }

    #[test]
    fn copies_are_dropped_or_share_a_split_and_so_do_perceptual() {
        let own = own(&splitter());
        let pixels = splits(ImageDuplicates::Pixels, DedupMode::Exact);
        assert_eq!(pixels[3], None, "the one that landed later is dropped");
        assert_eq!(pixels[0], Some(own[0]), "the split of the smaller hash");
        assert_eq!([pixels[1], pixels[2]], [Some(own[1]), Some(own[2])]);
        let all = splits(ImageDuplicates::Pixels, DedupMode::None);
        assert_eq!([all[0], all[3]], [Some(own[0]); 2]);
        let looks = splits(ImageDuplicates::Perceptual, DedupMode::Exact);
        assert_eq!([looks[1], looks[2]], [Some(own[1]); 2]);
        assert_eq!(looks[4], Some(own[4]));
    }

    #[test]
    fn images_of_a_frozen_source_stay_and_those_that_look_like_them_are_rejected() {
        let far = [0, u64::MAX, u64::MAX - 1, 0, 0x5555_5555_5555_5555, 0];
        let each = (0..).zip([7, 1, 2, 7, 4, 7]).zip(far);
        let found: Vec<Image> = each
            .map(|((origin, pixels), phash)| Image {
                is_frozen: origin == 2 || origin >= 4,
                ..image(origin, pixels, phash)
            })
            .collect();
        let none = Clusters::default();
        let of = |duplicates| {
            let images = images(duplicates);
            assign_splits(&found, &none, DedupMode::Exact, &images, &splitter())
        };
        // 0 and 3 have the pixels of 5; 1 looks like 2.
        let pixels = of(ImageDuplicates::Pixels);
        assert_eq!(pixels.of_frozen, [0]);
        let test = code(Split::Test);
        let kept = |assigned: &AssignedImages, origin: u64| assigned.splits.get(&origin).copied();
        for origin in [2, 4, 5] {
            assert_eq!(kept(&pixels, origin), Some(test), "{origin}");
        }
        assert!(kept(&pixels, 1).is_some() && kept(&pixels, 3).is_none());
        let looks = of(ImageDuplicates::Perceptual);
        assert_eq!(looks.of_frozen, [0, 1]);
        assert_eq!(looks.splits.len(), 3);
    }
}
