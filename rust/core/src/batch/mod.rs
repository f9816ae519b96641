//! Which rows go through a model together, and the buffers that the model takes.

pub mod plan;
pub mod tokens;

pub use plan::{BatchPlan, PlanError, plan_batches};
pub use tokens::{TokenBatch, TokenError, TokenPlan, common_prefix};
