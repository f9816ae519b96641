//! Postgres' binary `COPY`: streams that are read, and values that are written.

use semlex_core::pgcopy::{
    Batch, Column, OwnedCells, OwnedColumn, OwnedLists, OwnedScalar, OwnedSparse, Scalar, Type,
    decode,
};

use super::{Target, behaviour, coarse};
use crate::inputs::Input;

pub(crate) const DECODE: Target = Target {
    name: "copy-decode",
    run: read,
    examples: || {
        let columns = (0..4).map(|number| columns(&[number; 400]));
        let streams = columns.filter_map(|columns| {
            let numbers = KINDS.iter().zip(0_u8..).filter_map(|(kind, number)| {
                columns.iter().any(|(one, _)| one == kind).then_some(number)
            });
            let numbers: Vec<u8> = numbers.collect();
            let count = u8::try_from(numbers.len()).ok()?;
            let stream = Batch::new(lent(&columns)).ok()?.encode().ok()?;
            Some([&[count], &*numbers, &*stream].concat())
        });
        streams.collect()
    },
    words: &[
        b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0",
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff",
        b"\x80\0\0\0",
        b"\0\0\0\x01",
        b"\xff\xff",
        b"\x7f\xc0\0\0",
    ],
};
pub(crate) const ENCODE: Target = Target {
    name: "copy-encode",
    run: written,
    examples: || vec![vec![], (0..=255).collect(), vec![1; 300], vec![0xff; 300]],
    words: &[
        b"\0",
        b"\xff\xff\xff\xff",
        b"\x7f\xf0\0\0\0\0\0\0",
        b"\x80\0\0\0\0\0\0\0",
    ],
};

const KINDS: [Type; 24] = [
    Type::Scalar(Scalar::Int2),
    Type::Scalar(Scalar::Int4),
    Type::Scalar(Scalar::Int8),
    Type::Scalar(Scalar::Float4),
    Type::Scalar(Scalar::Float8),
    Type::Scalar(Scalar::Bool),
    Type::Scalar(Scalar::Uuid),
    Type::Scalar(Scalar::Timestamptz),
    Type::Scalar(Scalar::Text),
    Type::Array(Scalar::Int2),
    Type::Array(Scalar::Int4),
    Type::Array(Scalar::Int8),
    Type::Array(Scalar::Float4),
    Type::Array(Scalar::Float8),
    Type::Array(Scalar::Bool),
    Type::Array(Scalar::Uuid),
    Type::Array(Scalar::Timestamptz),
    Type::Array(Scalar::Text),
    Type::Jsonb,
    Type::Bytea,
    Type::Vector,
    Type::Halfvec,
    Type::Bit,
    Type::Sparsevec,
];

fn read(input: &[u8]) -> u64 {
    let mut input = Input::new(input);
    let count = input.below(6);
    let kinds: Vec<Type> = (0..count)
        .filter_map(|_| KINDS.get(input.below(24)).copied())
        .collect();
    match decode(input.rest(), &kinds) {
        Err(error) => behaviour((error.reason, error.column, coarse(error.offset))),
        Ok(decoded) => {
            let named = decoded.iter().map(|column| ("column", column.lend()));
            let again = Batch::new(named.collect()).map(|batch| batch.encode().is_ok());
            let rows = decoded.first().map_or(0, OwnedColumn::count);
            behaviour((again.is_ok_and(|encoded| encoded), coarse(rows), count))
        }
    }
}

fn written(input: &[u8]) -> u64 {
    let columns = columns(input);
    let kinds: Vec<Type> = columns.iter().map(|(kind, _)| *kind).collect();
    let batch = match Batch::new(lent(&columns)) {
        Ok(batch) => batch,
        Err(error) => return behaviour((error.rule.code.name(), error.row)),
    };
    let refused = batch.check();
    // A buffer that is too small holds a part of the rows, and asks again for the rest.
    let mut buffer = vec![0; 64 + input.len() / 4];
    let part = batch.encode_into(&mut buffer, 0).is_ok();
    match batch.encode() {
        Err(error) => behaviour((part, refused.is_empty(), coarse(format!("{error:?}").len()))),
        Ok(bytes) => {
            let decoded = decode(&bytes, &kinds);
            // What the check refuses is not encoded by who keeps to it.
            if refused.is_empty() {
                assert_eq!(decoded.map(|decoded| decoded.len()), Ok(columns.len()));
            }
            behaviour((part, coarse(bytes.len()), kinds.len()))
        }
    }
}

fn lent(columns: &[(Type, OwnedColumn)]) -> Vec<(&str, Column<'_>)> {
    columns
        .iter()
        .map(|(_, column)| ("column", column.lend()))
        .collect()
}

