//! A batch as the trainer sees it.

use std::{fmt, ops::Range, sync::OnceLock};

use feedline_schemas::{loader_state::LoaderState, manifest::TargetKind};

use crate::{
    BatchKind,
    assembly::{
        fill::Filled,
        mixup_plan::MixupPlan,
        ring::{Ring, SlabLease},
        slab::COLUMNS,
    },
    batch_kind::{DATA, IDS, LENGTHS, PIXELS, POSITIONS, SEGMENTS, TARGET},
    image::{Mix, soft_label},
};

/// This rank's part of one global batch, in memory of the loader's that is used again once the batch is dropped.
///
/// A rank may have no rows of a batch that is smaller than the world; it gets the batch all the same, so that all
/// ranks count the same steps.
pub struct Batch {
    lease: SlabLease,
    kind: BatchKind,
    target: TargetKind,
    /// Rows of the slab that hold images: ours, and those that ours are mixed with.
    held: usize,
    /// Range of them that is ours.
    own: Range<usize>,
    row_bytes: [usize; COLUMNS],
    padding: usize,
    place: Place,
    state: LoaderState,
    filled: Vec<Filled>,
    mixing: Option<MixupPlan>,
    mixed: OnceLock<Mixed>,
    identities: OnceLock<Identities>,
}

/// Position of a rank's rows in their global batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Rows of the ranks before this one.
    pub first_row: usize,
    /// Rows of all ranks together.
    pub global_rows: usize,
}

/// Mixing of the rows. Drawn on first access.
#[derive(Default)]
struct Mixed {
    mixes: Vec<Mix>,
    lambda: Vec<f32>,
    /// The partner's targets, four bytes each.
    y_partner: Vec<u32>,
}

/// Record ids of the rows. Looked up on first access: most training steps do not need them.
struct Identities {
    keys: Vec<u64>,
    origins: Vec<u64>,
}

