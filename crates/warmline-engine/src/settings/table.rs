//! The tables of settings: a row declares one setting, and everything else reads the rows.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use warmline_core::era::{Era, Version};
use warmline_core::policy::{CallConcurrency, SessionMode, SessionScope, StateLossPolicy};
use warmline_core::protocol::session_gone::SessionGoneMatching;

use super::value::{SettingKind, SettingValue};
use super::{
    ConfigError, EffectiveSetting, ProcessVariables, SettingOrigin, SettingOrigins, VariableLookup,
    environment, redact_value,
};

/// One row of a table.
#[derive(Debug)]
pub struct Setting<T> {
    /// Its name in `warmline.toml`, its table before a dot.
    pub key: &'static str,
    /// The values it can have.
    pub kind: SettingKind,
    /// What it means.
    pub help: &'static str,
    /// The row of the acceptance cases' table that it answers.
    pub case_id: Option<&'static str>,
    /// The variable of another program that means the same.
    pub foreign_variable: Option<&'static str>,
    /// Whether a running gateway applies a changed value.
    pub is_reloadable: bool,
    /// Reads the value from its field.
    pub get: fn(&T) -> SettingValue,
    /// Writes the value into its field.
    pub set: fn(&mut T, SettingValue),
}

impl<T> Setting<T> {
    /// Its environment variable.
    pub fn variable(&self) -> String {
        let name = self.key.to_uppercase().replace('.', "_");
        format!("{}{name}", environment::VARIABLE_PREFIX)
    }
}

/// A type of field that settings fill.
pub trait SettingField: Sized {
    /// The word for a missing value of `Option<Self>`.
    const NONE: &'static str = "none";

    /// The field as a value.
    fn to_value(&self) -> SettingValue;

    /// The value as a field; none if it has another type.
    fn from_value(value: SettingValue) -> Option<Self>;
}

macro_rules! plain_fields {
    ($($type:ty: $variant:ident),+ $(,)?) => {$(
        impl SettingField for $type {
            fn to_value(&self) -> SettingValue {
                SettingValue::$variant(self.clone())
            }

            fn from_value(value: SettingValue) -> Option<Self> {
                if let SettingValue::$variant(value) = value { Some(value) } else { None }
            }
        }
    )+};
}

plain_fields! {
    u32: Count, Duration: Time, usize: Size, bool: Switch, String: Text, Vec<String>: Texts,
    PathBuf: Path, SocketAddr: Address,
}

/// Makes enums with `as_str` and `parse` fields of settings.
#[macro_export]
macro_rules! word_fields {
    ($($type:ty $(, none = $none:literal)?;)+) => {$(
        impl $crate::settings::SettingField for $type {
            $(const NONE: &'static str = $none;)?

            fn to_value(&self) -> $crate::settings::SettingValue {
                $crate::settings::SettingValue::Word(self.as_str())
            }

            fn from_value(value: $crate::settings::SettingValue) -> Option<Self> {
                if let $crate::settings::SettingValue::Word(word) = value {
                    Self::parse(word)
                } else {
                    None
                }
            }
        }
    )+};
}

word_fields! {
    SessionMode;
    SessionGoneMatching;
    SessionScope, none = "auto";
    CallConcurrency, none = "auto";
    StateLossPolicy, none = "auto";
    Era, none = "auto";
    Version, none = "auto";
}

impl<T: SettingField> SettingField for Option<T> {
    fn to_value(&self) -> SettingValue {
        self.as_ref()
            .map_or(SettingValue::Word(T::NONE), T::to_value)
    }

    fn from_value(value: SettingValue) -> Option<Self> {
        if value == SettingValue::Word(T::NONE) {
            return Some(None);
        }
        T::from_value(value).map(Some)
    }
}

/// Declares the settings of a group, in the order of the reference page. A row is
///
/// ```text
/// "key" ["case", "FOREIGN_VARIABLE"], reloadable: kind(…) => field { "word" => value },
///     "what it means";
/// ```
///
/// where the source, `reloadable` and the words in braces may be missing. Those words are names of
/// single values of the field; [`SettingField`] converts all others.
#[macro_export]
macro_rules! settings_table {
    (@optional) => { None };
    (@optional $value:literal) => { Some($value) };
    (@is) => { false };
    (@is reloadable) => { true };
    ($group:ty; $(
        $key:literal $([$case:literal $(, $foreign:literal)?])? $(, $reloadable:ident)?
            : $form:ident($($arg:expr)?) $(.$with:ident($with_arg:expr))*
            => $($field:ident).+ $({ $($word:literal => $meant:expr),+ })?,
        $help:literal;
    )+) => {
        impl $crate::settings::SettingsGroup for $group {
            const TABLE: &'static [$crate::settings::Setting<Self>] = &[$(
                $crate::settings::Setting {
                    key: $key,
                    kind: $crate::settings::SettingKind::$form($($arg)?)
                        $(.$with($with_arg))*
                        $(.with_words(&[$($word),+]))?,
                    help: $help,
                    case_id: $crate::settings_table!(@optional $($case)?),
                    foreign_variable: $crate::settings_table!(@optional $($($foreign)?)?),
                    is_reloadable: $crate::settings_table!(@is $($reloadable)?),
                    get: |of: &Self| {
                        let field = &of.$($field).+;
                        $($(if *field == $meant {
                            return $crate::settings::SettingValue::Word($word);
                        })+)?
                        $crate::settings::SettingField::to_value(field)
                    },
                    set: |of: &mut Self, value| {
                        let field = &mut of.$($field).+;
                        $($(if value == $crate::settings::SettingValue::Word($word) {
                            *field = $meant;
                            return;
                        })+)?
                        if let Some(value) = $crate::settings::SettingField::from_value(value) {
                            *field = value;
                        }
                    },
                },
            )+];

            fn origins(&self) -> &$crate::settings::SettingOrigins {
                &self.origins
            }

            fn origins_mut(&mut self) -> &mut $crate::settings::SettingOrigins {
                &mut self.origins
            }
        }
    };
}