/// Columns of equally many rows, in the order of their types, with whatever values the bytes give.
fn columns(input: &[u8]) -> Vec<(Type, OwnedColumn)> {
    let mut input = Input::new(input);
    let rows = input.below(5);
    let wanted = u32::from_le_bytes(input.array());
    let kinds = KINDS.iter().enumerate();
    kinds
        .filter(|(number, _)| wanted >> number & 1 == 1)
        .map(|(_, kind)| (*kind, column(*kind, rows, &mut input)))
        .collect()
}

fn column(kind: Type, rows: usize, input: &mut Input<'_>) -> OwnedColumn {
    match kind {
        Type::Scalar(kind) => OwnedColumn::Scalar(scalar(kind, rows, input)),
        Type::Array(kind) => {
            let mut end = 0;
            let ranges = (0..rows).map(|_| {
                let start = end;
                end += input.below(4);
                present(input).then_some(start..end)
            });
            let ranges = ranges.collect();
            OwnedColumn::Array(scalar(kind, end, input), ranges)
        }
        Type::Jsonb => OwnedColumn::Jsonb(texts(rows, input)),
        Type::Bytea => OwnedColumn::Bytea(bytes(rows, input)),
        Type::Bit => OwnedColumn::Bit(bytes(rows, input)),
        Type::Vector => OwnedColumn::Vector(floats(rows, input)),
        Type::Halfvec => OwnedColumn::Halfvec(floats(rows, input)),
        Type::Sparsevec => {
            let mut sparse = OwnedSparse::default();
            for _ in 0..rows {
                let count = input.below(5);
                let dimension = i32::from_le_bytes(input.array());
                let indices: Vec<i32> = (0..count)
                    .map(|_| i32::from_le_bytes(input.array()))
                    .collect();
                let values: Vec<f32> = (0..count)
                    .map(|_| f32::from_le_bytes(input.array()))
                    .collect();
                let row = (dimension, indices.as_slice(), values.as_slice());
                sparse.push(present(input).then_some(row));
            }
            OwnedColumn::Sparsevec(sparse)
        }
    }
}

/// Whether a value is not NULL: seven of eight are not.
fn present(input: &mut Input<'_>) -> bool {
    !input.byte().is_multiple_of(8)
}

fn scalar(kind: Scalar, count: usize, input: &mut Input<'_>) -> OwnedScalar {
    fn cells<T: Copy + Default>(
        count: usize,
        input: &mut Input<'_>,
        value: impl Fn(&mut Input<'_>) -> T,
    ) -> OwnedCells<T> {
        let mut cells = OwnedCells::default();
        for _ in 0..count {
            let value = value(input);
            cells.push(present(input).then_some(value));
        }
        cells
    }
    // Small numbers as often as great ones.
    let whole = |input: &mut Input<'_>| i64::from_le_bytes(input.array()) >> input.below(64);
    match kind {
        Scalar::Int2 => OwnedScalar::Int2(cells(count, input, whole)),
        Scalar::Int4 => OwnedScalar::Int4(cells(count, input, whole)),
        Scalar::Int8 => OwnedScalar::Int8(cells(count, input, whole)),
        Scalar::Timestamptz => OwnedScalar::Timestamptz(cells(count, input, whole)),
        Scalar::Float4 => OwnedScalar::Float4(cells(count, input, |input| {
            f32::from_le_bytes(input.array())
        })),
        Scalar::Float8 => OwnedScalar::Float8(cells(count, input, |input| {
            f64::from_le_bytes(input.array())
        })),
        Scalar::Bool => OwnedScalar::Bool(cells(count, input, |input| input.byte())),
        Scalar::Uuid => OwnedScalar::Uuid(cells(count, input, |input| input.array())),
        Scalar::Text => OwnedScalar::Text(texts(count, input)),
    }
}

/// Texts are UTF-8 by their type, before they come here.
fn texts(rows: usize, input: &mut Input<'_>) -> OwnedLists<u8> {
    let given = bytes(rows, input);
    let mut lists = OwnedLists::default();
    for row in 0..rows {
        let text = given.get(row).map(String::from_utf8_lossy);
        lists.push(text.as_deref().map(str::as_bytes));
    }
    lists
}

fn bytes(rows: usize, input: &mut Input<'_>) -> OwnedLists<u8> {
    let mut lists = OwnedLists::default();
    for _ in 0..rows {
        let count = input.below(40);
        let row = input.take(count);
        lists.push(present(input).then_some(row));
    }
    lists
}

fn floats(rows: usize, input: &mut Input<'_>) -> OwnedLists<f32> {
    let mut lists = OwnedLists::default();
    for _ in 0..rows {
        let count = input.below(9);
        let row: Vec<f32> = (0..count)
            .map(|_| f32::from_le_bytes(input.array()))
            .collect();
        lists.push(present(input).then_some(row.as_slice()));
    }
    lists
}
