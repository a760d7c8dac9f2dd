use std::{collections::BTreeSet, fs, os::unix::fs::MetadataExt as _, path::Path, sync::Arc};

use arrow::{
    array::{
        ArrayRef, AsArray, FixedSizeBinaryArray, Float64Array, RecordBatch, UInt8Array, UInt64Array,
    },
    datatypes::{DataType, Field, Schema, UInt64Type},
};
use feedline_schemas::{ids::Seed, manifest::Split};

use super::super::{Sizes, SpillWriter, SpilledRows, column};
use crate::{
    operators::split::{ShuffleKey, code},
    schema::system_columns,
    staging::spill::form::Form,
};

/// Rows of the training split with 64 numbers each.
const ROWS: u64 = 2000;
const WIDTH: usize = 64;

fn staged(folder: &Path) -> SpilledRows {
    let names: BTreeSet<String> = (0..WIDTH).map(|i| format!("n{i:02}")).collect();
    let mut fields = vec![
        Field::new(system_columns::HASH, DataType::FixedSizeBinary(16), false),
        Field::new(system_columns::ORIGIN, DataType::UInt64, false),
        Field::new(system_columns::SPLIT, DataType::UInt8, false),
    ];
    let numbers = names.iter();
    fields.extend(numbers.map(|name| Field::new(name, DataType::Float64, true)));
    let schema = Arc::new(Schema::new(fields));
    let form = Form::new(&schema, &names, &names.iter().map(String::as_str).collect());
    let sizes = Sizes {
        gathered: 1 << 20,
        bits: 1,
    };
    let order = ShuffleKey::new(Seed::new(3));
    let paths = Split::ALL.map(|split| folder.join(format!("{split}.arrow")));
    let mut writer = SpillWriter::new(form.clone(), order.clone(), sizes, paths);
    let hash = |row: u64| {
        [
            [0; 8],
            row.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes(),
        ]
    };
    let hashes = (0..ROWS).map(|row| hash(row).concat());
    let hashes = FixedSizeBinaryArray::try_from_iter(hashes).unwrap();
    let train = UInt8Array::from_value(code(Split::Train), usize::try_from(ROWS).unwrap());
    let mut columns: Vec<ArrayRef> = vec![
        Arc::new(hashes),
        Arc::new((0..ROWS).collect::<UInt64Array>()),
        Arc::new(train),
    ];
    for i in 0..u8::try_from(WIDTH).unwrap() {
        let cells = (0..ROWS).map(|row| f64::from(u32::try_from(row).unwrap()) + f64::from(i));
        columns.push(Arc::new(cells.collect::<Float64Array>()));
    }
    let rows = RecordBatch::try_new(schema, columns).unwrap();
    writer.push(&rows).unwrap();
    let mut pieces = SpilledRows::new(form, order, sizes);
    pieces.add(writer.finish().unwrap());
    pieces
}

fn disk(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).unwrap();
    let blocks = files.map(|file| file.unwrap().metadata().unwrap().blocks());
    blocks.sum::<u64>() * 512
}

fn read(pieces: &SpilledRows, bucket: usize, last: bool) -> (Vec<u64>, Vec<f64>) {
    let ordered = pieces.bucket(Split::Train, bucket, last).unwrap();
    let origins = column(&ordered.rows, system_columns::ORIGIN).as_primitive::<UInt64Type>();
    let mut cells = Vec::new();
    ordered.numbers.fill(1, 0..origins.len(), &mut cells);
    (origins.values().to_vec(), cells)
}

#[test]
fn what_is_read_for_the_last_time_takes_no_disk() {
    let folder = tempfile::tempdir().unwrap();
    let pieces = staged(folder.path());
    let before = disk(folder.path());
    assert!(before > ROWS * WIDTH as u64 * 4);
    let first = read(&pieces, 0, false);
    let second = read(&pieces, 1, false);
    assert_eq!(first.0.len() + second.0.len(), 2000);
    assert_eq!(disk(folder.path()), before, "it may be read again");
    assert_eq!(read(&pieces, 0, true), first);
    let half = disk(folder.path());
    assert!(half < before * 2 / 3, "{half} of {before}");
    // What is not given up is as it was.
    assert_eq!(read(&pieces, 1, true), second);
    let rest = disk(folder.path());
    // Pages that two pieces share stay, and the heads and ends of files.
    assert!(rest < before / 10, "{rest} of {before}");
}