/// A group of settings: values, their origins, and the table that describes them.
pub trait SettingsGroup: Sized + Default + 'static {
    /// All settings of the group.
    const TABLE: &'static [Setting<Self>];

    /// The origins of its values.
    fn origins(&self) -> &SettingOrigins;

    /// The origins of its values.
    fn origins_mut(&mut self) -> &mut SettingOrigins;

    /// The setting of that name.
    fn setting(key: &str) -> Option<&'static Setting<Self>> {
        Self::TABLE.iter().find(|setting| setting.key == key)
    }

    /// The origin of one value.
    fn origin(&self, key: &str) -> SettingOrigin {
        self.origins().get(key).cloned().unwrap_or_default()
    }

    /// Sets a value. Sources are applied in ascending order of precedence.
    fn set_value(&mut self, setting: &Setting<Self>, value: SettingValue, origin: SettingOrigin) {
        (setting.set)(self, value);
        self.origins_mut().insert(setting.key, origin);
    }

    /// Records that the program or its command line chose this value.
    fn mark_set_by_builder(&mut self, key: &'static str) {
        self.origins_mut().insert(key, SettingOrigin::Builder);
    }

    /// Applies environment variables. Values set by the program or its command line stay.
    ///
    /// # Errors
    /// `config-bad-value` names the variable and its value.
    fn apply_environment(&mut self, lookup: VariableLookup<'_>) -> Result<(), ConfigError> {
        for setting in Self::TABLE {
            if self.origin(setting.key) == SettingOrigin::Builder {
                continue;
            }
            if let Some((value, variable)) = environment::value_from_environment(setting, lookup)? {
                self.set_value(setting, value, SettingOrigin::Environment(variable));
            }
        }
        Ok(())
    }

    /// Applies the environment variables of this process.
    ///
    /// # Errors
    /// As [`Self::apply_environment`], also for a variable that is not UTF-8.
    fn apply_process_environment(&mut self) -> Result<(), ConfigError> {
        self.apply_environment(&ProcessVariables)
    }

    /// Takes every value that another group sets, with its origin.
    fn apply_file(&mut self, other: &Self) {
        for setting in Self::TABLE {
            let origin = other.origin(setting.key);
            if origin != SettingOrigin::Default {
                self.set_value(setting, (setting.get)(other), origin);
            }
        }
    }

    /// Changes values on behalf of the program, which then counts as the origin of each that differs.
    fn change_as_builder(&mut self, change: impl FnOnce(&mut Self)) {
        let before: Vec<SettingValue> = Self::TABLE.iter().map(|one| (one.get)(self)).collect();
        change(self);
        for (setting, before) in Self::TABLE.iter().zip(before) {
            if (setting.get)(self) != before {
                self.mark_set_by_builder(setting.key);
            }
        }
    }

    /// Marks values that differ from the default and have no origin as set by the program.
    fn mark_changes_as_builder(&mut self) {
        for key in self.changed_keys(&Self::default()) {
            if self.origin(key) == SettingOrigin::Default {
                self.mark_set_by_builder(key);
            }
        }
    }

    /// Checks that every value lies within its range.
    ///
    /// # Errors
    /// `config-bad-value` names the setting and the range.
    fn check_ranges(&self) -> Result<(), ConfigError> {
        for setting in Self::TABLE {
            let checked = setting.kind.check(&(setting.get)(self));
            checked.map_err(|wrong| wrong.into_error(&format!("`{}`", setting.key)))?;
        }
        Ok(())
    }

    /// Every setting with its effective value.
    fn effective_settings(&self) -> Vec<EffectiveSetting> {
        let settings = Self::TABLE.iter().map(|setting| EffectiveSetting {
            key: setting.key,
            value: redact_value((setting.get)(self)).to_string(),
            origin: self.origin(setting.key),
            help: setting.help,
        });
        settings.collect()
    }

    /// The names of settings whose values differ.
    fn changed_keys(&self, other: &Self) -> Vec<&'static str> {
        let differs = |setting: &&Setting<Self>| (setting.get)(self) != (setting.get)(other);
        let settings = Self::TABLE.iter().filter(differs);
        settings.map(|setting| setting.key).collect()
    }
}
