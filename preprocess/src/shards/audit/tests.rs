use std::io::Cursor;

use arrow::ipc::{
    MetadataVersion,
    reader::FileReader,
    writer::{FileWriter, IpcWriteOptions},
};
use bytes::Bytes;
use feedline_schemas::{
    config::ShardConfig,
    ids::{Hash128, Name},
    manifest::{Block, Layout, TargetKind, TokenType},
};
use feedline_storage::StoreOptions;

use super::*;
use crate::shards::{
    footer::footer_blocks,
    open_shard::head_of,
    shard_layout::ShardLayout,
    writer::{Row, SplitWriter},
};

const ROWS: u16 = 400;

fn leaks(passes: u64, keys: &[(u64, u8)]) -> (u64, Vec<String>) {
    let mut findings = Findings::default();
    for pass in 0..passes {
        let range = range(pass, passes);
        let here = |key: &u64| range.contains(&u128::from(*key));
        let lists = keys.chunk_by(|a, b| a.1 == b.1);
        let lists = lists.map(|own| {
            let keys = own.iter().map(|(key, _)| *key);
            (own[0].1, keys.filter(here).collect())
        });
        find_leaks(lists.collect(), &mut findings);
    }
    (findings.leaked, findings.leaks)
}

#[test]
fn leaks_are_found_in_any_number_of_passes() {
    let keys: Vec<(u64, u8)> = vec![
        (0, 0),
        (7, 0),
        (7, 0),
        (u64::MAX, 2),
        (1 << 63, 1),
        (0, 2),
        (u64::MAX, 1),
        ((1 << 63) - 1, 0),
    ];
    // Many that are in one split alone change nothing.
    let mut many = keys.clone();
    for (i, split) in (0..5000_u64).zip([1, 0, 1, 1, 2].into_iter().cycle()) {
        let key = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 << 20 | 1 << 40;
        many.push((key, split));
    }
    let expected = [
        "key `0000000000000000` in train and test",
        "key `ffffffffffffffff` in validation and test",
    ];
    for passes in [1, 2, 3, 7] {
        for keys in [&keys, &many] {
            assert_eq!(
                leaks(passes, keys),
                (2, expected.map(str::to_owned).to_vec())
            );
        }
    }
}

/// A shard of some blocks, its file and its schema.
struct Written {
    shard: Shard,
    bytes: Vec<u8>,
    schema: SchemaRef,
    store: Store,
}

fn layout(layout: Layout) -> ShardLayout {
    let name = Name::new("d").unwrap();
    ShardLayout {
        block_bytes: 4096,
        ..ShardLayout::new(&name, Hash128::new(7), layout, &ShardConfig::default())
    }
}

fn numbers(features: u32) -> ShardLayout {
    let target = TargetKind::None;
    layout(Layout::Dense { features, target })
}

fn documents() -> ShardLayout {
    layout(Layout::Tokens {
        id: TokenType::U16,
        vocabulary: 500,
    })
}

async fn write(layout: &ShardLayout) -> Written {
    let store = Store::memory();
    let mut writer = SplitWriter::new(&store, layout, Split::Train);
    for i in 0..ROWS {
        let tokens = [u32::from(i); 20];
        let is_documents = matches!(layout.layout, Layout::Tokens { .. });
        let x = [f32::from(i); 3];
        let x = if is_documents { &x[..0] } else { &x[..] };
        let row = Row {
            x,
            image: None,
            boxes: None,
            tokens: is_documents.then_some(&tokens[..usize::from(i % 20)]),
            y: None,
            key: u64::from(i) << 40,
            origin: u64::from(i),
            kept: None,
        };
        writer.push(row).await.unwrap();
    }
    let shard = writer.finish().await.unwrap().remove(0);
    assert!(shard.blocks.len() > 1, "{shard:?}");
    Written {
        bytes: store.get(&shard.path).await.unwrap().to_vec(),
        schema: layout.schema(Split::Train),
        shard,
        store,
    }
}

fn all_keys() -> Vec<u64> {
    (0..ROWS).map(|i| u64::from(i) << 40).collect()
}

impl Written {
    /// Findings in this file for `shard`, which are the same for local and remote stores.
    async fn found(&self, shard: &Shard, bytes: &[u8]) -> (Vec<String>, Vec<u64>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        let local = Store::open(path, &StoreOptions::default()).unwrap();
        assert!(local.local_files().is_some());
        let mut found = Vec::new();
        for store in [local, Store::memory()] {
            let bytes = Bytes::copy_from_slice(bytes);
            store.put(&shard.path, bytes).await.unwrap();
            if let Some(lengths) = &shard.lengths {
                let bytes = self.store.get_opt(&lengths.path).await.unwrap();
                store.put(&lengths.path, bytes.unwrap()).await.unwrap();
            }
            let check = check(store, shard.clone(), Arc::clone(&self.schema));
            found.push(check.await.unwrap());
        }
        assert_eq!(found[0], found[1]);
        found.remove(0)
    }

