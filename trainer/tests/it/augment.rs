//! Augmentation, mixing, balance, mixtures, streams and normalisation by the words of a pipeline file.

use std::{path::Path, sync::Arc};

use feedline_loader::{Loader, Target};
use feedline_schemas::{
    config::{StoredImageConfig, TrainConfig, load},
    decode, encode,
    manifest::{Manifest, Split},
    report::{ChosenBy, NormalizedBy, TrainReport},
    transform::{FittedImages, TransformArtefact},
};
use feedline_storage::{Store, StoreOptions, clock::SystemClock};
use feedline_trainer::{
    Context, ExportOptions, Resume, evaluate, export, open_training, settled, train,
};

use crate::{
    dataset::{Kind, publish, publish_rows},
    models::check_resumed_in,
    runs::{block_on, contents, context},
};

/// The `[train]` of a pipeline file with these lines in it.
fn trained_by(lines: &str) -> TrainConfig {
    let text = format!("[pipeline]\nname = \"p\"\n[train]\n{lines}\n");
    load("p.toml", &text, &[])
        .unwrap_or_else(|error| panic!("{error}"))
        .config
        .train
        .unwrap()
}

const ON_IMAGES: &str = "model = { type = \"cnn\", channels = [4], hidden = [8] }\nbatch_size = 60\nepochs = 2\n\
    learning_rate = 0.01\nschedule = { warmup_steps = 2 }\npatience = 0\n";

fn on_images(images: &str) -> TrainConfig {
    trained_by(&format!(
        "{ON_IMAGES}images = {{ height = 8, width = 8{images} }}"
    ))
}

/// Best weights and report of a new training.
fn run(config: &TrainConfig, context: &Context) -> (Vec<u8>, TrainReport) {
    let report = train(config, Resume::Fresh, context).unwrap();
    (tensors(&exported(config, context)), report)
}

fn exported(config: &TrainConfig, context: &Context) -> Vec<u8> {
    let options = ExportOptions::default;
    let found = export(config, None, options(), context).unwrap().file;
    let again = export(config, None, options(), context).unwrap().file;
    assert!(found == again, "an export is the same file each time");
    found
}

/// The numbers of a safetensors file.
fn tensors(file: &[u8]) -> Vec<u8> {
    let header = u64::from_le_bytes(file[..8].try_into().unwrap());
    file[8 + usize::try_from(header).unwrap()..].to_vec()
}

#[test]
fn every_augmentation_of_a_pipeline_file_changes_the_weights_and_resumes_bit_for_bit() {
    let context = context(Kind::Images);
    let (plain, report) = run(&on_images(""), &context);
    assert!(!report.images.unwrap().augmented);
    let mut seen = vec![plain];
    for step in [
        "type = \"random_resized_crop\", scale = [0.5, 1.0]",
        "type = \"random_crop\", padding = 2",
        "type = \"horizontal_flip\"",
        "type = \"vertical_flip\", probability = 1.0",
        "type = \"rotate\", degrees = [-20, 20]",
        "type = \"colour_jitter\", brightness = [0.5, 1.5]",
        "type = \"rand_augment\"",
        "type = \"cutout\", side = 3",
    ] {
        let config = on_images(&format!(", augment = [{{ {step} }}]"));
        let (weights, report) = run(&config, &context);
        assert!(!seen.contains(&weights), "{step} changes nothing");
        assert!(report.images.unwrap().augmented);
        seen.push(weights);
        check_resumed_in(&config, &context);
    }
}

#[test]
fn an_augmentation_that_changes_no_pixel_changes_no_bit() {
    let context = context(Kind::Images);
    let (plain, _) = run(&on_images(""), &context);
    for step in [
        "type = \"rotate\", degrees = [0, 0]",
        "type = \"horizontal_flip\", probability = 0",
        "type = \"colour_jitter\"",
        "type = \"random_resized_crop\", scale = [1, 1], ratio = [1, 1]",
    ] {
        let config = on_images(&format!(", augment = [{{ {step} }}]"));
        assert!(run(&config, &context).0 == plain, "{step}");
    }
    let usual = run(&on_images(", augment = true"), &context).0;
    let written =
        ", augment = [{ type = \"random_resized_crop\" }, { type = \"horizontal_flip\" }]";
    assert!(run(&on_images(written), &context).0 == usual);
}

