//! A dataset of texts with edited tokens in its training split.
//!
//! Each document keeps its key, its origin, its place and its length, and blocks and shards end
//! where they ended. So windows, packing and order are those of the source, and an edit that
//! changes nothing writes the same bytes. The other splits, the transform and the tokenizer are
//! copied. A key identifies the document as landed: the audit for leaks compares the original
//! documents.
//!
//! Order of writes: shards, transform, tokenizer, manifest, `CURRENT`. A process that dies leaves files that nothing
//! names; the next one writes the same again. Memory: a shard of the source, one being written, and
//! [`bigrams`](self::bigrams).

mod bigrams;
mod narrowing;
mod reader;
#[cfg(test)]
mod tests;

use feedline_schemas::{
    edit::{
        Bigrams, Documents, EditCounts, EditMeasures, EditReference, EditRule, PriorReference,
        TextFigures,
    },
    format::MANIFEST,
    ids::Hash128,
    manifest::{Layout, Manifest, Split, SplitShards},
    report::{EditReport, Warning},
    transform::{TransformArtefact, UNKNOWN_ID},
};
use feedline_storage::Store;
use serde::Serialize;

use self::{
    bigrams::BigramCounts,
    reader::{Block, documents_in, whole},
};
use crate::{
    Context, Error, Tokenizer,
    engine::scratch::Scratch,
    pass_progress::PassProgress,
    shards::{
        audit::audit,
        manifest::{check_tokenizer, complete, read_manifest, read_transform, up_to_date},
        shard_layout::ShardLayout,
        writer::{Row, SplitWriter},
    },
    tokenizer::text_encoder::special_ids,
};

/// Part of what names an edit: another version of this code writes other bytes.
const EDIT_VERSION: u32 = 1;

/// A dataset whose training documents are to be edited.
#[derive(Debug)]
pub struct EditSource {
    store: Store,
    manifest: Manifest,
    artefact: TransformArtefact,
    vocabulary: u32,
    special: Vec<u32>,
}

/// The shards of an edited dataset, written and not yet named by a manifest.
#[derive(Debug)]
pub struct EditedShards {
    splits: Vec<SplitShards>,
    counts: EditCounts,
    before: Bigrams,
    after: Bigrams,
}

impl EditSource {
    /// Opens a dataset of texts.
    ///
    /// # Errors
    /// As [`read_manifest`]; [`Error::Input`] when it holds no documents, or its tokenizer is damaged.
    pub async fn open(dataset: &Store) -> Result<Self, Error> {
        let manifest = read_manifest(dataset).await?;
        let artefact = read_transform(dataset, &manifest).await?;
        let unfit = |reason: String, advice: &str| {
            Error::input(format!("dataset `{}`", dataset.url()), reason, advice)
        };
        let Layout::Tokens { vocabulary, .. } = manifest.layout else {
            let advice = "name a dataset of `dataset.kind = \"tokens\"` or `\"characters\"`";
            return Err(unfit("it holds no documents to edit".to_owned(), advice));
        };
        if let Some(problem) = check_tokenizer(dataset, &manifest).await? {
            return Err(unfit(problem, "restore it, or rebuild the dataset"));
        }
        let special = match &manifest.tokens {
            None => vec![UNKNOWN_ID],
            Some(tokens) => {
                let file = dataset.get(&tokens.tokenizer).await?;
                let tokenizer = Tokenizer::new(&file)
                    .map_err(|reason| unfit(reason, "restore its tokenizer"))?;
                let mut special = special_ids(&tokenizer);
                special.extend(tokens.end_of_text);
                special.sort_unstable();
                special.dedup();
                special
            }
        };
        Ok(Self {
            store: dataset.clone(),
            manifest,
            artefact,
            vocabulary,
            special,
        })
    }

    /// Ids of special tokens, such as the end of a text, in order: they are neither edited nor
    /// drawn.
    #[must_use]
    pub fn special(&self) -> &[u32] {
        &self.special
    }

    /// Checks that ids have the same meaning here and in the dataset `trained_on`.
    ///
    /// # Errors
    /// [`Error::Input`] if they do not; as [`read_manifest`].
    pub async fn check_ids_of(&self, trained_on: &Store) -> Result<(), Error> {
        let manifest = read_manifest(trained_on).await?;
        if manifest.fingerprint == self.manifest.fingerprint {
            return Ok(());
        }
        let artefact = read_transform(trained_on, &manifest).await?;
        let tokenizer =
            |artefact: &TransformArtefact| artefact.tokens.as_ref().map(|t| t.tokenizer);
        let characters = |artefact: &TransformArtefact| {
            artefact.characters.as_ref().map(|c| c.characters.clone())
        };
        let same = manifest.layout == self.manifest.layout
            && tokenizer(&artefact) == tokenizer(&self.artefact)
            && characters(&artefact) == characters(&self.artefact);
        if same {
            return Ok(());
        }
        Err(Error::input(
            format!("dataset `{}`", self.store.url()),
            format!(
                "its ids are of another tokenizer or vocabulary than those of `{}`, which the model was trained on",
                trained_on.url()
            ),
            "build it with that tokenizer (`dataset.tokens.tokenizer`), or train a model on it",
        ))
    }

