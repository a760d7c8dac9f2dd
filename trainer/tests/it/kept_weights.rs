//! Weights that a run has kept, where files of it are gone.

use feedline_schemas::{manifest::Split, report::Warning};
use feedline_trainer::{
    Choice, ExportOptions, Predictor, Resume, Use, choose, evaluate, export, export_run, train,
};

use crate::{
    dataset::Kind,
    runs::{block_on, config, contents, context},
};

#[test]
fn a_finished_run_is_used_with_its_best_weights_though_newer_checkpoints_are_gone() {
    let context = context(Kind::Regression);
    let mut config = config();
    (config.epochs, config.checkpoint.keep) = (3, 9);
    let report = train(&config, Resume::Fresh, &context).unwrap();
    assert!(report.best_epoch > 1, "{report:?}");
    let paths = contents(&context.runs).into_keys();
    let paths: Vec<String> = paths
        .filter(|path| path.contains("/checkpoints/"))
        .collect();
    assert_eq!(paths.len(), 3);
    for path in &paths[1..] {
        block_on(context.runs.delete(path)).unwrap();
    }
    let warned = |warnings: &[Warning]| warnings.iter().any(|w| w.code == "earlier_weights");
    let evaluated = evaluate(&config, Split::Test, &context).unwrap();
    assert_eq!(evaluated.metrics, report.test);
    assert!(evaluated.checkpoint.ends_with("best.safetensors"));
    assert!(!warned(&evaluated.warnings), "{evaluated:?}");
    // Without them the weights are of the only checkpoint that is left, which every command reports.
    let best = evaluated.run.unwrap().name + "/best.safetensors";
    block_on(context.runs.delete(&best)).unwrap();
    let evaluated = evaluate(&config, Split::Test, &context).unwrap();
    assert!(evaluated.checkpoint.ends_with(&paths[0]), "{evaluated:?}");
    assert!(warned(&evaluated.warnings), "{evaluated:?}");
    let predictor = Predictor::open(&config, None, &context).unwrap();
    assert!(warned(predictor.warnings()));
    let chosen = choose(&config, &Choice::Fitting, Use::Weights, &context).unwrap();
    let exported = export_run(&chosen, None, ExportOptions::default(), &context).unwrap();
    assert!(warned(&exported.warnings));
    let exported = export(&config, None, ExportOptions::default(), &context).unwrap();
    assert!(warned(&exported.warnings));
}
