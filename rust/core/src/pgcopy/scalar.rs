//! The types that may also be the element of an array.

/// Gives all types that may also be the element of an array to another macro: the name in SQL, the type's row in `pg_type`
/// (these numbers are fixed in `pg_type.dat`), and how values are held, borrowed and owned.
macro_rules! scalars {
    ($take:ident) => {
        $take! {
            /// 16-bit integer, checked when it is written.
            Int2 "int2" 21 Cells OwnedCells i64,
            /// 32-bit integer, checked when it is written.
            Int4 "int4" 23 Cells OwnedCells i64,
            /// 64-bit integer.
            Int8 "int8" 20 Cells OwnedCells i64,
            /// 32-bit float.
            Float4 "float4" 700 Cells OwnedCells f32,
            /// 64-bit float.
            Float8 "float8" 701 Cells OwnedCells f64,
            /// Truth value, 0 or 1 (a `bool` of Rust must not be made from memory that Python owns).
            Bool "bool" 16 Cells OwnedCells u8,
            /// 16 bytes.
            Uuid "uuid" 2950 Cells OwnedCells [u8; 16],
            /// Instant, in microseconds since 1970-01-01 UTC.
            Timestamptz "timestamptz" 1184 Cells OwnedCells i64,
            /// UTF-8 without NUL.
            Text "text" 25 Lists OwnedLists u8,
        }
    };
}

macro_rules! scalar_types {
    ($($(#[$doc:meta])* $kind:ident $name:literal $oid:literal $cells:ident $owned:ident $value:ty,)*) => {
        /// Types that may also be the element of an array.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Scalar {
            $($(#[$doc])* $kind,)*
        }

        impl Scalar {
            /// The type's row in `pg_type`, which an array carries with it.
            #[must_use]
            pub fn oid(self) -> u32 {
                match self { $(Self::$kind => $oid,)* }
            }

            pub(super) fn parse(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$kind),)*
                    _ => None,
                }
            }
        }
    };
}
scalars!(scalar_types);
