//! Columns to bytes and back: what goes in comes out, blocks do not show, and no bytes make the reader panic.

use std::ops::Range;

use half::f16;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use semlex_core::pgcopy::{
    Batch, Column, EncodeError, FIRST_MICROSECOND, LAST_MICROSECOND, Lists, OwnedCells,
    OwnedColumn, OwnedLists, OwnedScalar, OwnedSparse, Rows, Scalar, ScalarColumn, Type, decode,
};

const SCALARS: [Scalar; 9] = [
    Scalar::Int2,
    Scalar::Int4,
    Scalar::Int8,
    Scalar::Float4,
    Scalar::Float8,
    Scalar::Bool,
    Scalar::Uuid,
    Scalar::Timestamptz,
    Scalar::Text,
];

fn kinds() -> Vec<Type> {
    let others = [
        Type::Jsonb,
        Type::Bytea,
        Type::Vector,
        Type::Halfvec,
        Type::Bit,
        Type::Sparsevec,
    ];
    SCALARS
        .into_iter()
        .flat_map(|kind| [Type::Scalar(kind), Type::Array(kind)])
        .chain(others)
        .collect()
}

fn cells<T: Copy + Default>(values: Vec<Option<T>>) -> OwnedCells<T> {
    let mut cells = OwnedCells::default();
    values.into_iter().for_each(|value| cells.push(value));
    cells
}

fn lists<T: Clone + Default>(rows: Vec<Option<Vec<T>>>) -> OwnedLists<T> {
    let mut lists = OwnedLists::default();
    rows.iter().for_each(|row| lists.push(row.as_deref()));
    lists
}

fn texts(rows: Vec<Option<String>>) -> OwnedLists<u8> {
    lists(
        rows.into_iter()
            .map(|row| row.map(String::into_bytes))
            .collect(),
    )
}

fn text() -> impl Strategy<Value = String> {
    "\\PC{0,12}"
}

fn half() -> impl Strategy<Value = f32> {
    any::<u16>()
        .prop_map(|bits| f16::from_bits(bits).to_f32())
        .prop_filter("finite", |value| value.is_finite())
}

fn single() -> impl Strategy<Value = f32> {
    any::<f32>().prop_filter("finite", |value| value.is_finite())
}

fn scalar(kind: Scalar, rows: usize) -> BoxedStrategy<OwnedScalar> {
    let double = any::<f64>().prop_filter("equal to itself", |value| !value.is_nan());
    match kind {
        Scalar::Int2 => vec(option::of(any::<i16>().prop_map(i64::from)), rows)
            .prop_map(|v| OwnedScalar::Int2(cells(v)))
            .boxed(),
        Scalar::Int4 => vec(option::of(any::<i32>().prop_map(i64::from)), rows)
            .prop_map(|v| OwnedScalar::Int4(cells(v)))
            .boxed(),
        Scalar::Int8 => vec(option::of(any::<i64>()), rows)
            .prop_map(|v| OwnedScalar::Int8(cells(v)))
            .boxed(),
        Scalar::Float4 => vec(option::of(single()), rows)
            .prop_map(|v| OwnedScalar::Float4(cells(v)))
            .boxed(),
        Scalar::Float8 => vec(option::of(double), rows)
            .prop_map(|v| OwnedScalar::Float8(cells(v)))
            .boxed(),
        Scalar::Bool => vec(option::of(0..2_u8), rows)
            .prop_map(|v| OwnedScalar::Bool(cells(v)))
            .boxed(),
        Scalar::Uuid => vec(option::of(any::<[u8; 16]>()), rows)
            .prop_map(|v| OwnedScalar::Uuid(cells(v)))
            .boxed(),
        Scalar::Timestamptz => vec(option::of(FIRST_MICROSECOND..=LAST_MICROSECOND), rows)
            .prop_map(|v| OwnedScalar::Timestamptz(cells(v)))
            .boxed(),
        Scalar::Text => vec(option::of(text()), rows)
            .prop_map(|v| OwnedScalar::Text(texts(v)))
            .boxed(),
    }
}

