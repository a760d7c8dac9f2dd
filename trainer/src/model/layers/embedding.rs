//! A vector for each id.

use burn::tensor::{Int, Tensor, module};

use super::{Builder, Gain, Pass, Slot};

/// A table `weight: [count, width]` with a row for each id.
#[derive(Clone, Debug)]
pub struct Embedding {
    weight: Slot,
}

impl Embedding {
    /// Vectors of `width` for ids below `count`, in samples of `length` ids.
    pub fn new(
        builder: &mut Builder,
        name: &str,
        [count, width]: [usize; 2],
        length: usize,
        gain: Gain,
    ) -> Self {
        let initial = gain.initial(width, count);
        let weight = builder.within(name, |b| {
            b.parameter("weight", &[count, width], true, initial)
        });
        builder.table(weight);
        builder.note(
            name,
            "embedding".into(),
            &[length, width],
            count * width,
            length,
        );
        Self { weight }
    }

    /// `[rows, length]` to `[rows, length, width]`; every id must be below `count`.
    #[must_use]
    pub fn forward(&self, pass: &Pass<'_>, ids: Tensor<2, Int>) -> Tensor<3> {
        module::embedding(pass.parameter(self.weight), ids)
    }

    /// `[rows, length, width]` to a score of each id, `[rows, length, count]`, by the same table (Press and Wolf 2017,
    /// arXiv 1608.05859).
    #[must_use]
    pub fn scores(&self, pass: &Pass<'_>, x: Tensor<3>) -> Tensor<3> {
        let given = x.dtype();
        let table: Tensor<2> = pass.for_product(pass.parameter(self.weight));
        module::linear(pass.for_product(x), table.transpose(), None).cast(given)
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::TensorData;

    use super::*;
    use crate::model::layers::check::check;

    fn ids(x: &Tensor<3>) -> Tensor<2, Int> {
        let ids = TensorData::new(vec![0, 3, 3, 1, 0, 3], [2, 3]);
        Tensor::from_data(ids, &x.device())
    }

    #[test]
    fn gradient_of_ids_that_come_again_equals_finite_differences() {
        check(
            [2, 3, 4],
            |b| Embedding::new(b, "e", [5, 4], 3, Gain::Normal(1.0)),
            |e, pass, x| e.forward(pass, ids(&x)) * x,
        );
    }

    #[test]
    fn gradient_of_a_table_used_at_both_ends_equals_finite_differences() {
        check(
            [2, 3, 4],
            |b| Embedding::new(b, "e", [5, 4], 3, Gain::Normal(1.0)),
            |e, pass, x| {
                let x = e.forward(pass, ids(&x)) + x;
                e.scores(pass, x)
            },
        );
    }
}
