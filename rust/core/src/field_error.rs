//! What can be wrong with a value: a stable code, the bound that was broken and what was found, never the value.

use std::borrow::Cow;

macro_rules! codes {
    ($($(#[doc = $doc:literal])* $variant:ident = $name:literal, $meaning:literal;)*) => {
        /// Stable name of a rule. Callers may match on the text of [`Code::name`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code {
            $(#[doc = $meaning] $variant,)*
        }

        impl Code {
            /// Every code, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name that callers see, for example `too_long`.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// What the rule demands, in one line.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning,)* }
            }
        }
    };
}

codes! {
    AllZero = "all_zero", "a vector must not hold only zeros: it would have no direction, and the index would leave it out";
    BadIdentifier = "bad_identifier", "a name must match [a-z_][a-z0-9_]{0,47}, so that every derived name fits 63 bytes";
    Blank = "blank", "at least one character is required";
    KeyNotString = "key_not_string", "the keys of a JSON object must be strings";
    LengthDiffers = "length_differs", "the fields of one call must have the same number of rows";
    LoneSurrogate = "lone_surrogate", "the text holds half of a surrogate pair, which has no UTF-8 form";
    MalformedCopy = "malformed_copy", "the bytes are not a binary COPY stream of these types";
    Missing = "missing", "a value is required";
    NaiveTimestamp = "naive_timestamp", "a datetime must have a time zone; set its tzinfo";
    NormOutOfRange = "norm_out_of_range", "the squared length of a vector must be a normal float32; otherwise cosines become NaN";
    NotAscending = "not_ascending", "the indices of a sparse vector must ascend without repetition";
    NotBinary = "not_binary", "a bit must be 0 or 1";
    NotFinite = "not_finite", "a number must be finite, not NaN or infinity";
    Nul = "nul", "Postgres cannot store a NUL character in text or jsonb";
    OutOfRange = "out_of_range", "the value does not fit the type";
    ReservedName = "reserved_name", "names that begin with pg_ belong to Postgres";
    TooDeep = "too_deep", "JSON is nested too deeply";
    TooLong = "too_long", "the value is longer than allowed";
    TooShort = "too_short", "the value is shorter than allowed";
    UnknownType = "unknown_type", "the field type is unknown";
    UnsupportedType = "unsupported_type", "JSON can hold only dict, list, tuple, str, int, float, bool and None";
    WrongDimension = "wrong_dimension", "a vector does not have the required number of components";
    WrongDtype = "wrong_dtype", "an array does not have the dtype that the field's type needs; convert it with astype";
    WrongLayout = "wrong_layout", "an array must be C-contiguous and aligned; numpy.ascontiguousarray makes it so";
    WrongShape = "wrong_shape", "an array does not have the shape that the field's type needs";
    WrongType = "wrong_type", "the value does not have the Python type that the field needs";
    ZeroValue = "zero_value", "a sparse vector must not list components that are zero";
}

/// One broken rule, without its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleError {
    /// The rule.
    pub code: Code,
    /// The bound, as text.
    pub limit: Option<Cow<'static, str>>,
    /// What was found: a length, an offset, a type; never the value itself.
    pub actual: Option<String>,
}

impl RuleError {
    /// An error with neither bound nor finding.
    #[must_use]
    pub fn new(code: Code) -> Self {
        Self {
            code,
            limit: None,
            actual: None,
        }
    }

    /// The same with a bound.
    #[must_use]
    pub fn limit(mut self, limit: impl Into<Cow<'static, str>>) -> Self {
        self.limit = Some(limit.into());
        self
    }

    /// The same with a finding.
    #[must_use]
    pub fn actual(mut self, actual: impl Into<String>) -> Self {
        self.actual = Some(actual.into());
        self
    }

    /// The same, found in one element of an array.
    #[must_use]
    pub fn in_element(self, place: usize) -> Self {
        let actual = match &self.actual {
            Some(actual) => format!("element {place}: {actual}"),
            None => format!("element {place}"),
        };
        self.actual(actual)
    }

    /// The same error at its place.
    #[must_use]
    pub fn at(self, row: Option<usize>, field: &str) -> FieldError {
        FieldError {
            row,
            field: field.to_owned(),
            rule: self,
        }
    }
}

/// One broken rule at its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Row, counted from 0; `None` when the error concerns the whole call.
    pub row: Option<usize>,
    /// Name of the field.
    pub field: String,
    /// The rule that is broken.
    pub rule: RuleError,
}

/// Sorts by row, the whole call first; within a row the order of the fields stays.
pub fn sort_by_row(errors: &mut [FieldError]) {
    errors.sort_by_key(|error| error.row);
}