/// Elements for `lengths`, and where each row's lie.
fn array(kind: Scalar, lengths: Vec<Option<usize>>) -> BoxedStrategy<OwnedColumn> {
    let mut ranges: Vec<Option<Range<usize>>> = Vec::new();
    let mut end = 0;
    for length in lengths {
        ranges.push(length.map(|length| end..end + length));
        end += length.unwrap_or(0);
    }
    scalar(kind, end)
        .prop_map(move |elements| OwnedColumn::Array(elements, ranges.clone()))
        .boxed()
}

fn sparse(rows: usize) -> impl Strategy<Value = OwnedColumn> {
    let component = single().prop_filter("not zero", |value| *value != 0.0);
    let row = (
        1_000..2_000_i32,
        proptest::collection::btree_map(0..1_000_i32, component, 0..9),
    );
    vec(option::of(row), rows).prop_map(|rows| {
        let mut column = OwnedSparse::default();
        for row in rows {
            let parts = row.map(|(dimension, components)| {
                (
                    dimension,
                    components.into_iter().unzip::<_, _, Vec<_>, Vec<_>>(),
                )
            });
            column.push(
                parts
                    .as_ref()
                    .map(|(dimension, (indices, values))| (*dimension, &indices[..], &values[..])),
            );
        }
        OwnedColumn::Sparsevec(column)
    })
}

fn column(kind: Type, rows: usize) -> BoxedStrategy<OwnedColumn> {
    match kind {
        Type::Scalar(kind) => scalar(kind, rows).prop_map(OwnedColumn::Scalar).boxed(),
        Type::Array(kind) => vec(option::of(0..4_usize), rows)
            .prop_flat_map(move |lengths| array(kind, lengths))
            .boxed(),
        Type::Jsonb => vec(option::of(text()), rows)
            .prop_map(|v| OwnedColumn::Jsonb(texts(v)))
            .boxed(),
        Type::Bytea => vec(option::of(vec(any::<u8>(), 0..20)), rows)
            .prop_map(|v| OwnedColumn::Bytea(lists(v)))
            .boxed(),
        Type::Vector => vec(option::of(vec(single(), 1..20)), rows)
            .prop_map(|v| OwnedColumn::Vector(lists(v)))
            .boxed(),
        Type::Halfvec => vec(option::of(vec(half(), 1..20)), rows)
            .prop_map(|v| OwnedColumn::Halfvec(lists(v)))
            .boxed(),
        Type::Bit => vec(option::of(vec(0..2_u8, 0..20)), rows)
            .prop_map(|v| OwnedColumn::Bit(lists(v)))
            .boxed(),
        Type::Sparsevec => sparse(rows).boxed(),
    }
}

/// A table of every type.
fn table() -> impl Strategy<Value = Vec<OwnedColumn>> {
    (0..6_usize).prop_flat_map(|rows| {
        kinds()
            .into_iter()
            .map(|kind| column(kind, rows))
            .collect::<Vec<_>>()
    })
}

fn batch(columns: &[OwnedColumn]) -> Batch<'_> {
    Batch::new(
        columns
            .iter()
            .map(|column| ("a column", column.lend()))
            .collect(),
    )
    .expect("equal lengths")
}

