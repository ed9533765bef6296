//! Enums whose variants each have a word: in output, logs, metrics and settings.

/// A closed set of words. No label or field of an event can hold what a caller or a server sent.
pub trait WordEnum: Copy + 'static {
    /// Every variant, in order.
    const ALL: &'static [Self];

    /// The word of this variant.
    fn as_str(self) -> &'static str;

    /// Its index in [`WordEnum::ALL`].
    fn index(self) -> usize;

    /// What its documentation says of it.
    fn meaning(self) -> &'static str;
}

/// Defines an enum with a word beside each variant. Words behind `|` are read and never written.
// In a debugger and in traces its functions stand where the enum is.
#[collapse_debuginfo(yes)]
#[macro_export]
macro_rules! word_enum {
    (
        $(#[$meta:meta])*
        pub enum $name:ident $(: default $default:ident)? {
            $($(#[doc = $doc:literal])+ $variant:ident = $word:literal $(| $also:literal)*),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($(#[doc = $doc])+ $variant),+
        }

        impl $name {
            /// Every variant, in order.
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$variant),+];

            /// Every word, in order.
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            /// The word of this variant.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),+
                }
            }

            /// The variant that a word names.
            pub fn parse(word: &str) -> Option<Self> {
                match word {
                    $($word $(| $also)* => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }

        $(impl Default for $name {
            fn default() -> Self {
                Self::$default
            }
        })?

        impl $crate::word_enum::WordEnum for $name {
            const ALL: &'static [Self] = &Self::ALL;

            fn as_str(self) -> &'static str {
                self.as_str()
            }

            fn index(self) -> usize {
                self as usize
            }

            fn meaning(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!($($doc),+).trim_ascii()),+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl $crate::word_enum::Serialize for $name {
            fn serialize<S>(&self, serializer: S) -> Result<S::Ok, S::Error>
            where
                S: $crate::word_enum::Serializer,
            {
                serializer.serialize_str(self.as_str())
            }
        }
    };
}

#[doc(hidden)]
pub use serde::{Serialize, Serializer};
pub use word_enum;
