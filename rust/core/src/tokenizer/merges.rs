//! Byte pair encoding of one piece: its bytes or characters; the adjacent pair learnt first is joined until none is left.
//!
//! R. Sennrich, B. Haddow and A. Birch, "Neural Machine Translation of Rare Words with Subword Units", ACL 2016. Of two
//! places with the same pair the left one comes first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rustc_hash::FxHashMap;

use super::file::FirstTokens;

/// Pieces of up to this many first tokens look for the next pair by scanning all: faster than a heap, up to here.
const SCANNED_TOKENS: usize = 96;
/// Memory for pieces up to this length is kept; more is freed.
const KEPT_LINKS: usize = 1 << 14;
const NO_RANK: u32 = u32::MAX;
const NONE: usize = usize::MAX;

/// What two adjacent tokens become, and how early that was learnt.
#[derive(Clone, Copy, Debug)]
struct Merge {
    rank: u32,
    id: u32,
}

const NO_MERGE: Merge = Merge {
    rank: NO_RANK,
    id: 0,
};

/// The pairs that are merged.
pub(super) struct Merges {
    first: FirstTokens,
    pairs: FxHashMap<(u32, u32), Merge>,
    /// The same for two bytes, where pieces begin as bytes: `byte_pairs[first * 256 + second]`.
    byte_pairs: Vec<Merge>,
}

/// Memory that one piece leaves to the next.
#[derive(Default)]
pub(super) struct Workspace {
    parts: Vec<Part>,
    links: Vec<Link>,
    queue: BinaryHeap<Reverse<(u32, usize)>>,
}

impl Workspace {
    /// Frees the memory that an uncommonly long piece needed.
    pub(super) fn release_excess(&mut self) {
        if self.links.capacity() > KEPT_LINKS {
            *self = Self::default();
        }
    }
}

/// A token, and its merge with the one behind it.
#[derive(Clone, Copy)]
struct Part {
    id: u32,
    next: Merge,
}

/// A token in a list with two ends; `NONE` stands for no neighbour.
#[derive(Clone, Copy)]
struct Link {
    part: Part,
    before: usize,
    after: usize,
}

impl Merges {
    /// `first` are the tokens that pieces begin as, `pairs` (left, right, merged) in the order in which they were learnt; of
    /// equal pairs the last counts. Nothing where there are more than 32 bits can count.
    pub(super) fn new(
        first: FirstTokens,
        pairs: impl Iterator<Item = (u32, u32, u32)>,
    ) -> Option<Self> {
        let mut table = FxHashMap::default();
        for (rank, (left, right, id)) in pairs.enumerate() {
            let rank = u32::try_from(rank).ok().filter(|&rank| rank != NO_RANK)?;
            table.insert((left, right), Merge { rank, id });
        }
        let byte_pairs = match &first {
            FirstTokens::Bytes(bytes) => bytes
                .iter()
                .flat_map(|&first| bytes.iter().map(move |&second| (first, second)))
                .map(|pair| table.get(&pair).copied().unwrap_or(NO_MERGE))
                .collect(),
            FirstTokens::Characters(_) => Vec::new(),
        };
        Some(Self {
            first,
            pairs: table,
            byte_pairs,
        })
    }

    /// Puts the tokens of a piece behind `ids`.
    pub(super) fn encode(&self, piece: &[u8], workspace: &mut Workspace, ids: &mut Vec<u32>) {
        let parts = &mut workspace.parts;
        parts.clear();
        match &self.first {
            FirstTokens::Bytes(bytes) => parts.extend(self.byte_parts(bytes, piece)),
            FirstTokens::Characters(tokens) => tokens.each(piece, |id| {
                if let Some(before) = parts.last_mut() {
                    before.next = self.merge(before.id, id);
                }
                let next = NO_MERGE;
                parts.push(Part { id, next });
            }),
        }
        if parts.len() <= SCANNED_TOKENS {
            self.scan(parts, ids);
        } else {
            self.queue(workspace, ids);
        }
    }

