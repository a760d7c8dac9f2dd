//! Workers run each stage of a query once: they refuse a restarted stage, and the build reruns the
//! query.
//!
//! A stage hands its data to the next when all its tasks are done. The data stay on the workers
//! that made them, so the loss of a worker can take away the input of a running stage. The
//! scheduler then repairs the query while it runs, and that gives wrong rows: it forgets which
//! tasks of a started stage were done, runs all of them again, and leaves the output of the done
//! ones in the inputs of the next stage, which reads both. With one worker killed in the middle of
//! a sort, 8,657 rows came back of 5,997. Neither the rows nor the operators show the fault.
//!
//! Each such repair gives a stage the number of a further attempt, and a task knows its attempt. So
//! a task of any attempt but the first ends the query, whatever made the scheduler restart it: no
//! query with a restarted stage can succeed. That holds however late a loss is noticed, and whether
//! it is noticed by silence or by failed fetches. Where data cannot be fetched the scheduler is
//! also configured not to repair at all (`stage_max_failures`), which ends the query at once
//! instead of at the next task.
//!
//! The repair of single tasks of a first attempt remains allowed and is right: a task that failed
//! or was lost gets a new number when it is rerun, later messages about the old number are ignored,
//! and the output of a lost worker is removed from the inputs of the next stage before it begins.
//! Files of rows have unique names, and the one list of a query names the valid ones: one per
//! partition, all different, which the build checks.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use ballista_core::{
    JobId,
    serde::protobuf::{
        RuntimeStatsReport, ShuffleWritePartition, TaskColumnStats, WindowStateReport,
    },
};
use ballista_executor::execution_engine::{
    DefaultExecutionEngine, ExecutionEngine, QueryStageExecutor,
};
use datafusion::{
    common::exec_err,
    error::Result,
    execution::TaskContext,
    physical_plan::{ExecutionPlan, metrics::MetricsSet},
    prelude::SessionConfig,
};

/// Message of a refused task.
pub(super) const REFUSED: &str = "a stage was begun again, as a worker was lost";

/// Runs stages as the engine does, but none a second time. Connections to other workers are not kept between fetches, as the
/// engine's own store of them cannot be had from outside.
#[derive(Default)]
pub(super) struct FirstAttempts(DefaultExecutionEngine);

impl ExecutionEngine for FirstAttempts {
    fn create_query_stage_exec(
        &self,
        job_id: JobId,
        stage_id: usize,
        task_id: usize,
        global_output_partition_ids: Vec<usize>,
        plan: Arc<dyn ExecutionPlan>,
        work_dir: &str,
        config: &SessionConfig,
    ) -> Result<Arc<dyn QueryStageExecutor>> {
        let stage = self.0.create_query_stage_exec(
            job_id,
            stage_id,
            task_id,
            global_output_partition_ids,
            plan,
            work_dir,
            config,
        )?;
        Ok(Arc::new(FirstAttempt(stage)))
    }
}

#[derive(Debug)]
struct FirstAttempt(Arc<dyn QueryStageExecutor>);

impl fmt::Display for FirstAttempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[async_trait]
impl QueryStageExecutor for FirstAttempt {
    // Refused here and not when the stage is made: a failure there is reported for the wrong
    // attempt, and ignored.
    async fn execute_query_stage(
        &self,
        task_id: usize,
        context: Arc<TaskContext>,
    ) -> Result<Vec<ShuffleWritePartition>> {
        let identity = context.task_id();
        match identity.as_deref().and_then(attempt) {
            Some(0) => self.0.execute_query_stage(task_id, context).await,
            Some(_) => exec_err!("{REFUSED}"),
            None => exec_err!("a task does not say which attempt it belongs to: {identity:?}"),
        }
    }

    fn collect_plan_metrics(&self) -> Vec<MetricsSet> {
        self.0.collect_plan_metrics()
    }

    fn collect_runtime_stats_reports(&self) -> Vec<RuntimeStatsReport> {
        self.0.collect_runtime_stats_reports()
    }

    fn collect_window_state_reports(&self) -> Result<Vec<WindowStateReport>> {
        self.0.collect_window_state_reports()
    }

    fn collect_column_stats(&self) -> Vec<TaskColumnStats> {
        self.0.collect_column_stats()
    }
}

/// The attempt of the stage that a task is of, from 0. The engine names tasks
/// `TID <query>/<stage>.<attempt>/<task>.<attempt of the task>`.
fn attempt(identity: &str) -> Option<u32> {
    let (stage, _task) = identity.rsplit_once('/')?;
    let (_query, stage) = stage.rsplit_once('/')?;
    let (_stage, attempt) = stage.split_once('.')?;
    attempt.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_tell_the_attempt_of_their_stage() {
        assert_eq!(attempt("TID 3Dx0/2.0/17.3"), Some(0));
        assert_eq!(attempt("TID a/b.9/2.11/17.0"), Some(11));
        for wrong in [
            "",
            "TID",
            "TID 3Dx0/2/17.0",
            "TID 3Dx0/2.x/17.0",
            "2.0/17.0",
        ] {
            assert_eq!(attempt(wrong), None, "{wrong}");
        }
    }

    /// A stage that has nothing to do.
    #[derive(Debug)]
    struct Idle;

    impl fmt::Display for Idle {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("idle")
        }
    }

    #[async_trait]
    impl QueryStageExecutor for Idle {
        async fn execute_query_stage(
            &self,
            _: usize,
            _: Arc<TaskContext>,
        ) -> Result<Vec<ShuffleWritePartition>> {
            Ok(Vec::new())
        }

        fn collect_plan_metrics(&self) -> Vec<MetricsSet> {
            Vec::new()
        }
    }

    #[tokio::test]
    async fn a_stage_that_is_begun_again_is_refused() {
        let run = async |identity: Option<&str>| {
            let context = TaskContext::default();
            let context = match identity {
                Some(identity) => context.with_task_id(identity.to_owned()),
                None => context,
            };
            let stage = FirstAttempt(Arc::new(Idle));
            stage.execute_query_stage(0, Arc::new(context)).await
        };
        // A task that is run again in the first attempt is not refused.
        run(Some("TID q/1.0/4.2")).await.unwrap();
        let again = run(Some("TID q/1.1/4.0")).await.unwrap_err();
        assert!(again.to_string().contains(REFUSED), "{again}");
        for unknown in [None, Some("4")] {
            let unknown = run(unknown).await.unwrap_err();
            assert!(unknown.to_string().contains("which attempt"), "{unknown}");
        }
    }
}
