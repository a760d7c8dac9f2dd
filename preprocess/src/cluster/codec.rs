//! Plans as bytes: functions and operators of ours beside those of the engine.

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
use crate::travel;

/// What operators of ours begin with; those of the engine are messages that cannot begin so.
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
        travel::arrived(name, buf)
    }

    fn try_encode_udf(&self, node: &ScalarUDF, buf: &mut Vec<u8>) -> Result<()> {
        travel::packed(node, buf)
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
