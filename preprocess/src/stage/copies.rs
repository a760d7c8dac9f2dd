//! Copies of pictures, found after all of them are decoded: those with equal pixels are one picture, and those that look
//! alike share a split.
//!
//! A group's split is that of the smallest hash in it (of the split's key where there is one, else of the content), so
//! it depends on the pictures alone: not on their order, and not on partitions. For each picture about 300 bytes are held
//! in memory, for all of them at once. Embeddings lie in an index of their own, on disk where they are many.

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    sync::Arc,
};

use arrow::{
    array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, UInt8Array},
    compute::filter_record_batch,
    datatypes::{SchemaRef, UInt64Type},
};
use datafusion::{error::DataFusionError, logical_expr::ident};
use feedline_picture::{Groups, Looks, look_alikes};
use feedline_schemas::{
    config::{DedupMode, PictureDuplicates},
    manifest::{NearPictureCounts, Split},
};
use futures::TryStreamExt;
use tokio::task::JoinError;

use super::{Part, Staged, column};
use crate::{
    Error,
    columns::{DatasetSpec, system},
    content::HASH_BYTES,
    pictures::{BAD_EMBEDDING, Neighbours, Pictures, Seen},
    rejects::{RejectWriter, Rejects},
    scratch::{Scratch, ScratchFile},
    split::{Splitter, code},
    text::near::{Clusters, Scheme},
    typing::Reason,
};

/// A group of up to so many pictures is never worth a warning.
const MANY: u64 = 1000;

/// What is known of a picture.
struct Picture {
    origin: u64,
    /// What its split depends on.
    group: [u8; HASH_BYTES as usize],
    pixels: [u8; HASH_BYTES as usize],
    looks: Option<Looks>,
    /// Name of its embedding; none where it is near to no other.
    embedding: Option<u64>,
}

/// The staged rows without copies, each in the split of its group, and those that are set aside because their embeddings
/// have other lengths than most.
pub(super) async fn settle(
    staged: Staged,
    spec: &DatasetSpec,
    pictures: &Pictures,
    lengths: &BTreeMap<usize, u64>,
    scratch: &Scratch,
) -> Result<(Staged, Rejects), Error> {
    let neighbours = pictures.neighbours(lengths, &scratch.path("embeddings"))?;
    let mut rejects = RejectWriter::new(scratch.path("rejects-embeddings.parquet"));
    let (found, neighbours) = read(&staged, pictures, neighbours, &mut rejects).await?;
    let (clusters, near_pictures) = match neighbours {
        Some(neighbours) => {
            let scheme = neighbours.scheme();
            let work = move || neighbours.clusters();
            let clusters = tokio::task::spawn_blocking(work).await.map_err(joined)??;
            let counts = counts(&found, &clusters, scheme);
            (clusters, Some(counts))
        }
        None => (Clusters::default(), None),
    };
    let config = &spec.config;
    // A row that has more than its picture is another row.
    let dedup = match spec.payload {
        Some(_) => config.dedup,
        None => DedupMode::None,
    };
    let splitter = Splitter::new(&config.split);
    let splits = splits(&found, &clusters, dedup, pictures, &splitter);
    drop((found, clusters));
    let path = |split| scratch.path(&format!("settled-{split}.parquet"));
    let settled = Staged {
        near_pictures,
        ..rewritten(staged, &splits, path).await?
    };
    Ok((settled, rejects.finish()?))
}

fn joined(error: JoinError) -> Error {
    Error::Engine(DataFusionError::ExecutionJoin(Box::new(error)))
}