proptest! {
    #[test]
    fn what_goes_in_comes_out(columns in table()) {
        prop_assert_eq!(batch(&columns).check(), vec![]);
        let bytes = batch(&columns).encode().expect("valid columns");
        prop_assert_eq!(decode(&bytes, &kinds()).expect("our own stream"), columns);
    }

    #[test]
    fn blocks_do_not_show(columns in table(), extra in 0..300_usize) {
        let batch = batch(&columns);
        let whole = batch.encode().expect("valid columns");
        let mut buffer = vec![0xaa; batch.largest_row().expect("small rows") + extra];
        let (mut joined, mut position) = (Vec::new(), 0);
        while position <= batch.rows() {
            let (next, written) = batch.encode_into(&mut buffer, position).expect("a large enough buffer");
            prop_assert!(next > position);
            joined.extend_from_slice(&buffer[..written]);
            position = next;
        }
        prop_assert_eq!(position, batch.rows() + 1);
        prop_assert_eq!(joined, whole);
        prop_assert_eq!(batch.encode_into(&mut buffer, position), Err(EncodeError::WrongPosition { last: batch.rows() }));
    }

    #[test]
    fn a_small_buffer_is_an_error_value(columns in table(), size in 0..21_usize) {
        let refused = batch(&columns).encode_into(&mut vec![0; size], 0);
        let too_small = matches!(refused, Err(EncodeError::BufferTooSmall { available, needed }) if available == size && needed > size);
        prop_assert!(too_small);
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in vec(any::<u8>(), 0..200), after_header in any::<bool>()) {
        let mut stream = if after_header { b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0".to_vec() } else { Vec::new() };
        stream.extend(bytes);
        for kind in kinds() {
            let _ = decode(&stream, &[kind]);
        }
    }

    #[test]
    fn what_a_mutated_stream_still_says_is_well_formed(
        columns in table(),
        edits in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = batch(&columns).encode().expect("valid columns");
        for (place, value) in edits {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(read) = decode(&bytes, &kinds()) {
            // NaN in a float column is legal, so bytes are compared, not values. The header's optional flags and
            // extension may differ.
            let again = batch(&read).encode().expect("the reader lets nothing through that the writer refuses");
            prop_assert_eq!(&again[19..], &bytes[bytes.len() - (again.len() - 19)..]);
        }
    }

    #[test]
    fn every_cut_is_an_error(columns in table(), cut in any::<prop::sample::Index>()) {
        let bytes = batch(&columns).encode().expect("valid columns");
        prop_assert!(decode(&bytes[..cut.index(bytes.len())], &kinds()).is_err());
    }

    #[test]
    fn halfvec_rounds(values in vec(-65519.0_f32..65519.0, 1..40)) {
        let column = OwnedColumn::Halfvec(lists(vec![Some(values.clone())]));
        let bytes = batch(std::slice::from_ref(&column)).encode().expect("in range");
        let rounded: Vec<f32> = values.iter().map(|&value| f16::from_f32_const(value).to_f32_const()).collect();
        let read = decode(&bytes, &[Type::Halfvec]).expect("our own stream");
        prop_assert_eq!(read, vec![OwnedColumn::Halfvec(lists(vec![Some(rounded)]))]);
    }

    #[test]
    fn one_bad_component_is_found_wherever_it_stands(
        mut values in vec(-1.0_f32..1.0, 1..300),
        place in any::<prop::sample::Index>(),
        bad in prop::sample::select(vec![f32::NAN, f32::INFINITY, f32::NEG_INFINITY]),
        half in any::<bool>(),
    ) {
        let place = place.index(values.len());
        values[place] = bad;
        let rows = lists(vec![None, Some(values)]);
        let columns = [if half { OwnedColumn::Halfvec(rows) } else { OwnedColumn::Vector(rows) }];
        let Err(EncodeError::Value(error)) = batch(&columns).encode() else { panic!("a refusal") };
        prop_assert_eq!(error.row, Some(1));
        prop_assert_eq!(error.rule.code.name(), "not_finite");
        prop_assert_eq!(error.rule.actual, Some(format!("component {place}")));
    }
}

/// IEEE 754-2019, 4.3.1: the nearest float16, of two the even one.
#[test]
fn halfvec_rounds_ties_to_even() {
    let (mut values, mut expected) = (Vec::new(), Vec::new());
    for bits in 0..f16::MAX.to_bits() {
        let (below, above) = (f16::from_bits(bits), f16::from_bits(bits + 1));
        let tie = f32::midpoint(below.to_f32_const(), above.to_f32_const());
        let even = if bits % 2 == 0 { below } else { above };
        for (value, half) in [
            (tie, even),
            (tie.next_down(), below),
            (tie.next_up(), above),
        ] {
            values.push(value);
            expected.push(half.to_f32_const());
        }
    }
    for (values, expected) in values.chunks(9999).zip(expected.chunks(9999)) {
        let column = OwnedColumn::Halfvec(lists(vec![Some(values.to_vec())]));
        let bytes = batch(std::slice::from_ref(&column))
            .encode()
            .expect("in range");
        let read = decode(&bytes, &[Type::Halfvec]).expect("our own stream");
        let expected = OwnedColumn::Halfvec(lists(vec![Some(expected.to_vec())]));
        assert_eq!(read, vec![expected]);
    }
}

#[test]
fn bytes_of_the_manual() {
    // Written out by hand from the file format's description: one row of int4 7, NULL text, vector [1, -2].
    let columns = [
        OwnedColumn::Scalar(OwnedScalar::Int4(cells(vec![Some(7)]))),
        OwnedColumn::Scalar(OwnedScalar::Text(texts(vec![None]))),
        OwnedColumn::Vector(lists(vec![Some(vec![1.0, -2.0])])),
    ];
    let mut expected = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0".to_vec();
    expected.extend([0, 3, 0, 0, 0, 4, 0, 0, 0, 7, 0xff, 0xff, 0xff, 0xff]);
    expected.extend([
        0, 0, 0, 12, 0, 2, 0, 0, 0x3f, 0x80, 0, 0, 0xc0, 0, 0, 0, 0xff, 0xff,
    ]);
    assert_eq!(batch(&columns).encode().expect("valid columns"), expected);
}

#[test]
fn claimed_lengths_allocate_nothing() {
    // An array that claims 2^31 - 1 elements and a field that claims 2 GiB, in a few bytes.
    let head = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\x01";
    let array = [
        &head[..],
        &[
            0, 0, 0, 20, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 25, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 1,
        ],
    ]
    .concat();
    assert_eq!(
        decode(&array, &[Type::Array(Scalar::Text)])
            .expect_err("cut")
            .reason,
        "the data ends early"
    );
    let field = [&head[..], &[0x7f, 0xff, 0xff, 0xff, 1]].concat();
    assert_eq!(
        decode(&field, &[Type::Bytea]).expect_err("cut").reason,
        "the data ends early"
    );
}

#[test]
fn a_row_with_too_many_fields_is_named() {
    let stream = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\x02";
    let error = decode(stream, &[Type::Bytea]).expect_err("two fields");
    assert_eq!((error.row, error.column, error.offset), (Some(0), None, 19));
    assert_eq!(error.reason, "the row has 2 fields, expected 1");
}

#[test]
fn columns_of_unequal_length_are_refused() {
    let columns = [
        OwnedColumn::Bytea(lists(vec![None])),
        OwnedColumn::Bytea(lists(vec![None, None])),
    ];
    let named = columns
        .iter()
        .zip(["first", "second"])
        .map(|(column, name)| (name, column.lend()))
        .collect();
    let error = Batch::new(named).expect_err("unequal");
    assert_eq!(
        (error.row, error.field.as_str(), error.rule.code.name()),
        (None, "second", "length_differs")
    );
}

#[test]
fn a_value_of_a_gibibyte_is_refused_before_anything_is_written() {
    // The same mebibyte 1,100 times: sizes as of 1.1 GiB without the memory.
    let mebibyte = vec![b'x'; 1 << 20];
    let repeated = vec![Some(0..1 << 20); 1100];
    let elements = ScalarColumn::Text(Lists {
        values: &mebibyte,
        rows: Rows::Ranges(&repeated),
    });
    let batch = Batch::new(vec![(
        "texts",
        Column::Array(
            elements,
            Rows::Dense {
                width: 1100,
                count: 1,
            },
        ),
    )])
    .expect("one");
    let error = batch.largest_row().expect_err("too long");
    assert_eq!((error.row, error.rule.code.name()), (Some(0), "too_long"));
    assert_eq!(batch.check(), vec![error]);
}

#[test]
fn lengths_that_wrap_are_errors() {
    for width in [usize::MAX, usize::MAX / 2, 1 << 33, 1 << 32, 1 << 31, 17] {
        let column = Column::Vector(Lists {
            values: &[1.0; 16],
            rows: Rows::Dense { width, count: 3 },
        });
        let batch = Batch::new(vec![("vector", column)]).expect("one");
        assert_eq!(
            batch
                .largest_row()
                .expect_err("no such values")
                .rule
                .code
                .name(),
            "length_differs"
        );
        assert!(batch.encode_into(&mut [0; 100], 0).is_err());
    }
}

#[test]
fn a_table_has_at_most_1600_columns() {
    let column = OwnedColumn::Bytea(lists(vec![None]));
    let columns = |count| {
        Batch::new(
            (0..count)
                .map(|_| ("column", column.lend()))
                .collect::<Vec<_>>(),
        )
        .map(drop)
    };
    assert_eq!(columns(1600), Ok(()));
    assert_eq!(
        columns(1601).expect_err("too many").rule.code.name(),
        "too_long"
    );
}
