//! Plans as bytes: our functions and operators besides those of the engine.

use std::sync::Arc;

use ballista_core::serde::BallistaPhysicalExtensionCodec;
use datafusion::{
    common::exec_datafusion_err,
    error::Result,
    execution::TaskContext,
    logical_expr::{AggregateUDF, ScalarUDF, WindowUDF},
    physical_plan::ExecutionPlan,
};
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};

use super::spool::Spool;
use crate::engine::udf_codec;

/// First bytes of our operators; those of the engine are messages that cannot begin so.
const MAGIC: &[u8] = b"\0feedline\0";

/// Functions travel with the values that they hold, operators as JSON.
#[derive(Debug, Default)]
pub(super) struct Codec {
    engine: BallistaPhysicalExtensionCodec,
}

impl PhysicalExtensionCodec for Codec {
    fn try_decode(
        &self,
        buf: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        ctx: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(json) = buf.strip_prefix(MAGIC) else {
            return self.engine.try_decode(buf, inputs, ctx, converter);
        };
        let [input] = inputs else {
            return Err(exec_datafusion_err!(
                "an operator of a plan has {} inputs",
                inputs.len()
            ));
        };
        let to = serde_json::from_slice(json).map_err(|e| {
            exec_datafusion_err!(
                "an operator of a plan cannot be read: {e}; run the same version everywhere"
            )
        })?;
        Ok(Arc::new(Spool::new(Arc::clone(input), to)))
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        buf: &mut Vec<u8>,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        let Some(spool) = node.downcast_ref::<Spool>() else {
            return self.engine.try_encode(node, buf, converter);
        };
        buf.extend_from_slice(MAGIC);
        serde_json::to_writer(&mut *buf, spool.to())
            .map_err(|e| exec_datafusion_err!("an operator of a plan cannot be written: {e}"))
    }

    fn try_decode_udf(&self, name: &str, buf: &[u8]) -> Result<Arc<ScalarUDF>> {
        udf_codec::arrived(name, buf)
    }

    fn try_encode_udf(&self, node: &ScalarUDF, buf: &mut Vec<u8>) -> Result<()> {
        udf_codec::packed(node, buf)
    }

    // By name, as they hold nothing.
    fn try_encode_udaf(&self, node: &AggregateUDF, buf: &mut Vec<u8>) -> Result<()> {
        self.engine.try_encode_udaf(node, buf)
    }

    fn try_decode_udaf(&self, name: &str, buf: &[u8]) -> Result<Arc<AggregateUDF>> {
        self.engine.try_decode_udaf(name, buf)
    }

    fn try_encode_udwf(&self, node: &WindowUDF, buf: &mut Vec<u8>) -> Result<()> {
        self.engine.try_encode_udwf(node, buf)
    }

    fn try_decode_udwf(&self, name: &str, buf: &[u8]) -> Result<Arc<WindowUDF>> {
        self.engine.try_decode_udwf(name, buf)
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::{
        execution::object_store::ObjectStoreUrl,
        logical_expr::ident,
        physical_plan::displayable,
        prelude::{DataFrame, SessionContext},
    };
    use datafusion_proto::{physical_plan::AsExecutionPlan, protobuf::PhysicalPlanNode};
    use object_store::memory::InMemory;

    use super::*;
    use crate::{
        cluster::spool::To,
        engine::scalar_function::RowFunction as _,
        operators::dedup::content_hash::{Cells, ContentHash},
        source::parquet_scan::{ParquetFiles, ScanFile},
        statistics::{
            aggregates,
            quantile::{ScanMode, ScanSpec},
        },
        transform::CellOp,
    };

    const STORE: &str = "shared://66";

    fn rows(session: &SessionContext) -> DataFrame {
        let field = Field::new("x", DataType::Float64, true);
        let file = ScanFile {
            path: "landing/a.parquet".into(),
            bytes: 9,
        };
        let table = ParquetFiles {
            store: ObjectStoreUrl::parse(STORE).unwrap(),
            schema: Arc::new(Schema::new(vec![field])),
            files: vec![file.clone(), file],
        };
        let hash = ContentHash {
            names: vec!["x".to_owned()],
            cells: Cells::Text,
        };
        let rows = session.read_table(Arc::new(table)).unwrap();
        let columns = vec![
            aggregates::cell(ident("x"), &[CellOp::Log1p]).alias("x"),
            hash.over(vec![ident("x")]).alias("hash"),
        ];
        rows.select(columns).unwrap()
    }

    #[tokio::test]
    async fn a_plan_arrives_as_it_was_sent() {
        let session = SessionContext::new();
        aggregates::register(&session);
        let store = ObjectStoreUrl::parse(STORE).unwrap();
        session.register_object_store(store.as_ref(), Arc::new(InMemory::new()));
        let spec = ScanSpec {
            mode: ScanMode::Count,
            depth: 0,
            prefixes: vec![0],
        };
        let fits = vec![
            aggregates::profile(ident("x")),
            aggregates::scan(ident("x"), &spec),
            aggregates::bins(ident("x"), &[0.5, 1.0]),
        ];
        let sorted = rows(&session).sort(vec![ident("hash").sort(true, false)]);
        let fitted = rows(&session).aggregate(Vec::new(), fits);
        for (frame, names) in [
            (sorted, vec!["feedline_cell", "feedline_content_hash"]),
            (
                fitted,
                vec!["feedline_profile", "feedline_scan", "feedline_bins"],
            ),
        ] {
            let plan = frame.unwrap().create_physical_plan().await.unwrap();
            let to = To {
                store: STORE.to_owned(),
                folder: "scratch".to_owned(),
                name: Some("list".to_owned()),
            };
            let sent: Arc<dyn ExecutionPlan> = Arc::new(Spool::new(plan, to));
            let codec = Codec::default();
            let node = PhysicalPlanNode::try_from_physical_plan(Arc::clone(&sent), &codec).unwrap();
            let mut bytes = Vec::new();
            node.try_encode(&mut bytes).unwrap();
            let node = PhysicalPlanNode::try_decode(&bytes).unwrap();
            let found = node.try_into_physical_plan(&session.task_ctx(), &codec);
            let [sent, found] = [sent, found.unwrap()]
                .map(|plan| displayable(plan.as_ref()).indent(true).to_string());
            assert_eq!(found, sent);
            for name in names {
                assert!(sent.contains(name), "{sent}");
            }
        }
    }
}