/// All staged pictures, in the order they landed. Their embeddings go to `neighbours`, and those of other lengths to
/// `rejects`.
async fn read(
    staged: &Staged,
    pictures: &Pictures,
    mut neighbours: Option<Neighbours>,
    rejects: &mut RejectWriter,
) -> Result<(Vec<Picture>, Option<Neighbours>), Error> {
    let group = match staged.schema.index_of(system::GROUP) {
        Ok(_) => system::GROUP,
        Err(_) => system::HASH,
    };
    let mut columns = vec![system::ORIGIN, group, system::PIXELS, system::LOOKS];
    columns.extend(neighbours.as_ref().map(|_| system::EMBEDDING));
    let mut found = Vec::new();
    for split in Split::ALL {
        let columns = columns.iter().map(|name| ident(*name)).collect::<Vec<_>>();
        let mut batches = staged
            .frame(split)?
            .select(columns)?
            .execute_stream()
            .await?;
        while let Some(batch) = batches.try_next().await? {
            let origins = batch.column(0).as_primitive::<UInt64Type>().values();
            let hashes = [1, 2, 3].map(|at: usize| batch.column(at).as_fixed_size_binary());
            let [groups, pixels, looks] = hashes;
            let (back, seen) = seen(neighbours, &batch).await?;
            neighbours = back;
            let mut odd = Vec::new();
            for (row, origin) in origins.iter().enumerate() {
                let embedding = match seen.get(row) {
                    None | Some(Seen::Nothing) => None,
                    Some(Seen::Vector(name)) => Some(*name),
                    Some(Seen::Odd(told)) => {
                        let reason = Reason {
                            reason: BAD_EMBEDDING.to_owned(),
                            column: pictures.column.clone(),
                            value: format!("its embedding: {told}"),
                        };
                        odd.push((*origin, reason.to_json()));
                        continue;
                    }
                };
                found.push(Picture {
                    origin: *origin,
                    group: hash(groups.value(row)),
                    pixels: hash(pixels.value(row)),
                    looks: looks.is_valid(row).then(|| looks_of(looks.value(row))),
                    embedding,
                });
            }
            rejects.push(odd)?;
        }
    }
    found.sort_unstable_by_key(|picture| picture.origin);
    Ok((found, neighbours))
}

/// What the embeddings of a batch are; none where they are not looked at.
async fn seen(
    neighbours: Option<Neighbours>,
    batch: &RecordBatch,
) -> Result<(Option<Neighbours>, Vec<Seen>), Error> {
    let Some(mut neighbours) = neighbours else {
        return Ok((None, Vec::new()));
    };
    let cells = column(batch, system::EMBEDDING).as_string::<i32>().clone();
    // It keeps a processor busy for long.
    let work = move || {
        let seen: Result<Vec<Seen>, Error> =
            cells.iter().map(|cell| neighbours.add(cell)).collect();
        seen.map(|seen| (Some(neighbours), seen))
    };
    tokio::task::spawn_blocking(work).await.map_err(joined)?
}

