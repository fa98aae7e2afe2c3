//! The manager's jobs.

use super::McpClientManager;
use crate::Result;
use crate::ports::{Job, JobOutcome};

impl McpClientManager {
    /// Does one of the manager's jobs.
    pub(crate) async fn run_job(&self, _: &Job) -> Result<JobOutcome> {
        Ok(JobOutcome::Done)
    }
}
