//! Documents of every format and version, in `samples/`.
//!
//! `FORMAT-VERSION.json` of the version that this build writes is the encoding of the value below; a test run with
//! `FEEDLINE_WRITE_SNAPSHOTS=1` writes it. The files of older versions are of the builds that wrote them.

use std::{collections::BTreeMap, fmt::Debug, fs, path::Path};

use crate::{
    ContractError, Versioned,
    checkpoint::{
        BestEpoch, CheckpointHeader, EarlyStopping, GuardState, Plateau, RunningLoss, WorstSample,
    },
    commit::CommitEntry,
    config::{StoredImageConfig, TrainConfig},
    decode, encode,
    export::{ExportFormat, ExportRecord, ExportState, ExportedFile, ExportedRows},
    failures::FailedRuns,
    format::FormatTag,
    ids::{Epoch, Hash128, Name, Seed, Sequence, Step, TableName},
    lease::LeaseEntry,
    loader_state::{LastBatch, LoaderState, SampleUnit},
    log_snapshot::{LogPart, LogSnapshot, LogSums},
    manifest::{
        Addition, Block, DatasetCounts, KeptColumn, Layout, Manifest, NearImageCounts, Shard,
        SourceReference, Split, SplitContent, SplitShards, TargetKind,
    },
    performance::{GpuUse, MeanAndPeak, Performance, StepTime},
    profile::{
        CategoricalCells, CategoricalProfile, DatasetProfile, NumericCells, NumericProfile,
        ProfileReference,
    },
    record::ColumnType,
    report::{ImagesReport, NormalizedBy, Warning},
    run::{RunRecord, RunState},
    run_warnings::RunWarnings,
    transform::{
        CategoryEncoding, Feature, FittedCategories, FittedImages, FittedImpute, FittedStandardize,
        FittedStep, FittedTarget, ImputeStatistic, InputColumn, InputKind, NumberSigns,
        TransformArtefact, TransformReference,
    },
};

fn path(tag: &FormatTag, version: u32) -> std::path::PathBuf {
    let name = tag.format.strip_prefix("feedline.").unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("samples");
    folder.join(format!("{name}-{version}.json"))
}

fn read(tag: &FormatTag, version: u32) -> String {
    let path = path(tag, version);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Checks the sample of the version that this build writes, and documents of all other versions.
fn check<T: Versioned + PartialEq + Debug>(sample: &T) {
    let tag = T::TAG;
    let path = path(tag, tag.version);
    let text = String::from_utf8(encode(sample)).unwrap();
    if std::env::var_os("FEEDLINE_WRITE_SNAPSHOTS").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        found,
        text,
        "{} has drifted. Would a build that reads version {} refuse this text? Then raise the version first. Run the test \
         with FEEDLINE_WRITE_SNAPSHOTS=1 and commit the file",
        path.display(),
        tag.version
    );
    assert_eq!(&decode::<T>("sample", found.as_bytes()).unwrap(), sample);
    check_versions::<T>(&found);
}

/// Checks that `text`, a document of the current version, is refused as one of any version that this build does not read.
fn check_versions<T: Versioned + Debug>(text: &str) {
    let tag = T::TAG;
    let of_version = |version: u32| {
        let own = format!("\"version\": {},", tag.version);
        let other = text.replacen(&own, &format!("\"version\": {version},"), 1);
        let other = other.replacen(
            &format!("\"min_reader\": {}", tag.version),
            &format!("\"min_reader\": {version}"),
            1,
        );
        decode::<T>("sample.json", other.as_bytes())
    };
    let newer = of_version(tag.version + 1).unwrap_err();
    assert!(
        matches!(newer, ContractError::Unsupported { .. }),
        "{newer}"
    );
    let newer = newer.to_string();
    assert!(
        newer.contains("use the feedline release that wrote it"),
        "{newer}"
    );
    for version in 1..tag.oldest {
        let older = of_version(version).unwrap_err();
        assert!(matches!(older, ContractError::Outdated { .. }), "{older}");
        let older = older.to_string();
        assert!(
            older.contains("written by a development version"),
            "{older}"
        );
        assert!(older.ends_with(tag.remedy), "{older}");
    }
}

/// Checks that the sample of a development version is refused as one.
fn check_outdated<T: Versioned + Debug>(version: u32) {
    let text = read(T::TAG, version);
    let error = decode::<T>("sample.json", text.as_bytes()).unwrap_err();
    assert!(matches!(error, ContractError::Outdated { .. }), "{error}");
}

