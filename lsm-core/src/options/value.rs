//! How one option value is read, written and checked: a trait over the few types that the table
//! uses, and the enums among them.
//!
//! ```text
//! bool      true | false
//! integer   digits, for bytes with an optional suffix K, M, G or T (powers of 1024): 64M
//! number    digits with an optional fraction: 10 or 9.5
//! choice    one of a list of words
//! ```

use std::ops::RangeInclusive;

use super::{OptionType, OptionUnit};

/// Least and greatest value of an option, whole numbers also where the value is a fraction.
pub(super) type Range = RangeInclusive<u64>;

/// A type that an option may have. Errors are the reason alone; callers add the option's name.
pub(super) trait Value: Sized + Copy {
    const TYPE: OptionType;
    fn parse(text: &str, unit: OptionUnit) -> Result<Self, String>;
    fn to_text(self, unit: OptionUnit) -> String;
    fn check(self, range: &Range, unit: OptionUnit) -> Result<(), String>;
}

const SUFFIXES: [(char, u32); 4] = [('T', 40), ('G', 30), ('M', 20), ('K', 10)];

fn takes_suffix(unit: OptionUnit) -> bool {
    matches!(unit, OptionUnit::Bytes | OptionUnit::BytesPerSecond)
}

/// `value` with the largest suffix that loses nothing.
pub(super) fn integer_text(value: u64, unit: OptionUnit) -> String {
    if value != 0 && takes_suffix(unit) {
        for (suffix, shift) in SUFFIXES {
            if value.trailing_zeros() >= shift {
                return format!("{}{suffix}", value >> shift);
            }
        }
    }
    value.to_string()
}

fn parse_integer(text: &str, unit: OptionUnit) -> Result<u64, String> {
    let mut digits = text;
    let mut shift = 0;
    if let Some(last) = text.chars().last().map(|c| c.to_ascii_uppercase())
        && let Some((_, bits)) = SUFFIXES.iter().find(|(suffix, _)| *suffix == last)
    {
        if !takes_suffix(unit) {
            return Err("only byte sizes take a suffix".into());
        }
        digits = text[..text.len() - 1].trim_end();
        shift = *bits;
    }
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        let hint = if takes_suffix(unit) { ", with K, M, G or T at its end or without" } else { "" };
        return Err(format!("want a whole number{hint}"));
    }
    let number: u64 = digits.parse().map_err(|_| "does not fit in 64 bits".to_string())?;
    number.checked_mul(1 << shift).ok_or_else(|| "does not fit in 64 bits".to_string())
}

fn out_of_range(found: &str, range: &Range, unit: OptionUnit) -> String {
    format!("{found} is not in {}..={}", integer_text(*range.start(), unit), integer_text(*range.end(), unit))
}

impl Value for u64 {
    const TYPE: OptionType = OptionType::Integer;

    fn parse(text: &str, unit: OptionUnit) -> Result<u64, String> {
        parse_integer(text, unit)
    }

    fn to_text(self, unit: OptionUnit) -> String {
        integer_text(self, unit)
    }

    fn check(self, range: &Range, unit: OptionUnit) -> Result<(), String> {
        if range.contains(&self) {
            return Ok(());
        }
        Err(out_of_range(&integer_text(self, unit), range, unit))
    }
}

impl Value for usize {
    const TYPE: OptionType = OptionType::Integer;

    fn parse(text: &str, unit: OptionUnit) -> Result<usize, String> {
        usize::try_from(parse_integer(text, unit)?).map_err(|_| "does not fit in 64 bits".into())
    }

    fn to_text(self, unit: OptionUnit) -> String {
        integer_text(self as u64, unit)
    }

    fn check(self, range: &Range, unit: OptionUnit) -> Result<(), String> {
        (self as u64).check(range, unit)
    }
}

impl Value for f64 {
    const TYPE: OptionType = OptionType::Number;

    fn parse(text: &str, _unit: OptionUnit) -> Result<f64, String> {
        let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        match text.parse::<f64>() {
            Ok(number) if plain && number.is_finite() => Ok(number),
            _ => Err("want a number such as 10 or 9.5".into()),
        }
    }

    fn to_text(self, _unit: OptionUnit) -> String {
        format!("{self:?}")
    }

    fn check(self, range: &Range, unit: OptionUnit) -> Result<(), String> {
        // NaN is in no range.
        if (*range.start() as f64..=*range.end() as f64).contains(&self) {
            return Ok(());
        }
        Err(out_of_range(&self.to_text(unit), range, unit))
    }
}

impl Value for bool {
    const TYPE: OptionType = OptionType::Bool;

    fn parse(text: &str, _unit: OptionUnit) -> Result<bool, String> {
        match text {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err("want true or false".into()),
        }
    }

    fn to_text(self, _unit: OptionUnit) -> String {
        self.to_string()
    }

    fn check(self, _range: &Range, _unit: OptionUnit) -> Result<(), String> {
        Ok(())
    }
}

/// An option whose value is one of a few words.
macro_rules! choices {
    ($(#[$attr:meta])* $name:ident { $( $(#[$variant_attr:meta])* $variant:ident = $word:literal, )+ }) => {
        $(#[$attr])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $( $(#[$variant_attr])* $variant, )+ }

        impl $name {
            /// All values, in the order of their declaration.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// The word that stands for the value in text.
            pub fn as_str(self) -> &'static str {
                match self { $( $name::$variant => $word, )+ }
            }
        }

        impl Value for $name {
            const TYPE: OptionType = OptionType::Choice(&[$($word),+]);

            fn parse(text: &str, _unit: OptionUnit) -> Result<$name, String> {
                match text {
                    $( $word => Ok($name::$variant), )+
                    _ => Err(format!("want one of {}", [$($word),+].join(", "))),
                }
            }

            fn to_text(self, _unit: OptionUnit) -> String {
                self.as_str().into()
            }

            fn check(self, _range: &Range, _unit: OptionUnit) -> Result<(), String> {
                Ok(())
            }
        }
    };
}

choices! {
    /// The codec of table blocks.
    Compression {
        /// Stored as they are.
        None = "none",
        /// LZ4 blocks: fast both ways.
        Lz4 = "lz4",
        /// Zstandard: smaller, slower. In builds with the feature `zstd`.
        Zstd = "zstd",
    }
}

choices! {
    /// What the LOG tells.
    InfoLogLevel {
        /// There is none.
        Off = "off",
        /// Jobs that failed, and writes that stopped for good.
        Error = "error",
        /// Stalls, full disks, and what else is out of order, too.
        Warn = "warn",
        /// Flushes, compactions and all that happens regularly, too, and statistics.
        Info = "info",
        /// Single files, too.
        Debug = "debug",
    }
}

choices! {
    /// What recovery does with damage in the commit log. The log's reader defines each exactly.
    RecoveryMode {
        /// A torn tail is dropped, other damage refused.
        TolerateCorruptedTail = "tolerate_corrupted_tail",
        /// Any damage is refused.
        AbsoluteConsistency = "absolute_consistency",
        /// Recovery ends at the first damage that nothing later vouches for.
        PointInTime = "point_in_time",
        /// Damaged records are skipped.
        SkipAnyCorrupted = "skip_any_corrupted",
    }
}
