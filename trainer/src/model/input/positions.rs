//! Positions of token ids in their pieces, and ids as the numbers of tensors.

use crate::data::samples::ModelInputs;

/// Position of each id in its piece: a document that is longer than a row is split, and a model has
/// positions for as many ids as it reads.
pub(super) fn in_pieces(inputs: ModelInputs<'_>) -> Vec<u32> {
    let mut positions = inputs.positions.to_vec();
    let rows = positions.chunks_exact_mut(inputs.length);
    for (positions, segments) in rows.zip(inputs.segments.chunks_exact(inputs.length)) {
        let mut rest = positions;
        for piece in segments.chunk_by(|a, b| a == b) {
            let (here, after) = rest.split_at_mut(piece.len());
            let first = here[0];
            here.iter_mut().for_each(|position| *position -= first);
            rest = after;
        }
    }
    positions
}

pub(super) fn narrow(value: usize) -> u32 {
    u32::try_from(value).expect("a part has far fewer places")
}

/// Ids, positions and places as the tensor library takes them.
pub(super) fn signed(value: u32) -> i32 {
    i32::try_from(value).expect("ids are checked, positions and places are below 2^31")
}
