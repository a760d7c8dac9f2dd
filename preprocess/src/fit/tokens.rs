//! Learning a tokenizer from the training split.

use arrow::array::{AsArray, RecordBatch};
use datafusion::logical_expr::ident;
use futures::TryStreamExt;

use crate::{
    Error, TrainSplit,
    schema::system_columns,
    tokenizer::{Sample, WordCounts, learnt},
};

/// Settings of a tokenizer to learn.
#[derive(Clone, Debug)]
pub(crate) struct LearnSpec {
    /// Column of the documents.
    pub(crate) column: String,
    /// Most ids.
    pub(crate) vocabulary: u32,
    /// Bytes of text to learn from, if there are more.
    pub(crate) sample_bytes: u64,
    pub(crate) seed: u64,
    /// Special token behind a document.
    pub(crate) end: String,
}

/// Learns a tokenizer. Returns its file, and the bytes of text that were counted. Both follow from the texts of the
/// split alone, whatever their order and the number of `partitions` they are counted in.
///
/// # Errors
/// [`Error::Config`] when the special token is a piece of the texts; failures of the engine.
pub(crate) async fn learn_tokenizer(
    train: &TrainSplit,
    spec: &LearnSpec,
    partitions: usize,
) -> Result<(Vec<u8>, u64), Error> {
    let sample = Sample::new(spec.sample_bytes, bytes(train, spec).await?, spec.seed);
    let columns = vec![ident(&spec.column), ident(system_columns::HASH)];
    let stream = train.frame().select(columns)?.execute_stream().await?;
    let counted = stream.map_err(Error::from).map_ok(|batch| async move {
        let counting = tokio::task::spawn_blocking(move || count(&batch, &sample));
        counting.await.map_err(Error::from)
    });
    let mut counted = std::pin::pin!(counted.try_buffer_unordered(partitions.max(1)));
    let (mut words, mut bytes) = (WordCounts::default(), 0);
    while let Some((some, of)) = counted.try_next().await? {
        words.merge(some);
        bytes += of;
    }
    let (vocabulary, end) = (spec.vocabulary, spec.end.clone());
    let learning = tokio::task::spawn_blocking(move || learnt(words, vocabulary, &end));
    let file = learning.await?;
    let file = file.map_err(|reason| Error::config("dataset.tokens.end_of_text", reason))?;
    Ok((file, bytes))
}

/// Bytes of all documents.
async fn bytes(train: &TrainSplit, spec: &LearnSpec) -> Result<u64, Error> {
    let texts = train.frame().select(vec![ident(&spec.column)])?;
    let mut batches = texts.execute_stream().await?;
    let mut bytes = 0;
    while let Some(batch) = batches.try_next().await? {
        let texts = batch.column(0).as_string::<i32>().iter().flatten();
        bytes += texts.map(|text| text.len() as u64).sum::<u64>();
    }
    Ok(bytes)
}

/// The words of some documents, and the bytes that were counted.
fn count(batch: &RecordBatch, sample: &Sample) -> (WordCounts, u64) {
    let texts = batch.column(0).as_string::<i32>().iter().flatten();
    let hashes = batch.column(1).as_fixed_size_binary().iter().flatten();
    let mut words = WordCounts::default();
    let bytes = texts
        .zip(hashes)
        .map(|(text, hash)| words.add(text, hash, sample));
    let bytes = bytes.sum();
    (words, bytes)
}
