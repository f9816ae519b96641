//! A segment as searches keep it.

use std::sync::{Arc, Mutex, PoisonError};

use super::bm25::{Parameters, TfNormTable};
use crate::keyword::format::Header;
use crate::segments::known_index::Segment;
use crate::segments::{IdRanges, SegmentId};

/// A segment that was read: its language and header, which never change, and the norms of the last searches.
#[derive(Debug)]
pub(crate) struct ReadSegment {
    pub(crate) language: Arc<str>,
    pub(crate) header: Arc<Header>,
    tf_norms: Mutex<Option<Arc<TfNormTable>>>,
}

impl ReadSegment {
    pub(crate) fn new(language: &str, header: Arc<Header>) -> Self {
        Self {
            language: Arc::from(language),
            header,
            tf_norms: Mutex::default(),
        }
    }

    /// The norms for about this average length, rebuilt only when the average has moved too far; a search widens its
    /// margin by their drift.
    pub(crate) fn tf_norms(&self, parameters: Parameters, average_length: f64) -> Arc<TfNormTable> {
        let mut kept = self.tf_norms.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(table) = kept.as_ref()
            && table.serves(parameters, average_length)
        {
            return Arc::clone(table);
        }
        let table = Arc::new(TfNormTable::new(parameters, average_length, &self.header));
        *kept = Some(Arc::clone(&table));
        table
    }
}

impl Segment for ReadSegment {
    fn id(&self) -> &SegmentId {
        &self.header.id
    }

    fn ids(&self) -> &IdRanges {
        &self.header.ids
    }
}