#[test]
fn mixed_images_train_other_weights_and_are_measured_unmixed() {
    let context = context(Kind::Images);
    let (plain, _) = run(&on_images(""), &context);
    let mut seen = vec![plain];
    for mix in ["mixup = 1.0", "cutmix = 1.0", "mixup = 0.5, cutmix = 0.5"] {
        let config = on_images(&format!(", mix = {{ {mix} }}"));
        let (weights, report) = run(&config, &context);
        assert!(!seen.contains(&weights), "{mix} changes nothing");
        seen.push(weights);
        assert!(report.images.unwrap().mixed);
        let again = evaluate(&config, Split::Test, &context).unwrap();
        assert_eq!(again.metrics, report.test, "{mix}");
        check_resumed_in(&config, &context);
    }
}

#[test]
fn what_the_dataset_does_not_have_cannot_be_augmented_or_mixed() {
    let rows = context(Kind::Classification);
    for (images, key) in [
        ("mix = { mixup = 1.0 }", "train.images.mix"),
        (
            "augment = [{ type = \"cutout\", side = 2 }]",
            "train.images.augment",
        ),
    ] {
        let config = trained_by(&format!("images = {{ {images} }}"));
        let error = train(&config, Resume::Fresh, &rows)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(key) && error.contains("no images"),
            "{error}"
        );
    }
    let text = "[pipeline]\nname = \"p\"\n[train]\nimages = { augment = [{ type = \"rotat\" }] }\n";
    let error = load("p.toml", text, &[]).unwrap_err().to_string();
    assert!(
        error.contains("train.images.augment.0") && error.contains("rotate"),
        "{error}"
    );
}

/// Adds the statistics of a build that decodes images to a dataset without.
async fn add_statistics(store: &Store, mean: [f64; 3], deviation: [f64; 3]) {
    let path = "manifest-000001.json";
    let mut manifest: Manifest = decode(path, &store.get(path).await.unwrap()).unwrap();
    let found = store.get(&manifest.transform.path).await.unwrap();
    let artefact: TransformArtefact = decode("transform", &found).unwrap();
    let artefact = artefact.with_images(FittedImages {
        column: "image".into(),
        prepared: StoredImageConfig::default(),
        pixels: 64,
        mean,
        deviation,
    });
    manifest.transform.hash = artefact.hash;
    manifest.transform.path = format!("transform-{}.json", artefact.hash.short());
    let bytes = encode(&artefact).into();
    store.put(&manifest.transform.path, bytes).await.unwrap();
    manifest.fingerprint = manifest.compute_fingerprint();
    store.put(path, encode(&manifest).into()).await.unwrap();
}

#[test]
fn images_are_normalized_by_the_training_split_unless_something_else_is_said() {
    let context = context(Kind::Images);
    let (of_imagenet, report) = run(&on_images(""), &context);
    assert_eq!(report.images.unwrap().normalized_by, NormalizedBy::Imagenet);
    block_on(add_statistics(
        &context.dataset,
        [0.25, 0.5, 0.75],
        [0.125, 0.25, 0.5],
    ));
    let (of_dataset, report) = run(&on_images(""), &context);
    let found = report.images.unwrap();
    assert_eq!(found.normalized_by, NormalizedBy::Dataset);
    assert_eq!(
        (found.mean, found.deviation),
        ([0.25, 0.5, 0.75], [0.125, 0.25, 0.5])
    );
    assert!(of_dataset != of_imagenet);
    let given = ", mean = [0.25, 0.5, 0.75], deviation = [0.125, 0.25, 0.5]";
    let written = on_images(given);
    let error = train(&written, Resume::Fresh, &context).unwrap_err();
    assert!(
        error.to_string().contains("already has checkpoints"),
        "the same run: {error}"
    );
    let (imagenet, report) = run(&on_images(", normalize = \"imagenet\""), &context);
    assert_eq!(report.images.unwrap().normalized_by, NormalizedBy::Imagenet);
    assert!(imagenet == of_imagenet);

    // Weights of a run bring their statistics along.
    let weights = Store::memory();
    let file = exported(&on_images(", normalize = \"imagenet\""), &context);
    block_on(weights.put("w.safetensors", file.into())).unwrap();
    let context = Context {
        weights: Some(weights),
        ..context
    };
    let config = trained_by(&format!(
        "{ON_IMAGES}images = {{ height = 8, width = 8 }}\ninit = {{ from = \"w.safetensors\" }}"
    ));
    let report = train(&config, Resume::Fresh, &context).unwrap();
    let found = report.images.unwrap();
    assert_eq!(found.normalized_by, NormalizedBy::Init);
    assert_eq!(
        found.mean.map(f32::to_bits),
        [0.485_f32, 0.456, 0.406].map(f32::to_bits)
    );
}