    async fn problems(&self, shard: &Shard, bytes: &[u8]) -> Vec<String> {
        let (problems, keys) = self.found(shard, bytes).await;
        assert_eq!(keys, Vec::<u64>::new(), "{problems:?}");
        problems
    }

    /// Faults of a file with these bytes and these damaged blocks.
    fn damage(&self, bytes: &[u8], blocks: &[usize]) -> Vec<String> {
        let mut problems = Vec::new();
        let (size, listed) = (bytes.len(), self.shard.bytes);
        if size as u64 != listed {
            problems.push(format!(
                "the file has {size} bytes, the manifest says {listed}"
            ));
        }
        problems.extend(blocks.iter().map(|i| block_damage(*i, &self.shard)));
        let hash = Hash128::of(bytes);
        problems.push(format!(
            "the file's hash is {hash}, the manifest says {}",
            self.shard.hash
        ));
        problems
    }
}

fn block_damage(i: usize, shard: &Shard) -> String {
    let offset = shard.blocks[i].offset;
    format!("block {i} at offset {offset} is damaged: its checksum differs")
}

fn at(block: &Block) -> Range<usize> {
    let start = usize::try_from(block.offset).unwrap();
    start..start + usize::try_from(u64::from(block.metadata_bytes) + block.body_bytes).unwrap()
}

const TABLE: &str = "the footer's block table differs from the manifest's";
const BLOCK_ROWS: &str = "the rows of its blocks are not those the manifest says";
const DOCUMENTS: &str = "its documents are not as long as the manifest says";

#[tokio::test]
async fn an_undamaged_shard_is_read_once_wherever_it_lies() {
    for layout in [numbers(3), documents()] {
        let ours = write(&layout).await;
        let found = ours.found(&ours.shard, &ours.bytes).await;
        assert_eq!(found, (vec![], all_keys()));
        let mut source = Source::Whole(Bytes::from(ours.bytes.clone()).into());
        let is_ours = read::is_ours(&mut source, ours.shard.bytes, &ours.shard, &ours.schema);
        assert!(is_ours.unwrap());
    }
}

#[tokio::test]
async fn a_shard_that_is_not_there_is_named() {
    let ours = write(&numbers(3)).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let local = Store::open(path, &StoreOptions::default()).unwrap();
    for store in [local, Store::memory()] {
        let checked = check(store, ours.shard.clone(), Arc::clone(&ours.schema));
        let expected = vec!["the file does not exist".to_owned()];
        assert_eq!(checked.await.unwrap(), (expected, vec![]));
    }
}

#[tokio::test]
async fn a_flipped_bit_is_found_wherever_it_is() {
    let ours = write(&numbers(3)).await;
    let blocks = &ours.shard.blocks;
    let last = at(&blocks[blocks.len() - 1]).end;
    let mut places: Vec<(usize, Vec<usize>)> = vec![(0, vec![]), (70, vec![])];
    for (i, block) in blocks.iter().enumerate() {
        let range = at(block);
        let inside = [0, 4, 20, range.len() / 2, range.len() - 1];
        places.extend(inside.map(|byte| (range.start + byte, vec![i])));
    }
    let footer = (last..ours.bytes.len()).step_by(11);
    places.extend(footer.map(|byte| (byte, vec![])));
    let trailer = ours.bytes.len() - 10..ours.bytes.len();
    places.extend(trailer.map(|byte| (byte, vec![])));
    for (byte, blocks) in places {
        let mut bytes = ours.bytes.clone();
        bytes[byte] ^= 1 << (byte % 8);
        let expected = ours.damage(&bytes, &blocks);
        assert_eq!(ours.problems(&ours.shard, &bytes).await, expected, "{byte}");
    }
}

#[tokio::test]
async fn a_shard_of_another_length_is_found() {
    let ours = write(&numbers(3)).await;
    let ends: Vec<usize> = ours.shard.blocks.iter().map(|b| at(b).end).collect();
    for length in [0, 5, 100, ends[0], ends[1] - 1, ours.bytes.len() - 1] {
        let bytes = &ours.bytes[..length];
        let outside = (0..ends.len()).filter(|i| ends[*i] > length);
        let expected = ours.damage(bytes, &outside.collect::<Vec<_>>());
        assert_eq!(ours.problems(&ours.shard, bytes).await, expected);
    }
    for more in [1, 10, 3 << 20] {
        let mut bytes = ours.bytes.clone();
        bytes.resize(bytes.len() + more, 7);
        let expected = ours.damage(&bytes, &[]);
        assert_eq!(ours.problems(&ours.shard, &bytes).await, expected);
    }
}

