//! Contracts that are put back.

use super::Contract;

impl Contract<'_> {
    /// Makes `copy`, a clone from earlier in the batch, equal to this one. Cheap if only counts
    /// differ.
    pub(crate) fn copy_to(&self, copy: &mut Self) {
        // All else follows from these two.
        if copy.columns == self.columns && copy.decisions == self.decisions {
            copy.rows = self.rows;
            copy.met.clone_from(&self.met);
        } else {
            copy.clone_from(self);
        }
    }
}
