//! Structs of numbers that can be listed with their names and meanings.

/// A number of such a struct.
#[derive(Clone, Copy)]
pub(super) struct Described {
    pub(super) name: &'static str,
    /// Its documentation, as one line.
    pub(super) doc: &'static str,
    pub(super) value: u64,
}

/// Makes a struct of numbers from a list of documented names.
macro_rules! values {
    (
        $(#[$attr:meta])* struct $values:ident;
        $( $(#[doc = $doc:literal])+ $field:ident, )+
    ) => {
        $(#[$attr])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $values { $( $(#[doc = $doc])+ pub $field: u64, )+ }

        impl $values {
            /// Names and values, in the order of their declaration.
            pub fn entries(&self) -> Vec<(&'static str, u64)> {
                vec![$( (stringify!($field), self.$field), )+]
            }

            pub(in crate::metrics) fn described(&self) -> Vec<$crate::metrics::values::Described> {
                vec![$( $crate::metrics::values::Described {
                    name: stringify!($field),
                    doc: concat!($($doc),+),
                    value: self.$field,
                }, )+]
            }
        }
    };
}

pub(super) use values;