#[test]
fn samples_of_the_current_versions_load_and_those_of_others_are_refused_with_the_way_out() {
    check(&manifest());
    check(&transform());
    check(&profile());
    check(&checkpoint());
    check(&run());
    check(&LoaderState::of_evaluation());
    check(&failures());
    check(&run_warnings());
    check(&export());
    check(&log_snapshot());
    check_versions::<CommitEntry>(&read(CommitEntry::TAG, 3));
    check_versions::<LeaseEntry>(&read(LeaseEntry::TAG, 1));
}

#[test]
fn documents_of_development_builds_are_refused_as_such() {
    check_outdated::<Manifest>(2);
    check_outdated::<TransformArtefact>(1);
    check_outdated::<CheckpointHeader>(2);
    check_outdated::<RunRecord>(1);
    check_outdated::<LogSnapshot>(1);
}

#[test]
fn older_versions_that_are_still_read_load() {
    let text = read(LoaderState::TAG, 1);
    let state: LoaderState = decode("sample", text.as_bytes()).unwrap();
    assert_eq!((state.order_version, state.extent_bytes), (1, 0));
    assert_eq!(
        (state.last_batch, state.unit),
        (LastBatch::Keep, SampleUnit::Rows)
    );
    assert_eq!(state.mixture, None);
    for version in [1, 2] {
        let text = read(CommitEntry::TAG, version);
        decode::<CommitEntry>("sample", text.as_bytes()).unwrap();
    }
}

