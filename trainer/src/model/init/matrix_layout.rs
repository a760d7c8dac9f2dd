//! Layout of the matrices of a file of weights: `[in, out]`, or `[out, in]` as PyTorch has it.

use feedline_schemas::config::{InitConfig, WeightLayout};

use super::{warnings::Warnings, weights_file::Weights};
use crate::{
    error::{Error, config as wrong},
    model::layers::Parameter,
};

/// A matrix of the model, and its shape in the file.
pub(super) type FileMatrix<'m> = (&'m Parameter, Vec<usize>);

impl Weights {
    /// Layout of the matrices of the file: as it says, as the configuration says, or as the shapes of `matrices` say, which
    /// are those that the model takes.
    ///
    /// # Errors
    /// [`Error::Config`] for matrices of two layouts, for a square one of unknown layout, and where file and configuration say
    /// different ones.
    pub(super) fn find_layout(
        &self,
        config: &InitConfig,
        matrices: &[FileMatrix<'_>],
        warnings: &mut Warnings,
    ) -> Result<WeightLayout, Error> {
        let of_file = self.stated_layout();
        check_key(of_file, config.layout)?;
        if let Some(stated) = of_file.or(config.layout) {
            return match first_of(stated.other(), matrices) {
                None => Ok(stated),
                Some(matrix) => Err(self.contradict_layout(stated, of_file.is_some(), matrix)),
            };
        }
        let own = first_of(WeightLayout::Feedline, matrices);
        let torch = first_of(WeightLayout::Torch, matrices);
        if let (Some(own), Some(torch)) = (own, torch) {
            return Err(self.refuse_two_layouts(own, torch));
        }
        if let Some(square) = first_square(matrices) {
            return Err(self.ask_for_layout(square, own.is_some(), torch.is_some()));
        }
        let Some((entry, shape)) = torch else {
            return Ok(WeightLayout::Feedline);
        };
        let message = format!(
            "by their shapes, such as {shape:?} of `{}`, the matrices of `{}` are [out, in], as PyTorch holds them, and were \
             transposed",
            entry.name, self.url
        );
        warnings.push("transposed_weights", "train.init.layout", message);
        Ok(WeightLayout::Torch)
    }

    /// The error of a matrix whose shape is not of the layout that the file or the configuration states.
    fn contradict_layout(
        &self,
        stated: WeightLayout,
        is_of_file: bool,
        (entry, shape): &FileMatrix<'_>,
    ) -> Error {
        let by = match is_of_file {
            true => "as the file says",
            false => "as `train.init.layout` says",
        };
        self.refused(&format!(
            "tensor `{}` is {shape:?}, which is {} of layout `{}`, and the matrices of the file are of layout `{}`, {}, {by}; \
             a file has one layout: transpose this tensor, or correct the layout",
            entry.name,
            stated.other().sizes(),
            stated.other().name(),
            stated.name(),
            stated.sizes(),
        ))
    }

    /// The error of a file with matrices of both layouts.
    fn refuse_two_layouts(
        &self,
        (own, own_shape): &FileMatrix<'_>,
        (torch, torch_shape): &FileMatrix<'_>,
    ) -> Error {
        self.refused(&format!(
            "its matrices are of two layouts: tensor `{}` is {own_shape:?}, [in, out], and tensor `{}` is {torch_shape:?}, \
             [out, in] as PyTorch has it; a file has one layout: transpose those of one kind",
            own.name, torch.name
        ))
    }

    /// The error of a square matrix of a file that does not say its layout.
    fn ask_for_layout(
        &self,
        (entry, shape): &FileMatrix<'_>,
        has_own: bool,
        has_torch: bool,
    ) -> Error {
        let others = match (has_own, has_torch) {
            (false, false) => "",
            (true, false) => "; the other matrices have the shapes of `feedline`",
            (_, true) => "; the other matrices have the shapes of `torch`",
        };
        let reason = format!(
            "tensor `{}` of `{}` is {shape:?}, and a square matrix does not say whether it is [in, out] or [out, in]{others}; \
             set it to \"torch\" for weights as `torch.nn.Linear` holds them ([out, in]), or to \"feedline\" for [in, out]",
            entry.name, self.url
        );
        wrong("init.layout", reason)
    }
}

/// Checks that the configuration says of a file's layout what the file says itself.
fn check_key(of_file: Option<WeightLayout>, given: Option<WeightLayout>) -> Result<(), Error> {
    match (of_file, given) {
        (Some(own), Some(given)) if own != given => {
            let reason = format!(
                "the file says that its layout is `{}`; remove this key",
                own.name()
            );
            Err(wrong("init.layout", reason))
        }
        _ => Ok(()),
    }
}

fn is_square(entry: &Parameter) -> bool {
    entry.shape[0] == entry.shape[1]
}

/// The first matrix whose shape in the file shows that it is of this layout.
fn first_of<'m, 'p>(
    layout: WeightLayout,
    matrices: &'m [FileMatrix<'p>],
) -> Option<&'m FileMatrix<'p>> {
    let decides = |entry: &Parameter| !is_square(entry) && entry.shape.len() == 2;
    let is_of = |entry: &Parameter, shape: &[usize]| match layout {
        WeightLayout::Feedline => shape == entry.shape,
        WeightLayout::Torch => shape.iter().rev().eq(&entry.shape),
    };
    let mut found = matrices.iter();
    found.find(|(entry, shape)| decides(entry) && is_of(entry, shape))
}

/// The first square matrix. Of one row and one column there is one layout.
fn first_square<'m, 'p>(matrices: &'m [FileMatrix<'p>]) -> Option<&'m FileMatrix<'p>> {
    let mut found = matrices.iter();
    found.find(|(entry, shape)| is_square(entry) && entry.shape[0] > 1 && *shape == entry.shape)
}
