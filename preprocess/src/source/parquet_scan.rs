//! A table over exactly the given Parquet files: nothing is listed, inferred or guessed.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::{
    catalog::{Session, TableProvider},
    datasource::{
        TableType,
        listing::PartitionedFile,
        physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource},
        source::DataSourceExec,
    },
    error::Result,
    execution::object_store::ObjectStoreUrl,
    logical_expr::Expr,
    physical_plan::ExecutionPlan,
};
use object_store::{ObjectMeta, path::Path};

/// One file: where it is in the store registered under the table's URL, and its size in bytes.
#[derive(Clone, Debug)]
pub(crate) struct ScanFile {
    pub(crate) path: Path,
    pub(crate) bytes: u64,
}

/// Parquet files of one schema, read in as many partitions as the session has, whole files at a time.
#[derive(Debug)]
pub(crate) struct ParquetFiles {
    pub(crate) store: ObjectStoreUrl,
    pub(crate) schema: SchemaRef,
    pub(crate) files: Vec<ScanFile>,
}

#[async_trait]
impl TableProvider for ParquetFiles {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let source = Arc::new(ParquetSource::new(Arc::clone(&self.schema)));
        let config = FileScanConfigBuilder::new(self.store.clone(), source)
            .with_file_groups(self.groups(state.config().target_partitions()))
            .with_projection_indices(projection.cloned())?
            .with_limit(limit)
            .build();
        Ok(DataSourceExec::from_data_source(config))
    }
}

impl ParquetFiles {
    /// Deals the files out by turns, so that neighbours (batches of about one size) spread evenly.
    fn groups(&self, partitions: usize) -> Vec<FileGroup> {
        let partitions = partitions.min(self.files.len()).max(1);
        let mut groups = vec![FileGroup::default(); partitions];
        for (i, file) in self.files.iter().enumerate() {
            groups[i % partitions].push(PartitionedFile::new_from_meta(ObjectMeta {
                location: file.path.clone(),
                last_modified: Default::default(),
                size: file.bytes,
                e_tag: None,
                version: None,
            }));
        }
        groups
    }
}