const fn hash(value: u128) -> Hash128 {
    Hash128::new(value)
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn log_snapshot() -> LogSnapshot {
    let text = read(CommitEntry::TAG, 3);
    let entry: CommitEntry = decode("sample", text.as_bytes()).unwrap();
    LogSnapshot {
        format: LogSnapshot::TAG.format.into(),
        version: LogSnapshot::TAG.version,
        min_reader: LogSnapshot::TAG.version,
        source: entry.source.clone(),
        sequence: entry.sequence,
        entry_hash: hash(1),
        parts: vec![LogPart {
            path: "snapshot-parts/00000000000000000000-00000000000000000005-0000000000000002.ndjson.zst"
                .into(),
            first: Sequence::new(0),
            last: entry.sequence,
            rows: 900,
            bytes: 700,
            hash: hash(2),
            sums: LogSums::default().with(std::slice::from_ref(&entry)),
            slices: None,
        }],
        newest: vec![entry],
        tidied: Sequence::new(4),
        frontier: Vec::new(),
        validators: Vec::new(),
    }
}

fn manifest() -> Manifest {
    let source = SourceReference {
        name: TableName::from(name("photos")),
        sequence: Sequence::new(3),
        entry_hash: hash(1),
        licence: Some("CC0-1.0".into()),
    };
    let counts = DatasetCounts {
        rows_in: 12,
        duplicates: 1,
        rejected: BTreeMap::from([("image_truncated".to_owned(), 1)]),
        train: 10,
        near_images: Some(NearImageCounts {
            images: 11,
            ..NearImageCounts::default()
        }),
        ..DatasetCounts::default()
    };
    let mut manifest = Manifest {
        format: Manifest::TAG.format.into(),
        version: Manifest::TAG.version,
        fingerprint: hash(0),
        dataset: name("photos"),
        input_hash: hash(2),
        columns_hash: Some(hash(3)),
        layout: Layout::Images {
            target: TargetKind::Classification { classes: 2 },
        },
        transform: TransformReference {
            path: "transform-0000000000000004.json".into(),
            hash: hash(4),
            dataset: name("photos"),
        },
        shuffle_seed: Some(Seed::new(0)),
        sources: vec![source.clone()],
        text: None,
        near_dup: None,
        counts,
        splits: vec![SplitShards {
            split: Split::Train,
            rows: 10,
            shards: vec![shard()],
            table: None,
        }],
        rejects: vec!["rejects/000001.ndjson".into()],
        tokens: None,
        edit: None,
        kept: vec![KeptColumn {
            name: "url".into(),
            r#type: ColumnType::Utf8,
        }],
        profile: Some(ProfileReference {
            path: "profile-0000000000000005.json".into(),
            hash: hash(5),
        }),
        additions: vec![Addition {
            behind: vec![source],
            rows_in: 1,
            rows: [1, 0, 0],
            first_shards: [1, 0, 0],
        }],
        dropped_columns: BTreeMap::from([("id".to_owned(), "every value is another".to_owned())]),
        warnings: vec![
            Warning::new("rare_classes", "2 classes have 1 row").with_key("dataset.classes"),
        ],
        naive: Vec::new(),
        target: None,
        other_targets: Vec::new(),
    };
    manifest.fingerprint = manifest.compute_fingerprint();
    manifest
}

fn shard() -> Shard {
    Shard {
        path: "shards/train/00000-0000000000000006.arrow".into(),
        rows: 10,
        bytes: 4096,
        hash: hash(6),
        blocks: vec![Block {
            offset: 512,
            metadata_bytes: 320,
            body_bytes: 3072,
            rows: 10,
            crc32c: 8,
            tokens: None,
        }],
        head_crc32c: Some(7),
        lengths: None,
    }
}

fn transform() -> TransformArtefact {
    let feature = |name: &str, column: &str, category| Feature {
        name: name.into(),
        column: column.into(),
        category,
    };
    let artefact = TransformArtefact {
        format: TransformArtefact::TAG.format.into(),
        version: TransformArtefact::TAG.version,
        hash: hash(0),
        fitted_rows: 10,
        null_values: vec!["NA".into()],
        missing_values: vec![-200.0],
        inputs: vec![
            InputColumn {
                name: "size".into(),
                kind: InputKind::Numeric,
            },
            InputColumn {
                name: "kind".into(),
                kind: InputKind::Categorical,
            },
        ],
        steps: fitted_steps(),
        features: vec![
            feature("size", "size", None),
            feature("kind=a", "kind", Some(2)),
            feature("kind=b", "kind", Some(3)),
        ],
        target: Some(FittedTarget::Regression {
            column: "price".into(),
            mean: 9.0,
            scale: 3.0,
            offset: 9.0,
        }),
        other_targets: Vec::new(),
        characters: None,
        images: None,
        tokens: None,
        signs: Some(NumberSigns {
            decimal: ',',
            thousands: Some('.'),
        }),
    };
    artefact.with_images(FittedImages {
        column: "photo".into(),
        prepared: StoredImageConfig::default(),
        pixels: 100,
        mean: [0.5, 0.4, 0.3],
        deviation: [0.2, 0.2, 0.2],
    })
}

/// Steps fitted on a column of numbers and one of categories.
fn fitted_steps() -> Vec<FittedStep> {
    let impute = FittedImpute {
        name: "size".into(),
        value: 2.5,
        statistic: ImputeStatistic::Median,
        missing: 1,
        indicator: false,
    };
    let standardize = FittedStandardize {
        name: "size".into(),
        mean: 2.5,
        deviation: 2.0,
        scale: 2.0,
        constant: false,
        groups: None,
    };
    let kind = FittedCategories::new(
        "kind".into(),
        vec!["a".into(), "b".into()],
        vec![6, 4],
        CategoryEncoding::OneHot,
    );
    vec![
        FittedStep::Impute {
            columns: vec![impute],
        },
        FittedStep::Standardize {
            columns: vec![standardize],
        },
        FittedStep::Categories {
            columns: vec![kind],
        },
    ]
}

fn profile() -> DatasetProfile {
    let mut profile = DatasetProfile {
        format: DatasetProfile::TAG.format.into(),
        version: DatasetProfile::TAG.version,
        hash: hash(0),
        numeric: vec![NumericProfile {
            name: "size".into(),
            target: false,
            edges: vec![1.5],
            range: Some([1.0, 2.0]),
            splits: vec![NumericCells {
                split: Split::Train,
                finite: 9,
                missing: 1,
                low_infinite: 0,
                high_infinite: 0,
                min: Some(1.0),
                max: Some(2.0),
                mean: Some(1.5),
                deviation: Some(0.5),
                bins: vec![5, 4],
                histogram: vec![5, 4],
                outside: None,
            }],
            after: None,
        }],
        categorical: vec![CategoricalProfile {
            name: "kind".into(),
            target: false,
            values: vec!["a".into(), "b".into()],
            splits: vec![CategoricalCells {
                split: Split::Train,
                missing: 0,
                distinct: 2,
                counts: vec![6, 4],
                other: 0,
            }],
        }],
        missing: Vec::new(),
    };
    profile.hash = profile.compute_hash();
    profile
}

fn best() -> BestEpoch {
    BestEpoch {
        epoch: Epoch::new(0),
        step: Step::new(4),
        loss: 0.4,
        metrics: BTreeMap::from([("rmse".to_owned(), 1.9)]),
        baseline: BTreeMap::from([("rmse".to_owned(), 5.0)]),
        worst: vec![WorstSample {
            loss: 3.0,
            key: "00000000000000ff".into(),
            source: Some(0),
            sequence: Some(Sequence::new(1)),
            row: Some(7),
            target: None,
            prediction: None,
        }],
        diagnostics: None,
    }
}

fn checkpoint() -> CheckpointHeader {
    CheckpointHeader {
        format: CheckpointHeader::TAG.format.into(),
        version: CheckpointHeader::TAG.version,
        step: Step::new(4),
        epoch: Epoch::new(1),
        seed: Seed::new(0),
        loader: LoaderState::of_training(),
        fingerprint: hash(7),
        init: None,
        layout: Layout::Dense {
            features: 3,
            target: TargetKind::Regression,
        },
        classes: Vec::new(),
        features: ["size", "kind=a", "kind=b"].map(String::from).to_vec(),
        targets: Vec::new(),
        text_ids: None,
        transform: None,
        config: TrainConfig::default(),
        early_stopping: EarlyStopping {
            best: Some(best()),
            evaluations_since_best: 0,
            finished: false,
        },
        plateau: Plateau::default(),
        loss_scale: None,
        state_shards: Vec::new(),
        running: RunningLoss::default(),
        guard: GuardState::default(),
        tensor_hash: hash(8),
        header_hash: hash(9),
    }
}

fn run() -> RunRecord {
    RunRecord {
        format: RunRecord::TAG.format.into(),
        version: RunRecord::TAG.version,
        name: "0123456789abcdef".into(),
        program: "0.1.0".into(),
        dataset: "s3://bucket/dataset".into(),
        fingerprint: hash(7),
        transform: Some(hash(4)),
        columns_hash: Some(hash(3)),
        layout: Some(Layout::Images {
            target: TargetKind::Regression,
        }),
        splits: BTreeMap::from([(
            Split::Train,
            SplitContent {
                rows: 10,
                hash: hash(6),
            },
        )]),
        continued_from: None,
        classes: Vec::new(),
        targets: Vec::new(),
        config: TrainConfig::default(),
        state: RunState::Finished,
        reason: None,
        started_ms: 1_700_000_000_000,
        updated_ms: 1_700_000_060_000,
        ended_ms: Some(1_700_000_060_000),
        step: 4,
        dropped_steps: 0,
        steps_planned: 8,
        epochs: 1,
        parameters: 17,
        data_wait_share: 0.0,
        performance: Some(performance()),
        best: Some(best()),
        images: Some(ImagesReport {
            mean: [0.5, 0.4, 0.3],
            deviation: [0.2, 0.2, 0.2],
            normalized_by: NormalizedBy::Dataset,
            augmented: true,
            mixed: false,
        }),
        mixture: Vec::new(),
        quarantined: 0,
        left_out_shards: BTreeMap::new(),
        test: BTreeMap::from([("rmse".to_owned(), 2.0)]),
        baseline: BTreeMap::from([("rmse".to_owned(), 5.0)]),
        diagnostics: None,
    }
}

fn performance() -> Performance {
    let figure = Some(MeanAndPeak {
        mean: 250.5,
        peak: 650.0,
    });
    Performance {
        step_time: StepTime {
            data_wait_s: 0.5,
            compute_s: 3.0,
            communication_s: 0.0,
            checkpoint_s: 0.5,
        },
        samples_per_s: 100.0,
        flops_per_sample: 6e6,
        flops_per_s: 6e8,
        peak_flops_per_s: Some(1.2e9),
        flops_share: Some(0.5),
        gpu: Some(GpuUse {
            readings: 4,
            utilization_percent: figure,
            memory_bytes: figure,
            power_w: figure,
            temperature_c: None,
        }),
    }
}

fn export() -> ExportRecord {
    ExportRecord {
        format: ExportRecord::TAG.format.into(),
        version: ExportRecord::TAG.version,
        pipeline: name("prices"),
        of: ExportedRows::Source {
            name: TableName::from(name("prices")),
            sequence: Sequence::new(3),
            entry_hash: hash(7),
            latest: true,
        },
        files_format: ExportFormat::HuggingFace,
        state: ExportState::Complete,
        files: vec![ExportedFile {
            path: "data/train-00000-of-00001.parquet".into(),
            split: Some(Split::Train),
            rows: 7,
            bytes: 2_135,
            hash: hash(8),
        }],
    }
}

fn failures() -> FailedRuns {
    FailedRuns {
        format: FailedRuns::TAG.format.into(),
        version: FailedRuns::TAG.version,
        source: name("prices"),
        failures: 3,
        since_unix_s: 1_780_000_000,
        last_unix_s: 1_780_000_600,
        error: "cannot fetch `https://api.example/prices`: the server answered 503".into(),
    }
}

fn run_warnings() -> RunWarnings {
    let message =
        "`in/b.csv` was written 3 s ago and is left for a later run (`files.settle_s` = 60)";
    RunWarnings {
        format: RunWarnings::TAG.format.into(),
        version: RunWarnings::TAG.version,
        source: name("prices"),
        run_id: "run-3".into(),
        since_unix_s: 1_780_000_000,
        warnings: vec![Warning::new("unsettled_file", message).with_key("files.settle_s")],
    }
}
