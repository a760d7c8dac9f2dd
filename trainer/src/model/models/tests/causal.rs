//! Tokens that a prediction of the next token may depend on.

use feedline_schemas::config::PositionKind;

use super::*;

/// Losses of two rows of two packed documents of 3 ids each, with one id changed.
fn packed_losses(kind: ModelKind, rotary: bool, changed: Option<usize>) -> Vec<u32> {
    let shape = Shape::Tokens {
        length: 5,
        vocabulary: 7,
    };
    let config = ModelConfig {
        r#type: kind,
        context: Some(5),
        layers: Some(1),
        width: Some(8),
        positions: rotary.then_some(PositionKind::Rotary),
        ..ModelConfig::default()
    };
    let mut tokens = [1, 4, 2, 6, 0, 3, 5, 5, 1, 2, 3, 4];
    if let Some(at) = changed {
        tokens[at] = (tokens[at] + 1) % 7;
    }
    let inputs = ModelInputs {
        tokens: &tokens,
        segments: &[1, 1, 1, 2, 2, 2].repeat(2),
        positions: &[0, 1, 2, 0, 1, 2].repeat(2),
        length: 6,
        ..ModelInputs::default()
    };
    let samples = Samples::new(2, inputs, Targets::None);
    let model = build(&resolved(&config), shape, 7).unwrap();
    let engine = ModelEngine::new(model, LossKind::CrossEntropy.into());
    let losses = engine
        .predict(&engine.weights(&bucket(&engine)), samples)
        .losses;
    losses.iter().map(|loss| loss.to_bits()).collect()
}

#[test]
fn a_prediction_depends_on_what_comes_before_it_in_its_document() {
    // Two predictions in each document: of its second and of its third id.
    let moved = |kind, rotary, at| {
        let losses = |changed| packed_losses(kind, rotary, changed);
        let (before, after) = (losses(None), losses(Some(at)));
        assert_eq!(before.len(), 8);
        let differing = (0..8).filter(|&i| before[i] != after[i]);
        differing.collect::<Vec<_>>()
    };
    for rotary in [false, true] {
        assert_eq!(moved(ModelKind::Transformer, rotary, 0), [0, 1]);
        assert_eq!(moved(ModelKind::Transformer, rotary, 2), [1]);
        assert_eq!(moved(ModelKind::Transformer, rotary, 3), [2, 3]);
        assert_eq!(moved(ModelKind::Transformer, rotary, 11), [7]);
    }
    assert_eq!(moved(ModelKind::Lstm, false, 0), [0, 1]);
    assert_eq!(moved(ModelKind::Lstm, false, 3), [2, 3]);
    assert_eq!(moved(ModelKind::Lstm, false, 11), [7]);
}
