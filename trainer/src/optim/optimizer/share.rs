//! Assignment of the optimizer's state to ranks.

use std::ops::Range;

use crate::model::interface::Parameter;

/// Parameters of each of `world` ranks: complete ones, in order, in runs that hold about as many
/// numbers each.
pub(crate) fn shares(parameters: &[Parameter], world: usize) -> Vec<Range<usize>> {
    let all: usize = parameters.iter().map(|p| p.range.len()).sum();
    let mut next = parameters
        .iter()
        .map(|p| p.range.len())
        .enumerate()
        .peekable();
    let mut taken = 0;
    let mut begin = 0;
    let mut run = |rank: usize| {
        let border = (rank + 1) * all / world;
        // A parameter across the boundary goes to the side that has more of it.
        while let Some((i, len)) = next.next_if(|(_, len)| 2 * taken + len <= 2 * border) {
            taken += len;
            begin = i + 1;
        }
        begin
    };
    let ends: Vec<usize> = (0..world).map(&mut run).collect();
    let begins = std::iter::once(0).chain(ends.clone());
    begins.zip(ends).map(|(begin, end)| begin..end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lens: &[usize], world: usize) -> Vec<Range<usize>> {
        let mut end = 0;
        let parameters: Vec<Parameter> = lens
            .iter()
            .map(|len| {
                end += len;
                Parameter {
                    name: String::new(),
                    shape: vec![*len],
                    range: end - len..end,
                    decays: true,
                    is_hidden: false,
                }
            })
            .collect();
        shares(&parameters, world)
    }

    #[test]
    fn shares_are_about_even_and_cover_every_parameter_once() {
        assert_eq!(of(&[1, 1, 1, 1], 2), [0..2, 2..4]);
        assert_eq!(of(&[10, 1, 1, 1, 10], 2), [0..2, 2..5]);
        assert_eq!(of(&[1, 100, 1], 2), [0..2, 2..3]);
        assert_eq!(of(&[5], 3), [0..0, 0..1, 1..1]);
        assert_eq!(of(&[], 2), [0..0, 0..0]);
        assert_eq!(of(&[1, 2, 3, 4, 5, 6, 7, 8], 4), [0..4, 4..6, 6..7, 7..8]);
    }
}