    fn scan(&self, parts: &mut Vec<Part>, ids: &mut Vec<u32>) {
        loop {
            let mut best = (NO_RANK, 0, 0);
            for (place, part) in parts.iter().enumerate() {
                if part.next.rank < best.0 {
                    best = (part.next.rank, place, part.next.id);
                }
            }
            let (rank, place, id) = best;
            if rank == NO_RANK || place + 1 >= parts.len() {
                break;
            }
            parts.remove(place + 1);
            let after = parts.get(place + 1).copied();
            if let Some(part) = parts.get_mut(place) {
                let next = after.map_or(NO_MERGE, |after| self.merge(id, after.id));
                *part = Part { id, next };
            }
            if let Some(before) = place.checked_sub(1).and_then(|place| parts.get_mut(place)) {
                before.next = self.merge(before.id, id);
            }
        }
        ids.extend(parts.iter().map(|part| part.id));
    }

    /// The same in `n log n` steps, for pieces without end: a line of a million dashes is one piece.
    fn queue(&self, workspace: &mut Workspace, ids: &mut Vec<u32>) {
        let Workspace {
            parts,
            links,
            queue,
        } = workspace;
        links.clear();
        queue.clear();
        links.extend(parts.iter().enumerate().map(|(place, &part)| Link {
            part,
            before: place.wrapping_sub(1), // the first has `NONE`
            after: if place + 1 < parts.len() {
                place + 1
            } else {
                NONE
            },
        }));
        let waiting = |(place, link): (usize, &Link)| {
            (link.part.next.rank != NO_RANK).then_some(Reverse((link.part.next.rank, place)))
        };
        queue.extend(links.iter().enumerate().filter_map(waiting));
        while let Some(Reverse((rank, place))) = queue.pop() {
            let Some(link) = links.get(place).copied() else {
                break;
            };
            // What changed since it was queued has another rank now, or none; so has what became part of its left.
            if link.part.next.rank != rank {
                continue;
            }
            let Some(right) = links.get_mut(link.after) else {
                break;
            };
            let after = right.after;
            right.part.next = NO_MERGE;
            let id = link.part.next.id;
            let next = match links.get_mut(after) {
                Some(following) => {
                    following.before = place;
                    self.merge(id, following.part.id)
                }
                None => NO_MERGE,
            };
            if let Some(link) = links.get_mut(place) {
                (link.part, link.after) = (Part { id, next }, after);
            }
            if next.rank != NO_RANK {
                queue.push(Reverse((next.rank, place)));
            }
            if let Some(before) = links.get_mut(link.before) {
                before.part.next = self.merge(before.part.id, id);
                if before.part.next.rank != NO_RANK {
                    queue.push(Reverse((before.part.next.rank, link.before)));
                }
            }
        }
        let mut place = 0;
        while let Some(link) = links.get(place) {
            ids.push(link.part.id);
            place = link.after;
        }
    }

    /// The bytes of a piece, each with its merge with the next.
    fn byte_parts<'a>(
        &'a self,
        bytes: &'a [u32; 256],
        piece: &'a [u8],
    ) -> impl Iterator<Item = Part> + 'a {
        let seconds = piece.iter().skip(1).map(Some).chain([None]);
        piece.iter().zip(seconds).map(|(&first, second)| {
            let next = second.and_then(|&second| {
                let place = usize::from(first) * 256 + usize::from(second);
                self.byte_pairs.get(place).copied()
            });
            Part {
                id: bytes.get(usize::from(first)).copied().unwrap_or_default(),
                next: next.unwrap_or(NO_MERGE),
            }
        })
    }

    #[inline]
    fn merge(&self, left: u32, right: u32) -> Merge {
        self.pairs.get(&(left, right)).copied().unwrap_or(NO_MERGE)
    }
}