/// What the search for near embeddings found; a warning where it joined most pictures.
fn counts(found: &[Picture], clusters: &Clusters, scheme: Scheme) -> NearPictureCounts {
    let mut sizes: HashMap<u64, u64> = HashMap::new();
    for name in found.iter().filter_map(|picture| picture.embedding) {
        let first = clusters.member(name).map_or(name, |member| member.first.id);
        *sizes.entry(first).or_default() += 1;
    }
    let counts = NearPictureCounts {
        bands: u32::try_from(scheme.bands).unwrap_or(u32::MAX),
        bits: u32::try_from(scheme.rows).unwrap_or(u32::MAX),
        pictures: sizes.values().sum(),
        clusters: sizes.values().filter(|size| **size > 1).count() as u64,
        largest: sizes.values().copied().max().unwrap_or(0),
        hubs: clusters.hubs,
    };
    if counts.largest > MANY && counts.largest > counts.pictures / 2 {
        tracing::warn!(
            pictures = counts.pictures,
            largest = counts.largest,
            "more than half of the pictures are joined by their embeddings and share a split; raise \
             `dataset.picture.embedding_cosine`"
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

/// The split of each picture that stays, by its origin. `found` is in the order of origins.
fn splits(
    found: &[Picture],
    clusters: &Clusters,
    dedup: DedupMode,
    pictures: &Pictures,
    splitter: &Splitter,
) -> HashMap<u64, u8> {
    let mut groups = Groups::new(found.len());
    let (mut first_pixels, mut first_key) = (HashMap::new(), HashMap::new());
    let mut first_embedding = HashMap::new();
    let mut stays = vec![true; found.len()];
    for (index, picture) in (0..).zip(found) {
        let first = *first_pixels.entry(picture.pixels).or_insert(index);
        if first != index {
            groups.join(first, index);
            stays[index as usize] = dedup == DedupMode::None;
        }
        groups.join(*first_key.entry(picture.group).or_insert(index), index);
        if let Some(name) = picture.embedding {
            groups.join(*first_embedding.entry(name).or_insert(index), index);
        }
    }
    if pictures.config.duplicates == PictureDuplicates::LookAlikes {
        let looks: Vec<Option<Looks>> = found.iter().map(|picture| picture.looks).collect();
        look_alikes(&looks, pictures.config.look_alike_bits, &mut groups);
    }
    for member in &clusters.members {
        let pair = [member.first.id, member.id].map(|name| first_embedding.get(&name));
        if let [Some(first), Some(other)] = pair {
            groups.join(*first, *other);
        }
    }
    let firsts = groups.into_firsts();
    let mut smallest: HashMap<u32, &[u8]> = HashMap::new();
    for (first, picture) in firsts.iter().zip(found) {
        let least = smallest.entry(*first).or_insert(&picture.group);
        *least = (*least).min(&picture.group);
    }
    let each = found.iter().zip(&firsts).zip(stays);
    each.filter(|(_, stays)| *stays)
        .map(|((picture, first), _)| (picture.origin, code(splitter.split_of(smallest[first]))))
        .collect()
}

/// The rows that `splits` has, each in the file of its split, without their embeddings.
async fn rewritten(
    staged: Staged,
    splits: &HashMap<u64, u8>,
    path: impl Fn(Split) -> PathBuf,
) -> Result<Staged, Error> {
    let fields = staged.schema.fields().iter().enumerate();
    let kept = fields.filter(|(_, field)| field.name() != system::EMBEDDING);
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
            let origins = column(&batch, system::ORIGIN).as_primitive::<UInt64Type>();
            let codes: UInt8Array = origins
                .values()
                .iter()
                .map(|origin| splits.get(origin).copied())
                .collect();
            for to in Split::ALL {
                let at = usize::from(code(to));
                let mask: BooleanArray = codes
                    .iter()
                    .map(|found| Some(found == Some(code(to))))
                    .collect();
                let rows = with_split(&filter_record_batch(&batch, &mask)?, to)?;
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

fn with_split(rows: &RecordBatch, split: Split) -> Result<RecordBatch, Error> {
    let schema = rows.schema();
    let mut columns: Vec<ArrayRef> = rows.columns().to_vec();
    let codes = UInt8Array::from_value(code(split), rows.num_rows());
    columns[schema.index_of(system::SPLIT)?] = Arc::new(codes);
    Ok(RecordBatch::try_new(schema, columns)?)
}

#[cfg(test)]
mod tests {
    use feedline_schemas::config::{DatasetConfig, SplitConfig, StoredPictureConfig};

    use super::*;

    fn pictures(duplicates: PictureDuplicates) -> Pictures {
        let config = DatasetConfig {
            picture: Some(StoredPictureConfig {
                duplicates,
                ..StoredPictureConfig::default()
            }),
            ..DatasetConfig::default()
        };
        crate::pictures::resolve(&config, "image", &[])
            .unwrap()
            .unwrap()
    }

    fn picture(origin: u64, pixels: u8, phash: u64) -> Picture {
        Picture {
            origin,
            group: u128::from(origin).to_be_bytes(),
            pixels: [pixels; 16],
            looks: Some(Looks { phash, dhash: 0 }),
            embedding: None,
        }
    }

    /// With a salt that puts pictures apart which belong together.
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

    /// The split that each picture would have by itself.
    fn own(splitter: &Splitter) -> Vec<u8> {
        let split = |origin| code(splitter.split_of(&picture(origin, 0, 0).group));
        (0..5).map(split).collect()
    }

    /// Splits of pictures of which 0 and 3 have the same pixels, and 1 looks like 2.
    fn settled(duplicates: PictureDuplicates, dedup: DedupMode) -> Vec<Option<u8>> {
        let far = [0, u64::MAX, u64::MAX - 1, 0, 0x5555_5555_5555_5555];
        let each = (0..).zip([7, 1, 2, 7, 4]).zip(far);
        let found: Vec<Picture> = each
            .map(|((origin, pixels), phash)| picture(origin, pixels, phash))
            .collect();
        let none = Clusters::default();
        let splits = splits(&found, &none, dedup, &pictures(duplicates), &splitter());
        (0..5).map(|origin| splits.get(&origin).copied()).collect()
    }

    #[test]
    fn copies_are_dropped_or_share_a_split_and_so_do_look_alikes() {
        let own = own(&splitter());
        let pixels = settled(PictureDuplicates::Pixels, DedupMode::Exact);
        assert_eq!(pixels[3], None, "the one that landed later is dropped");
        assert_eq!(pixels[0], Some(own[0]), "the split of the smaller hash");
        assert_eq!([pixels[1], pixels[2]], [Some(own[1]), Some(own[2])]);
        let all = settled(PictureDuplicates::Pixels, DedupMode::None);
        assert_eq!([all[0], all[3]], [Some(own[0]); 2]);
        let looks = settled(PictureDuplicates::LookAlikes, DedupMode::Exact);
        assert_eq!([looks[1], looks[2]], [Some(own[1]); 2]);
        assert_eq!(looks[4], Some(own[4]));
    }
}