const ON_ROWS: &str = "model = { hidden = [8] }\nbatch_size = 60\nepochs = 2\nlearning_rate = 0.01\n\
    schedule = { warmup_steps = 2 }\npatience = 0\n";

fn opened(config: &TrainConfig, dataset: &Store) -> Loader {
    block_on(async {
        let config = settled(config, dataset).await.unwrap();
        open_training(&config, dataset, Arc::new(SystemClock))
            .await
            .unwrap()
    })
}

/// Rows of each class in an epoch.
fn class_counts(loader: &Loader) -> [usize; 2] {
    let mut counts = [0; 2];
    for batch in loader.batches().unwrap() {
        let batch = batch.unwrap();
        let Target::Classification(y) = batch.y() else {
            panic!("{:?}", batch.y())
        };
        y.iter().for_each(|id| counts[usize::from(*id == 1)] += 1);
    }
    counts
}

#[test]
fn balanced_classes_come_equally_often_or_by_their_shares() {
    let context = context(Kind::Classification);
    let of = |balance: &str| trained_by(&format!("{ON_ROWS}loader = {{ {balance} }}"));
    let [no, yes] = class_counts(&opened(&of(""), &context.dataset));
    assert!(no + yes == 300 && no.abs_diff(yes) > 50, "{no} and {yes}");
    let equal = of("balance = \"equal\"");
    assert_eq!(class_counts(&opened(&equal, &context.dataset)), [150, 150]);
    let shares = of("balance = { no = 3 }");
    assert_eq!(class_counts(&opened(&shares, &context.dataset)), [225, 75]);

    let (plain, _) = run(&of(""), &context);
    let (balanced, report) = run(&equal, &context);
    assert!(balanced != plain);
    check_resumed_in(&equal, &context);
    // Each row once is what is measured.
    let again = evaluate(&equal, Split::Test, &context).unwrap();
    assert_eq!((again.rows, again.metrics), (100, report.test));

    let error = train(&of("balance = { nope = 2 }"), Resume::Fresh, &context).unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("`train.loader.balance`: the dataset has no class `nope`"),
        "{error}"
    );
}

fn folder(path: &Path) -> Store {
    Store::open(path.to_str().unwrap(), &StoreOptions::default()).unwrap()
}

/// Two datasets of a kind in a folder, and the context of a training on the first.
fn two(path: &Path, kinds: [Kind; 2]) -> Context {
    let [first, second] = ["first", "second"].map(|name| folder(&path.join(name)));
    block_on(async {
        publish(&first, kinds[0]).await;
        publish_rows(&second, kinds[1], [120, 10, 10]).await;
    });
    Context {
        dataset: first,
        runs: Store::memory().child("train"),
        ..context(kinds[0])
    }
}

fn mixed(path: &Path, rest: &str) -> TrainConfig {
    let second = path.join("second");
    trained_by(&format!(
        "{ON_ROWS}[train.mixture]\nsources = [{{ dataset = \"{}\", weight = 0.3 }}, {{ weight = 0.7 }}]\n{rest}",
        second.display()
    ))
}

#[test]
fn each_dataset_of_a_mixture_gives_its_share_of_the_batches() {
    let path = tempfile::tempdir().unwrap();
    let context = two(path.path(), [Kind::Regression; 2]);
    let config = mixed(path.path(), "stratified = true\nsamples_per_epoch = 300");
    let loader = opened(&config, &context.dataset);
    let mut before = vec![0, 0];
    for batch in loader.epoch(loader.start_state()).unwrap() {
        let given = loader.given(batch.unwrap().state().clone()).unwrap();
        let here: Vec<u64> = given
            .iter()
            .zip(&before)
            .map(|(now, before)| now - before)
            .collect();
        assert_eq!(here, [42, 18], "seven and three of ten");
        before = given;
    }
    let (weights, report) = run(&config, &context);
    let given: Vec<_> = report
        .mixture
        .iter()
        .map(|s| (s.given, s.samples))
        .collect();
    assert_eq!(given, [(420, 300), (180, 120)]);
    let shares: Vec<f64> = report.mixture.iter().map(|s| s.share).collect();
    assert!((shares[0] - 0.7).abs() < 1e-12 && (shares[1] - 0.3).abs() < 1e-12);
    assert!(report.mixture[1].dataset.ends_with("second"));
    let (alone, _) = run(&trained_by(ON_ROWS), &context);
    assert!(weights != alone);
    check_resumed_in(&config, &context);
    // Test rows are those of the dataset that is trained on.
    let again = evaluate(&config, Split::Test, &context).unwrap();
    assert_eq!((again.rows, again.metrics), (100, report.test));
    let records = contents(&context.runs);
    let record = records
        .iter()
        .filter(|(path, _)| path.ends_with("run.json"))
        .map(|(_, bytes)| String::from_utf8_lossy(bytes))
        .find(|text| text.contains("\"given\""));
    assert!(record.is_some_and(|text| text.contains("fingerprint")));
}

