//! Checkpoints that something has damaged. `FEEDLINE_MUTATIONS` says how many; 200 without it.

use safetensors::tensor::TensorView;

use super::*;
use crate::{
    Resume,
    checkpoint::run_folder::runtime,
    random::Stream,
    testing::{contents, train},
};
use feedline_schemas::{
    config::{AverageConfig, TrainConfig},
    ids::Seed,
};
use feedline_storage::Store;

/// Mutations of a file.
const KINDS: [&str; 9] = [
    "flipped bits",
    "cut",
    "tensor missing",
    "tensor of another step",
    "two tensors swapped",
    "header of another step",
    "header edited",
    "bytes appended",
    "a block of zeros",
];

/// Random numbers of one mutation.
struct Random(Stream, u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.1 += 1;
        let word = self.0.uniform(self.1) * crate::float_casts::exact_len(bound);
        num(word).min(bound - 1)
    }
}

/// A whole number that is not negative.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is below the length of a small file"
)]
fn num(value: f64) -> usize {
    value as usize
}

/// The tensors of a file, its header, and back.
fn taken_apart(bytes: &[u8]) -> (Vec<(String, TensorView<'_>)>, String) {
    let (_, metadata) = SafeTensors::read_metadata(bytes).unwrap();
    let header = metadata.metadata().as_ref().unwrap()["feedline"].clone();
    (SafeTensors::deserialize(bytes).unwrap().tensors(), header)
}

fn put_together(tensors: Vec<(String, TensorView<'_>)>, header: String) -> Vec<u8> {
    let metadata = [("feedline".to_owned(), header)].into();
    safetensors::serialize(tensors, Some(metadata)).unwrap()
}

/// `bytes` after something has happened to it; `other` is the file of an earlier step.
fn mutated(kind: &str, bytes: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    let mut changed = bytes.to_vec();
    let (mut tensors, header) = taken_apart(bytes);
    let (others, other_header) = taken_apart(other);
    let chosen = random.below(tensors.len());
    match kind {
        "flipped bits" => {
            for _ in 0..=random.below(8) {
                changed[random.below(bytes.len())] ^= 1 << random.below(8);
            }
            changed
        }
        "cut" => {
            changed.truncate(random.below(bytes.len()));
            changed
        }
        "tensor missing" => {
            tensors.remove(chosen);
            put_together(tensors, header)
        }
        "tensor of another step" => {
            let name = tensors[chosen].0.clone();
            let of_other = others.into_iter().find(|(other, _)| *other == name);
            match of_other {
                Some(tensor) => tensors[chosen] = tensor,
                // The best weights may be there in one of them only.
                None => drop(tensors.remove(chosen)),
            }
            put_together(tensors, header)
        }
        "two tensors swapped" => {
            let same = |i: &usize| {
                let (a, b) = (&tensors[*i].1, &tensors[chosen].1);
                a.shape() == b.shape() && a.data() != b.data()
            };
            let alike: Vec<usize> = (0..tensors.len()).filter(same).collect();
            match alike.as_slice() {
                [] => drop(tensors.remove(chosen)),
                _ => {
                    let with = alike[random.below(alike.len())];
                    let name = tensors[with].0.clone();
                    tensors[with].0 = std::mem::replace(&mut tensors[chosen].0, name);
                }
            }
            put_together(tensors, header)
        }
        "header of another step" => put_together(tensors, other_header),
        "header edited" => {
            let digits: Vec<usize> = (0..header.len())
                .filter(|i| header.as_bytes()[*i].is_ascii_digit())
                .collect();
            let mut header = header.into_bytes();
            let place = digits[random.below(digits.len())];
            header[place] = b'0' + (header[place] - b'0' + 1) % 10;
            put_together(tensors, String::from_utf8(header).unwrap())
        }
        "bytes appended" => {
            let more = random.below(64) + 1;
            changed.extend((0..more).map(|i| i.to_le_bytes()[0]));
            changed
        }
        _ => {
            let begin = random.below(bytes.len());
            let end = (begin + 64 + random.below(512)).min(bytes.len());
            changed[begin..end].fill(0);
            changed
        }
    }
}

#[test]
fn no_damaged_checkpoint_loads_and_a_good_one_before_it_is_found() {
    let asked = std::env::var_os("FEEDLINE_MUTATIONS");
    let count: usize = asked.map_or(200, |text| text.to_string_lossy().parse().unwrap());
    let mut config: TrainConfig = config();
    (config.checkpoint.every_steps, config.checkpoint.keep) = (1, 99);
    config.average = Some(AverageConfig::default());
    let (toy, store) = (regression(64), Store::memory());
    train(&config, &toy, Resume::Fresh, &store).unwrap();
    let files: Vec<(String, Vec<u8>)> = contents(&store)
        .into_iter()
        .filter(|(path, _)| path.starts_with(FOLDER))
        .collect();
    assert_eq!(files.len(), 12);

    let (plan, runtime) = (plan(&config, &toy), runtime().unwrap());
    let engine = engine(&plan);
    let open = |store: Store| {
        let folder = RunFolder::new(runtime.handle().clone(), store);
        let state = plan.settings.optimizer_state(&engine.trained());
        Checkpoints::new(folder, engine.model().parameters(), state, &config)
    };
    let whole = open(store);
    let (mut refused, mut unchanged) = (BTreeMap::new(), 0);
    let mut number = 0;
    while refused.values().sum::<usize>() < count {
        number += 1;
        let mut random = Random(Stream::initialization(Seed::new(number)), 0);
        let kind = KINDS[random.below(KINDS.len())];
        // The newest is damaged, or the two newest.
        let (last, damaged) = (3 + random.below(files.len() - 3), 1 + random.below(2));
        let found = Store::memory();
        let mut same = false;
        for (i, (path, bytes)) in files.iter().enumerate().take(last + 1) {
            let bytes = if i + damaged > last {
                let other = &files[random.below(last - damaged + 1)].1;
                let changed = mutated(kind, bytes, other, &mut random);
                same |= changed == *bytes;
                changed
            } else {
                bytes.clone()
            };
            runtime.block_on(found.put(path, bytes.into())).unwrap();
        }
        let newest = open(found).newest(|snapshot| plan.accepts(snapshot));
        let newest = newest.unwrap().unwrap();
        let step = newest.header.step;
        let good = whole.newest_up_to(step, |_| Ok(())).unwrap().unwrap();
        assert!(newest == good, "{number}: {kind} gave other numbers");
        let expected = last - damaged + 1;
        if step.get() == expected as u64 {
            *refused.entry(kind).or_insert(0) += 1;
        } else {
            assert!(same, "{number}: {kind} was loaded");
            unchanged += 1;
        }
    }
    println!("refused: {refused:?}; came out as they were: {unchanged}");
    assert!(unchanged * 50 <= count, "{unchanged}");
}