#[tokio::test]
async fn a_table_that_is_not_the_files_is_found_and_asks_for_no_memory() {
    let ours = write(&numbers(3)).await;
    for (offset, body_bytes) in [(u64::MAX, 64), (256, u64::MAX), (1 << 50, 1 << 50)] {
        let mut shard = ours.shard.clone();
        shard.blocks[1].offset = offset;
        shard.blocks[1].body_bytes = body_bytes;
        let expected = [block_damage(1, &shard)];
        assert_eq!(ours.problems(&shard, &ours.bytes).await, expected);
    }
    // Right bytes, which are not those of the blocks.
    let mut shifted = ours.shard.clone();
    shifted.blocks[1].metadata_bytes -= 64;
    shifted.blocks[1].body_bytes += 64;
    let mut fewer = ours.shard.clone();
    fewer.blocks.pop();
    let mut turned = ours.shard.clone();
    turned.blocks.reverse();
    for (shard, expected) in [
        (shifted, vec![TABLE]),
        (fewer, vec![TABLE, BLOCK_ROWS, DOCUMENTS]),
        (turned, vec![TABLE, BLOCK_ROWS]),
    ] {
        let found = ours.found(&shard, &ours.bytes).await;
        let expected: Vec<_> = expected.into_iter().map(str::to_owned).collect();
        assert_eq!(found, (expected, all_keys()));
    }
    let mut shard = ours.shard.clone();
    shard.blocks[0].rows += 1;
    let found = ours.found(&shard, &ours.bytes).await;
    assert_eq!(found, (vec![BLOCK_ROWS.to_owned()], all_keys()));
}

#[tokio::test]
async fn a_shard_of_another_schema_is_found() {
    let mut ours = write(&numbers(3)).await;
    ours.schema = numbers(2).schema(Split::Train);
    assert_eq!(
        ours.problems(&ours.shard, &ours.bytes).await,
        ["its schema is not the one the manifest describes"]
    );
}

#[tokio::test]
async fn documents_are_as_long_as_listed_or_it_is_said() {
    let ours = write(&documents()).await;
    let mut shard = ours.shard.clone();
    shard.blocks[1].tokens = Some(1);
    let found = ours.found(&shard, &ours.bytes).await;
    assert_eq!(found, (vec![DOCUMENTS.to_owned()], all_keys()));

    let lengths = ours.shard.lengths.clone().unwrap();
    let mut bytes = ours.store.get(&lengths.path).await.unwrap().to_vec();
    bytes[4] ^= 3;
    let mut shard = ours.shard.clone();
    shard.lengths.as_mut().unwrap().crc32c = crc32c::crc32c(&bytes);
    ours.store.put(&lengths.path, bytes.into()).await.unwrap();
    let found = ours.found(&shard, &ours.bytes).await;
    assert_eq!(found, (vec![DOCUMENTS.to_owned()], all_keys()));
    let expected = format!(
        "the lengths of its documents, `{}`, are missing or damaged",
        lengths.path
    );
    assert_eq!(ours.problems(&ours.shard, &ours.bytes).await, [expected]);
}

#[tokio::test]
async fn a_shard_that_another_writer_made_is_read_as_its_footer_says() {
    let ours = write(&numbers(3)).await;
    let reader = FileReader::try_new(Cursor::new(&ours.bytes), None).unwrap();
    let options = IpcWriteOptions::try_new(8, false, MetadataVersion::V5).unwrap();
    let mut writer = FileWriter::try_new_with_options(Vec::new(), &ours.schema, options).unwrap();
    for batch in reader {
        writer.write(&batch.unwrap()).unwrap();
    }
    let bytes = writer.into_inner().unwrap();
    let mut shard = ours.shard.clone();
    shard.bytes = bytes.len() as u64;
    shard.hash = Hash128::of(&bytes);
    let places = footer_blocks(&bytes).unwrap();
    for (block, (offset, metadata_bytes, body_bytes)) in shard.blocks.iter_mut().zip(places) {
        (block.offset, block.metadata_bytes, block.body_bytes) =
            (offset, metadata_bytes, body_bytes);
        block.crc32c = crc32c::crc32c(&bytes[at(block)]);
    }
    assert!(!bytes.starts_with(&head_of(&ours.schema).unwrap()));
    let found = ours.found(&shard, &bytes).await;
    assert_eq!(found, (vec![], all_keys()));

    let text = b"this is no Arrow file at all".to_vec();
    shard.bytes = text.len() as u64;
    shard.hash = Hash128::of(&text);
    shard.blocks.clear();
    let problems = ours.problems(&shard, &text).await;
    assert_eq!(problems.len(), 1, "{problems:?}");
    let expected = "the file is not a readable Arrow file: ";
    assert!(problems[0].starts_with(expected), "{problems:?}");
}

#[tokio::test]
async fn no_more_than_a_part_of_a_local_file_is_in_memory() {
    let ours = write(&numbers(3)).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let local = Store::open(path, &StoreOptions::default()).unwrap();
    let mut bytes = ours.bytes.clone();
    bytes.resize(9 << 20, 0);
    local.put("s.arrow", bytes.into()).await.unwrap();
    let mut source = Source::local(local.local_files().unwrap(), "/s.arrow");
    let (problems, _) = read::check(&mut source, &ours.shard, &ours.schema, None).unwrap();
    assert_eq!(problems.len(), 2, "{problems:?}");
    let Source::Local { room, .. } = source else {
        panic!("it is a local file")
    };
    assert!((1 << 20..3 << 20).contains(&room.capacity()));
}