/// Targets of a batch, of each row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target<'a> {
    /// The dataset has no target.
    None,
    /// Scaled numbers, as the dataset's transform made them.
    Regression(&'a [f32]),
    /// Several such numbers of each row, `[rows, targets]` row-major.
    Regressions {
        /// The numbers.
        y: &'a [f32],
        /// Number of targets.
        targets: usize,
    },
    /// Class ids, from 0 and below the layout's number of classes.
    Classification(&'a [i32]),
}

/// Parts that [`Batch::new`] puts together.
pub(crate) struct BatchParts {
    pub(crate) lease: SlabLease,
    pub(crate) kind: BatchKind,
    pub(crate) target: TargetKind,
    /// Rows that were filled.
    pub(crate) rows: usize,
    pub(crate) row_bytes: [usize; COLUMNS],
    pub(crate) mixing: Option<MixupPlan>,
    pub(crate) padding: usize,
    pub(crate) place: Place,
    pub(crate) state: LoaderState,
    pub(crate) filled: Vec<Filled>,
}

impl Batch {
    pub(crate) fn new(parts: BatchParts) -> Self {
        Self {
            lease: parts.lease,
            kind: parts.kind,
            target: parts.target,
            held: parts.rows,
            own: parts.mixing.as_ref().map_or(0..parts.rows, MixupPlan::own),
            row_bytes: parts.row_bytes,
            mixing: parts.mixing,
            mixed: OnceLock::new(),
            padding: parts.padding,
            place: parts.place,
            state: parts.state,
            filled: parts.filled,
            identities: OnceLock::new(),
        }
    }

    pub(crate) fn hand_out(&mut self, ring: &Ring) {
        ring.hand_out(&mut self.lease);
    }

    /// Kind of rows.
    #[must_use]
    pub fn kind(&self) -> BatchKind {
        self.kind
    }

    /// Rows of this rank.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.own.len()
    }

    /// Position of the rows in the global batch.
    #[must_use]
    pub fn place(&self) -> Place {
        self.place
    }

    /// Number of padding rows at the end: repeated samples of the epoch that make the last batch as
    /// large as the others. Exclude them from sums over an epoch.
    #[must_use]
    pub fn padding(&self) -> usize {
        self.padding
    }

    /// Elements of `x` in a row; 0 for other kinds.
    #[must_use]
    pub fn features(&self) -> usize {
        match self.kind {
            BatchKind::Rows { features } | BatchKind::Multi { features, .. } => features,
            BatchKind::Images { .. } | BatchKind::Tokens { .. } => 0,
        }
    }

    /// Features, `[rows, features]` row-major; empty for rows without.
    #[must_use]
    pub fn x(&self) -> &[f32] {
        match self.kind {
            BatchKind::Rows { .. } | BatchKind::Multi { .. } => {
                bytemuck::cast_slice(self.column(DATA))
            }
            BatchKind::Images { .. } | BatchKind::Tokens { .. } => &[],
        }
    }

    /// Pixels, u8 RGB `[rows, height, width, 3]`, mixed already; empty for rows without.
    #[must_use]
    pub fn pixels(&self) -> &[u8] {
        match self.kind {
            BatchKind::Images { .. } => self.column(DATA),
            BatchKind::Multi { .. } => self.column(PIXELS),
            BatchKind::Rows { .. } | BatchKind::Tokens { .. } => &[],
        }
    }

    /// Mix of each image with its partner, `[rows]`; empty where nothing is mixed. Partners count the images that the rank
    /// decodes: its own and, where its share cuts a pair, one of another rank before and one after them.
    #[must_use]
    pub fn mixes(&self) -> &[Mix] {
        &self.mixed().mixes
    }

    /// Share of each row's own target in its mixed image, 0 to 1, `[rows]`; the rest is that of
    /// [`Batch::y_partner`]. Empty where nothing is mixed.
    #[must_use]
    pub fn lambda(&self) -> &[f32] {
        &self.mixed().lambda
    }

    /// Targets of the images that the rows are mixed with, `[rows]`; a row that is not mixed has its own. A loss is
    /// `lambda * loss(y) + (1 - lambda) * loss(y_partner)`. [`Target::None`] where nothing is mixed.
    #[must_use]
    pub fn y_partner(&self) -> Target<'_> {
        match &self.mixing {
            Some(_) => self.as_target(bytemuck::cast_slice(&self.mixed().y_partner)),
            None => Target::None,
        }
    }

    /// Writes the shares of the classes to `out`, f32 `[rows, classes]`: 1 for a row's class, and of a mixed image
    /// `lambda` for its own and the rest for its partner's. Writes zeros where targets are no classes.
    ///
    /// # Panics
    /// If `out` has another length, or a class id is not below `classes`.
    pub fn soft_labels(&self, classes: usize, out: &mut [f32]) {
        assert_eq!(out.len(), self.rows() * classes, "a share for each class");
        let Target::Classification(own) = self.y() else {
            out.fill(0.0);
            return;
        };
        let partner = match self.y_partner() {
            Target::Classification(partner) => partner,
            Target::None | Target::Regression(_) | Target::Regressions { .. } => own,
        };
        let class = |id: i32| usize::try_from(id).expect("class ids count from 0");
        for (row, to) in out.chunks_exact_mut(classes.max(1)).enumerate() {
            let lambda = self.lambda().get(row).copied().unwrap_or(1.0);
            soft_label(lambda, class(own[row]), class(partner[row]), to);
        }
    }

    /// Token ids, `[rows, length]`; empty for rows without. What a document leaves free holds the padding id.
    #[must_use]
    pub fn tokens(&self) -> &[u32] {
        match self.kind {
            BatchKind::Tokens { .. } => bytemuck::cast_slice(self.column(DATA)),
            BatchKind::Multi { .. } => bytemuck::cast_slice(self.column(IDS)),
            BatchKind::Rows { .. } | BatchKind::Images { .. } => &[],
        }
    }

    /// For rows of several parts, how many ids of each are its text's, `[rows]`; what follows them is padding. Empty for
    /// other kinds.
    #[must_use]
    pub fn lengths(&self) -> &[u32] {
        match self.kind {
            BatchKind::Multi { .. } => bytemuck::cast_slice(self.column(LENGTHS)),
            _ => &[],
        }
    }

    /// For packed and filled rows of tokens, which document of its row each id belongs to, `[rows, length]`: from 1, and 0 for padding.
    /// Empty for other kinds.
    #[must_use]
    pub fn segments(&self) -> &[u32] {
        match self.kind {
            BatchKind::Tokens { packed: true, .. } => bytemuck::cast_slice(self.column(SEGMENTS)),
            _ => &[],
        }
    }

    /// For packed and filled rows of tokens, the position of each id in its document, `[rows, length]`, from 0; 0 for padding. Empty for
    /// other kinds.
    #[must_use]
    pub fn positions(&self) -> &[u32] {
        match self.kind {
            BatchKind::Tokens { packed: true, .. } => bytemuck::cast_slice(self.column(POSITIONS)),
            _ => &[],
        }
    }

    /// Targets, `[rows]`, or `[rows, targets]` of several.
    #[must_use]
    pub fn y(&self) -> Target<'_> {
        self.as_target(match self.kind {
            BatchKind::Tokens { .. } => &[],
            BatchKind::Rows { .. } | BatchKind::Images { .. } | BatchKind::Multi { .. } => {
                self.column(TARGET)
            }
        })
    }

    /// First 8 bytes of each record's content hash, `[rows]`; of a row with several documents, that of its first.
    /// Looked up by the first call, which takes some 10 ns a row.
    #[must_use]
    pub fn keys(&self) -> &[u64] {
        &self.identities().keys[self.own.clone()]
    }

    /// Origin of each record, `[rows]`; see [`feedline_schemas::ids::Origin`]. Otherwise as
    /// [`Batch::keys`].
    #[must_use]
    pub fn origins(&self) -> &[u64] {
        &self.identities().origins[self.own.clone()]
    }

    /// Rows that hold another sample than the order names, because that one could not be used, or because its block is
    /// damaged. A row of tokens is one of them if any of its documents is of such a block.
    /// `keys` and `origins` identify the samples.
    pub fn substituted(&self) -> impl Iterator<Item = usize> {
        let rows = self.filled.iter().flat_map(Filled::substituted);
        rows.filter(|row| self.own.contains(row))
            .map(|row| row - self.own.start)
    }

    /// Number of rows that hold the beginning of a document that is longer than a row.
    pub(crate) fn truncated(&self) -> usize {
        self.filled.iter().map(Filled::truncated).sum()
    }

    /// State to resume from after this batch with [`Loader::epoch`](crate::Loader::epoch). The same
    /// on every rank.
    #[must_use]
    pub fn state(&self) -> &LoaderState {
        &self.state
    }

    /// Bytes of the batch's arrays.
    pub(crate) fn bytes(&self) -> usize {
        self.row_bytes.iter().sum::<usize>() * self.rows()
    }

    /// Returns true if all bytes of `part`, a part of an array of this batch, are page-locked, see
    /// [`Loader::lock_batches`](crate::Loader::lock_batches): a device copies from them directly.
    #[must_use]
    pub fn is_page_locked(&self, part: &[u8]) -> bool {
        self.lease.slab().is_page_locked(part)
    }

    fn column(&self, column: usize) -> &[u8] {
        self.part(column, self.own.clone())
    }

    fn part(&self, column: usize, rows: Range<usize>) -> &[u8] {
        let row_bytes = self.row_bytes[column];
        &self.lease.slab().column(column)[rows.start * row_bytes..rows.end * row_bytes]
    }

    /// The bytes of targets as what the dataset's targets are.
    fn as_target<'a>(&self, bytes: &'a [u8]) -> Target<'a> {
        match (self.kind, self.target) {
            (BatchKind::Tokens { .. }, _) | (_, TargetKind::None) => Target::None,
            (_, TargetKind::Regression) => Target::Regression(bytemuck::cast_slice(bytes)),
            (_, TargetKind::Regressions { targets }) => Target::Regressions {
                y: bytemuck::cast_slice(bytes),
                targets: targets as usize,
            },
            (_, TargetKind::Classification { .. }) => {
                Target::Classification(bytemuck::cast_slice(bytes))
            }
        }
    }

    fn mixed(&self) -> &Mixed {
        self.mixed.get_or_init(|| {
            let Some(mixing) = &self.mixing else {
                return Mixed::default();
            };
            let mixes = mixing.draw(self.own.clone());
            let y = self.part(TARGET, 0..self.held);
            let y: &[u32] = bytemuck::cast_slice(y);
            let width = self.row_bytes[TARGET] / size_of::<u32>();
            let partners = mixes.iter().flat_map(|mix| {
                let first = mix.partner * width;
                y.get(first..first + width)
                    .unwrap_or_default()
                    .iter()
                    .copied()
            });
            Mixed {
                lambda: mixes.iter().map(|mix| mix.lambda).collect(),
                y_partner: partners.collect(),
                mixes,
            }
        })
    }

    fn identities(&self) -> &Identities {
        self.identities.get_or_init(|| {
            let mut keys = Vec::with_capacity(self.held);
            let mut origins = Vec::with_capacity(self.held);
            for filled in &self.filled {
                filled.append_identities(&mut keys, &mut origins);
            }
            Identities { keys, origins }
        })
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("kind", &self.kind)
            .field("rows", &self.rows())
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}
