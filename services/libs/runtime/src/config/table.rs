//! Configuration keys, declared once: `config_table!` makes of one list the fields, the defaults, the explanations of `--help` and the reference, and the
//! check of ranges.
//!
//! ```
//! use service_runtime::config::ConfigTable as _;
//! use service_runtime::config_table;
//!
//! config_table! {
//!     /// Configuration of a thermometer.
//!     pub struct Config {
//!         /// Prefix of every group id.
//!         organisation: String = "ACME".to_owned();
//!         /// How often it measures, ms.
//!         interval_ms: u64 = 10_000, in 100..=60_000;
//!     }
//!     tables {
//!         /// What is shown.
//!         display: Display;
//!     }
//! }
//!
//! config_table! {
//!     /// What is shown.
//!     pub struct Display {
//!         /// Unit of the temperature; absent: that of the site.
//!         unit: Option<String>;
//!     }
//! }
//!
//! let keys: Vec<String> = Config::keys().into_iter().map(|key| key.key).collect();
//! assert_eq!(keys, ["organisation", "interval_ms", "display.unit"]);
//! let wrong = Config { interval_ms: 5, ..Config::default() };
//! assert_eq!(wrong.check_ranges().unwrap_err().to_string(), "interval_ms is 5; it must be between 100 and 60000 (1 min)");
//! ```
//!
//! This module must not know any key.

use std::fmt::Display;
use std::ops::RangeInclusive;

use serde::Serialize;
use sparkplug_mqtt::MqttConfig;

use super::{PREFIX, text_of};

/// One configuration key as it is explained to a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigKey {
    /// Dotted, as in the file: `mqtt.client_id`.
    pub key: String,
    /// The default as it would be written in the environment, empty if there is none.
    pub default: String,
    /// One sentence: what it does, with its unit and its range.
    pub help: String,
}

impl ConfigKey {
    /// The key `field` of the table `prefix`. `doc`: the documentation of the field.
    #[must_use]
    pub fn new(prefix: &str, field: &str, default: &impl Serialize, doc: &[&str], range: Option<String>) -> Self {
        let default = serde_json::to_value(default).map(|value| text_of(&value)).unwrap_or_default();
        let range = range.map_or_else(String::new, |range| format!("; allowed: {range}"));
        Self { key: joined(prefix, field), default, help: phrase(doc) + &range }
    }

    /// The environment variable that sets this key.
    #[must_use]
    pub fn variable(&self) -> String {
        format!("{PREFIX}{}", self.key.replace('.', "__").to_uppercase())
    }
}

/// The dotted key of a field.
#[must_use]
pub fn joined(prefix: &str, field: &str) -> String {
    if prefix.is_empty() { field.to_owned() } else { format!("{prefix}.{field}") }
}

/// A field's documentation as a phrase: on one line, without the full stop, its first word in lower case unless it is a name.
fn phrase(doc: &[&str]) -> String {
    let text = doc.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
    let text = text.trim_end_matches('.');
    let mut chars = text.chars();
    let Some(first) = chars.next() else { return String::new() };
    let word: String = chars.as_str().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    let is_name = word.chars().any(|c| !c.is_lowercase());
    if is_name { text.to_owned() } else { first.to_lowercase().chain(chars).collect() }
}

/// A value is outside of its key's range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key} is {value}; it must be {rule}")]
pub struct RangeError {
    /// The key, dotted.
    pub key: String,
    /// As given.
    pub value: String,
    /// What is allowed.
    pub rule: String,
}

/// Numbers that a key can hold.
pub trait Number: Copy + PartialOrd + Display {
    /// The largest of them: as an upper bound it bounds nothing.
    const LARGEST: Self;
    /// Zero: as a lower bound of a number without sign it bounds nothing.
    const ZERO: Self;
}

macro_rules! numbers {
    ($($number:ty),*) => { $(impl Number for $number {
        const LARGEST: Self = Self::MAX;
        const ZERO: Self = 0;
    })* };
}
numbers!(u8, u16, u32, u64, usize);

/// What a range allows, as the end of "it must be". `field`: its last part is the unit.
fn rule<T: Number>(field: &str, range: &RangeInclusive<T>) -> String {
    let (least, most) = (*range.start(), *range.end());
    let [least_text, most_text] = [least, most].map(|value| with_unit(field, &value.to_string()));
    match (least > T::ZERO, most < T::LARGEST) {
        (true, false) => format!("at least {least_text}"),
        (false, true) => format!("at most {most_text}"),
        _ => format!("between {least_text} and {most_text}"),
    }
}