#[test]
fn a_mixture_is_named_by_what_its_datasets_hold_and_not_by_their_places() {
    let path = tempfile::tempdir().unwrap();
    let context = two(path.path(), [Kind::Regression; 2]);
    let config = mixed(path.path(), "");
    run(&config, &context);
    std::fs::rename(path.path().join("second"), path.path().join("moved")).unwrap();
    let text = format!("{:?}", path.path().join("moved"));
    let moved = trained_by(&format!(
        "{ON_ROWS}[train.mixture]\nsources = [{{ dataset = {text}, weight = 0.3 }}, {{ weight = 0.7 }}]"
    ));
    let same = evaluate(&moved, Split::Test, &context).unwrap();
    assert_eq!(same.run.unwrap().chosen, ChosenBy::Configuration);
    let other = folder(&path.path().join("moved"));
    block_on(publish_rows(&other, Kind::Regression, [130, 10, 10]));
    let other = evaluate(&moved, Split::Test, &context).unwrap();
    assert_eq!(other.run.unwrap().chosen, ChosenBy::Default);
}

#[test]
fn datasets_in_which_a_number_means_something_else_are_not_mixed() {
    let path = tempfile::tempdir().unwrap();
    for (kinds, reason) in [
        ([Kind::Regression, Kind::Classification], "its classes are"),
        ([Kind::Regression, Kind::None], "its shards hold"),
        ([Kind::Classification, Kind::Images], "its shards hold"),
    ] {
        let context = two(path.path(), kinds);
        let config = mixed(path.path(), "");
        let error = train(&config, Resume::Fresh, &context)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("`train.mixture.sources.0.dataset`"),
            "{error}"
        );
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn a_stream_of_tokens_predicts_the_first_id_of_a_document_and_resumes_bit_for_bit() {
    let context = context(Kind::Tokens);
    let of = |pack: &str| {
        trained_by(&format!(
            "model = {{ type = \"transformer\", layers = 1, width = 16, heads = 2, context = 24 }}\nbatch_size = 8\n\
             epochs = 2\nlearning_rate = 0.02\nschedule = {{ warmup_steps = 2 }}\npatience = 0\nloader = {{ pack = \"{pack}\" }}"
        ))
    };
    let fill = of("fill");
    let (of_documents, _) = run(&fill, &context);
    let stream = of("stream");
    let (of_stream, _) = run(&stream, &context);
    assert!(of_stream != of_documents);
    // Documents of 5 to 11 ids: all but the first id of all are predicted, and not only all but the first of each.
    let rows = |config| evaluate(config, Split::Test, &context).unwrap().rows;
    assert!(
        rows(&stream) > rows(&fill),
        "{} and {}",
        rows(&stream),
        rows(&fill)
    );
    check_resumed_in(&stream, &context);
}

#[test]
fn a_checkpoint_is_written_after_a_thousand_steps_of_an_epoch() {
    let context = context(Kind::Regression);
    block_on(publish_rows(
        &context.dataset,
        Kind::Regression,
        [1_010, 20, 20],
    ));
    let config = trained_by("model = { hidden = [2] }\nbatch_size = 1\nepochs = 1\n");
    run(&config, &context);
    let files = contents(&context.runs);
    let steps = files.keys().filter(|path| path.contains("checkpoints/"));
    let steps: Vec<_> = steps.collect();
    assert_eq!(steps.len(), 2, "{steps:?}");
    assert!(
        steps[0].contains("1000") && steps[1].contains("1010"),
        "{steps:?}"
    );
}