    /// Checks that an edited dataset may be written to `target`.
    ///
    /// # Errors
    /// [`Error::Input`] for another dataset at `target`, which it would hide.
    pub async fn check_target(&self, target: &Store) -> Result<(), Error> {
        let found = match read_manifest(target).await {
            Ok(found) => found,
            Err(Error::Storage(e)) if !e.is_not_found() => return Err(e.into()),
            Err(_) => return Ok(()),
        };
        if found.edit.is_some() && found.fingerprint != self.manifest.fingerprint {
            return Ok(());
        }
        Err(Error::input(
            format!("folder `{}`", target.url()),
            "it holds a dataset of its own, which the edited one would hide",
            "name another folder",
        ))
    }

    /// Report of an earlier edit with the same result in `target`, if there is one.
    ///
    /// # Errors
    /// Failures of the store.
    pub async fn found(
        &self,
        target: &Store,
        rule: &EditRule,
        prior: &PriorReference,
    ) -> Result<Option<EditReport>, Error> {
        let found = up_to_date(target, self.input_hash(rule, prior)).await?;
        let report = found.and_then(|manifest| self.report(target, &manifest, true));
        Ok(report)
    }

    /// Writes the shards to `target`: those of the training split with the documents of each block
    /// edited by `edit`, which returns as many ids, in order. Dropping the future stops it; no
    /// manifest names the files it left.
    ///
    /// # Errors
    /// Errors of `edit`; [`Error::Input`] for a damaged source; [`Error::Lost`] when ids are
    /// missing; failures of the stores and the scratch folder.
    pub async fn write<E: From<Error>>(
        &self,
        target: &Store,
        context: &Context,
        mut edit: impl AsyncFnMut(Documents) -> Result<Vec<u32>, E>,
    ) -> Result<EditedShards, E> {
        let scratch = Scratch::claim(&context.scratch)?;
        let layout = ShardLayout::of(&self.manifest).with_given_ends();
        let mut edited = Edited {
            counts: EditCounts::default(),
            before: BigramCounts::new(&scratch.path("before")).map_err(E::from)?,
            after: BigramCounts::new(&scratch.path("after")).map_err(E::from)?,
        };
        let mut splits = Vec::with_capacity(self.manifest.splits.len());
        for split in &self.manifest.splits {
            let shards = if split.split == Split::Train {
                let meter = PassProgress::new(&context.progress, "edit: documents", split.rows);
                let mut writer = SplitWriter::new(target, &layout, split.split);
                for shard in &split.shards {
                    let bytes = whole(&self.store, shard).await?;
                    for block in documents_in(&bytes, shard, self.vocabulary)? {
                        let block = block?;
                        let ids = edit(block.documents.clone()).await?;
                        edited.take(&block, &ids, self.vocabulary)?;
                        push(&block, &ids, &mut writer).await?;
                        meter.add(block.documents.keys.len() as u64);
                    }
                    writer.end_shard().await?;
                }
                writer.finish().await?
            } else {
                self.copy(target, split).await?;
                split.shards.clone()
            };
            splits.push(SplitShards {
                split: split.split,
                rows: split.rows,
                shards,
                table: None,
            });
        }
        let schema = |split| layout.schema(split);
        let findings = audit(target, &splits, schema, |_| {}).await?;
        if let Some(problem) = findings.problems.into_iter().next() {
            let what = format!("the shards just written to `{}`", target.url());
            let advice = "the store does not return what was stored: check it, then edit again";
            return Err(Error::input(what, problem, advice).into());
        }
        Ok(EditedShards {
            splits,
            counts: edited.counts,
            before: edited.before.finish()?,
            after: edited.after.finish()?,
        })
    }

    /// Copies the files of a split that is not edited.
    async fn copy(&self, target: &Store, split: &SplitShards) -> Result<(), Error> {
        for shard in &split.shards {
            target
                .put(&shard.path, whole(&self.store, shard).await?)
                .await?;
            if let Some(lengths) = &shard.lengths {
                // The audit of what was written compares it with the documents.
                let bytes = self.store.get(&lengths.path).await?;
                target.put(&lengths.path, bytes).await?;
            }
        }
        Ok(())
    }

