//! Sentences of real texts, and which of them answer a question.
//!
//! [`split`] finds them, [`rank`] scores them.

pub mod rank;
pub mod split;
