//! Which rows go through a model together, and the buffers that the model takes.

pub mod plan;
pub mod tokens;

pub use plan::{Plan, PlanFault, plan_batches};
pub use tokens::{TokenBatch, TokenFault, TokenPlan, common_prefix};
