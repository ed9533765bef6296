//! Closed sets of words: what labels of metrics and fields of events are made of.
//!
//! Asked by: the counters, which keep one number per word, and whoever shows them. A set is an
//! enum, so that a label can never be made of something a caller or a server sent.

/// A closed set: each member has a word and a place.
pub trait ClosedSet: Copy + 'static {
    /// Every member, in the order of their places.
    const ALL: &'static [Self];

    /// The word it goes by in logs, metrics and JSON.
    fn word(self) -> &'static str;

    /// Its place in [`ClosedSet::ALL`].
    fn place(self) -> usize;
}

/// A closed set whose members say what they mean, for whoever sees their words.
pub trait Explained: ClosedSet {
    /// What it means, in a sentence.
    fn meaning(self) -> &'static str;
}

/// Makes an enum that is a closed set and is written as its word.
#[doc(hidden)]
#[macro_export]
macro_rules! closed_set {
    ($(#[$doc:meta])* $name:ident { $($(#[doc = $said:literal])+ $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[doc = $said])+ $variant),+
        }

        impl $name {
            /// The word it goes by in logs, metrics and JSON.
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),+
                }
            }
        }

        impl $crate::metrics::ClosedSet for $name {
            const ALL: &'static [Self] = &[$(Self::$variant),+];

            fn word(self) -> &'static str {
                self.word()
            }

            fn place(self) -> usize {
                self as usize
            }
        }

        impl $crate::metrics::Explained for $name {
            fn meaning(self) -> &'static str {
                // What the documentation says of it.
                match self {
                    $(Self::$variant => concat!($($said),+).trim_start()),+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.word())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.word())
            }
        }
    };
}

pub(crate) use closed_set;

/// A closed set that the core defines.
macro_rules! closed_set_of_core {
    ($($name:ty: $all:expr),+ $(,)?) => {
        $(impl ClosedSet for $name {
            const ALL: &'static [Self] = &$all;

            fn word(self) -> &'static str {
                self.word()
            }

            fn place(self) -> usize {
                self as usize
            }
        })+
    };
}

use warmline_core::code::{Code, Reason};
use warmline_core::delivery::Delivery;
use warmline_core::pool::Why;
use warmline_core::protocol::gone::Dialect;

closed_set_of_core!(
    Code: Code::ALL,
    Reason: Reason::ALL,
    Delivery: [Self::Unsent, Self::Refused, Self::Answered, Self::Unknown],
    Dialect: Dialect::ALL,
    Why: Why::ALL,
);