    /// Publishes the shards as the dataset in `target`, with the findings of the model.
    ///
    /// # Errors
    /// Failures of the stores.
    ///
    /// # Panics
    /// Never: the manifest records the edit.
    pub async fn publish(
        &self,
        target: &Store,
        shards: EditedShards,
        (rule, prior): (EditRule, PriorReference),
        measures: EditMeasures,
    ) -> Result<EditReport, Error> {
        let mut copied = vec![&self.manifest.transform.path];
        copied.extend(self.manifest.tokens.as_ref().map(|t| &t.tokenizer));
        for path in copied {
            target.put(path, self.store.get(path).await?).await?;
        }
        let EditCounts {
            documents, tokens, ..
        } = shards.counts;
        let figures = |perplexity, bigrams| TextFigures {
            perplexity,
            bigrams,
        };
        let mut manifest = Manifest {
            version: MANIFEST.version,
            input_hash: self.input_hash(&rule, &prior),
            splits: shards.splits,
            rejects: Vec::new(),
            // It would be of the source.
            profile: None,
            // Its shards are others.
            additions: Vec::new(),
            dropped_columns: std::collections::BTreeMap::new(),
            naive: Vec::new(),
            target: None,
            other_targets: Vec::new(),
            warnings: Vec::new(),
            edit: Some(EditReference {
                source: self.manifest.fingerprint,
                rule,
                prior,
                counts: EditCounts {
                    documents,
                    tokens,
                    ..measures.counts
                },
                before: figures(measures.before, shards.before),
                after: figures(measures.after, shards.after),
            }),
            ..self.manifest.clone()
        };
        complete(target, &mut manifest).await?;
        let report = self
            .report(target, &manifest, false)
            .expect("the manifest was just given what was edited");
        for warning in &report.warnings {
            let Warning { code, message, .. } = warning;
            tracing::warn!(dataset = %report.url, code, warning = message, "look at the edited texts before training on them");
        }
        Ok(report)
    }

    fn report(&self, target: &Store, manifest: &Manifest, up_to_date: bool) -> Option<EditReport> {
        let edit = manifest.edit.clone()?;
        let narrower = narrowing::warnings(&edit.before, &edit.after).into_iter();
        let narrower = narrower.map(|message| Warning::new("narrower_text", message));
        let mut warnings: Vec<Warning> = narrower.collect();
        if self.manifest.edit.is_some() {
            let message = "the source was edited before: the figures compare with its last edit, not with the landed rows";
            warnings.push(Warning::new("edited_before", message));
        }
        Some(EditReport {
            edit,
            warnings,
            up_to_date,
            fingerprint: manifest.fingerprint.to_string(),
            url: target.url(),
        })
    }

    /// Names all that an edited dataset depends on.
    fn input_hash(&self, rule: &EditRule, prior: &PriorReference) -> Hash128 {
        #[derive(Serialize)]
        struct Inputs<'a> {
            edit: u32,
            source: Hash128,
            rule: &'a EditRule,
            prior: &'a PriorReference,
        }
        let inputs = Inputs {
            edit: EDIT_VERSION,
            source: self.manifest.fingerprint,
            rule,
            prior,
        };
        Hash128::of(&serde_json::to_vec(&inputs).expect("plain data becomes JSON"))
    }
}

/// Counts of edited documents.
struct Edited {
    counts: EditCounts,
    before: BigramCounts,
    after: BigramCounts,
}

impl Edited {
    /// Counts a block and its edited ids.
    fn take(&mut self, block: &Block, ids: &[u32], vocabulary: u32) -> Result<(), Error> {
        let documents = &block.documents;
        let (before, after) = (documents.ids.len() as u64, ids.len() as u64);
        if before != after || ids.iter().any(|id| *id >= vocabulary) {
            return Err(Error::Lost {
                what: "token ids of the vocabulary to edit".into(),
                documents: before,
                shards: ids.iter().filter(|id| **id < vocabulary).count() as u64,
            });
        }
        self.counts.documents += documents.keys.len() as u64;
        self.counts.tokens += before;
        for (_, place) in documents.places() {
            self.before.add(&documents.ids[place.clone()])?;
            self.after.add(&ids[place])?;
        }
        Ok(())
    }
}

/// Writes a block of documents with other ids.
async fn push(block: &Block, ids: &[u32], writer: &mut SplitWriter<'_>) -> Result<(), Error> {
    for ((key, place), origin) in block.documents.places().zip(&block.origins) {
        let row = Row {
            x: &[],
            image: None,
            boxes: None,
            tokens: Some(&ids[place]),
            y: None,
            key,
            origin: *origin,
            kept: None,
        };
        writer.push(row).await?;
    }
    if block.documents.keys.is_empty() {
        return Ok(());
    }
    writer.end_block().await
}