/// A number with its unit where the field names one that people do not read easily: `86400000 (24 h)`.
fn with_unit(field: &str, number: &str) -> String {
    let factor = match field.rsplit('_').find(|part| matches!(*part, "ms" | "s")) {
        Some("ms") => 1,
        Some("s") => 1_000,
        _ => return number.to_owned(),
    };
    let ms = number.parse::<u64>().unwrap_or_default().saturating_mul(factor);
    let units = [("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)];
    let whole = units.into_iter().find(|(_, unit)| ms > 0 && ms.is_multiple_of(*unit));
    match whole {
        Some((unit, size)) if size > factor => format!("{number} ({} {unit})", ms / size),
        _ => number.to_owned(),
    }
}

/// The range of a field as its explanation ends.
#[must_use]
pub fn range_text<T: Number>(field: &str, range: &RangeInclusive<T>) -> String {
    rule(field, range).trim_start_matches("between ").replace(" and ", " to ")
}

/// Whether a value is in the range of its key.
///
/// # Errors
/// It is not.
pub fn check_range<T: Number>(
    prefix: &str,
    field: &str,
    value: T,
    range: &RangeInclusive<T>,
) -> Result<(), RangeError> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(RangeError { key: joined(prefix, field), value: value.to_string(), rule: rule(field, range) })
}

/// A table of configuration keys.
pub trait ConfigTable {
    /// Appends the keys of this table, whose own key is `prefix`, with its values as their defaults.
    fn describe(&self, prefix: &str, keys: &mut Vec<ConfigKey>);

    /// Checks every range of this table, whose own key is `prefix`, and of those below it.
    ///
    /// # Errors
    /// The first key at fault.
    fn check_ranges_below(&self, prefix: &str) -> Result<(), RangeError>;

    /// Every key with its default.
    #[must_use]
    fn keys() -> Vec<ConfigKey>
    where
        Self: Default,
    {
        let mut keys = Vec::new();
        Self::default().describe("", &mut keys);
        keys
    }

    /// Checks the range of every key.
    ///
    /// # Errors
    /// The first key at fault.
    fn check_ranges(&self) -> Result<(), RangeError> {
        self.check_ranges_below("")
    }
}

impl ConfigTable for MqttConfig {
    fn describe(&self, prefix: &str, keys: &mut Vec<ConfigKey>) {
        let own = Self::KEYS.iter().map(|key| ConfigKey {
            key: joined(prefix, key.key.strip_prefix("mqtt.").unwrap_or(key.key)),
            default: key.default.to_owned(),
            help: key.help.to_owned(),
        });
        keys.extend(own);
    }

    /// Its own `validate` does that.
    fn check_ranges_below(&self, _: &str) -> Result<(), RangeError> {
        Ok(())
    }
}

/// Declares tables of configuration keys; see the module [`config::table`](crate::config::table).
///
/// A key is `name: Type = default, in range;` with its documentation before it. Without a default it is the type's own; only numbers have ranges. `tables` are tables
/// below this one; `arguments` are fields that are not keys of the configuration.
#[macro_export]
macro_rules! config_table {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $($(#[doc = $doc:literal])+ $field:ident: $type:ty $(= $default:expr)? $(, in $range:expr)?;)*
        }
        $(tables { $($(#[doc = $table_doc:literal])+ $table:ident: $table_type:ty;)+ })?
        $(arguments { $($(#[doc = $argument_doc:literal])+ $argument:ident: $argument_type:ty;)+ })?
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, ::serde::Serialize, ::serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        $vis struct $name {
            $($(#[doc = $doc])+ pub $field: $type,)*
            $($($(#[doc = $table_doc])+ pub $table: $table_type,)+)?
            $($($(#[doc = $argument_doc])+ #[serde(skip)] pub $argument: $argument_type,)+)?
        }

        impl ::std::default::Default for $name {
            fn default() -> Self {
                Self {
                    $($field: $crate::config_table!(@default $($default)?),)*
                    $($($table: ::std::default::Default::default(),)+)?
                    $($($argument: ::std::default::Default::default(),)+)?
                }
            }
        }

        impl $crate::config::ConfigTable for $name {
            fn describe(&self, prefix: &str, keys: &mut ::std::vec::Vec<$crate::config::ConfigKey>) {
                let _ = (prefix, &keys);
                $(
                    let range = $crate::config_table!(@range stringify!($field), self.$field, $($range)?);
                    keys.push($crate::config::ConfigKey::new(prefix, stringify!($field), &self.$field, &[$($doc),+], range));
                )*
                $($(
                    let below = $crate::config::table::joined(prefix, stringify!($table));
                    $crate::config::ConfigTable::describe(&self.$table, &below, keys);
                )+)?
            }

            fn check_ranges_below(&self, prefix: &str) -> ::std::result::Result<(), $crate::config::RangeError> {
                let _ = prefix;
                $($crate::config_table!(@check prefix, stringify!($field), self.$field, $($range)?);)*
                $($(
                    let below = $crate::config::table::joined(prefix, stringify!($table));
                    $crate::config::ConfigTable::check_ranges_below(&self.$table, &below)?;
                )+)?
                Ok(())
            }
        }
    };
    (@default) => { ::std::default::Default::default() };
    (@default $default:expr) => { $default };
    (@range $field:expr, $value:expr,) => { ::std::option::Option::None };
    (@range $field:expr, $value:expr, $range:expr) => {{
        let mut range = $range;
        // The range takes the type of the value.
        if false {
            range = $value..=$value;
        }
        ::std::option::Option::Some($crate::config::table::range_text($field, &range))
    }};
    (@check $prefix:expr, $field:expr, $value:expr,) => {};
    (@check $prefix:expr, $field:expr, $value:expr, $range:expr) => {
        $crate::config::table::check_range($prefix, $field, $value, &$range)?
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    config_table! {
        /// A table.
        struct Outer {
            /// Name of the box, or
            /// nothing.
            name: String = "box-7".to_owned();
            /// UUID of it.
            uuid: Option<String>;
            /// Brokers.
            servers: Vec<String> = vec!["a".to_owned(), "b".to_owned()];
            /// Secret.
            password: crate::config::Secret = "secret".to_owned().into();
        }
        tables {
            /// Times.
            times: Times;
        }
        arguments {
            /// Not a key.
            fresh: bool;
        }
    }

    config_table! {
        /// Times.
        struct Times {
            /// How long it waits.
            wait_ms: u64 = 1_000, in 10..=86_400_000;
            /// How often it tries.
            attempts: u8 = 3, in 1..=u8::MAX;
            /// How full it gets, per cent.
            percent: u32 = 50, in 0..=90;
        }
    }

    #[test]
    fn one_declaration_is_field_default_and_explanation() {
        let keys = Outer::keys();
        let listed: Vec<_> =
            keys.iter().map(|key| (key.key.as_str(), key.default.as_str(), key.help.as_str())).collect();
        let expected = [
            ("name", "box-7", "name of the box, or nothing"),
            ("uuid", "", "UUID of it"),
            ("servers", "a,b", "brokers"),
            ("password", "", "secret"),
            ("times.wait_ms", "1000", "how long it waits; allowed: 10 to 86400000 (1 d)"),
            ("times.attempts", "3", "how often it tries; allowed: at least 1"),
            ("times.percent", "50", "how full it gets, per cent; allowed: at most 90"),
        ];
        assert_eq!(listed, expected);
        assert_eq!(keys[4].variable(), "SPARKFLEET__TIMES__WAIT_MS");
    }

    #[test]
    fn a_value_out_of_range_is_named_with_its_key_and_rule() {
        let error = |times: Times| Outer { times, ..Outer::default() }.check_ranges().unwrap_err().to_string();
        let low = Times { wait_ms: 5, ..Times::default() };
        assert_eq!(error(low), "times.wait_ms is 5; it must be between 10 and 86400000 (1 d)");
        let none = Times { attempts: 0, ..Times::default() };
        assert_eq!(error(none), "times.attempts is 0; it must be at least 1");
        let full = Times { percent: 91, ..Times::default() };
        assert_eq!(error(full), "times.percent is 91; it must be at most 90");
        assert_eq!(Outer::default().check_ranges(), Ok(()));
    }

    #[test]
    fn the_keys_of_the_mqtt_table_are_its_owners() {
        let mut keys = Vec::new();
        MqttConfig::default().describe("mqtt", &mut keys);
        assert!(keys.iter().any(|key| key.key == "mqtt.servers" && key.default == "mqtt://127.0.0.1:1883"));
    }
}
