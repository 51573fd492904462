//! One checked configuration value from three layers: defaults, then a TOML file, then the environment.
//!
//! The defaults are `T::default()`, serialised: they say which keys exist and of which type each is. So:
//! - The file holds `T`'s keys: `[mqtt]` `client_id = ".."`. The environment names the same key
//!   `SPARKFLEET__MQTT__CLIENT_ID`; with the service's name in front, `SPARKFLEET__EDGE_SYNC__MQTT__CLIENT_ID`, it is for that
//!   service alone and wins. A variable that names a neighbour, another service that may share the environment, is not ours.
//! - An unknown key is an error that names the nearest known one. Below a default that is an empty table (a map) any key
//!   is allowed; below one that is absent (`None`) the type decides: derive `deny_unknown_fields` there.
//! - A value has the type of its default; an absent default takes what the type takes. Where the default is a list, `a,b`
//!   in the environment is a list of two.
//! - A key `x` that holds a [`Secret`] or whose default is absent can be given as `x_file`: the path of a file that holds the
//!   value (trailing line break removed). Giving both in one layer is an error.
//!
//! A field with `skip_serializing_if` would be unknown: let it serialise as null. Enums are choices of plain names, without
//! data. A configuration is declared by [`config_table!`](crate::config_table). This module must not know any key.

mod error;
mod layer;
mod secret;
pub mod table;
mod tree;

pub use error::ConfigError;
pub(crate) use error::flat;
pub use secret::{ExposeSecret, Secret};
pub use table::{ConfigKey, ConfigTable, RangeError};
pub(crate) use tree::{Tree, text_of};

use config::{Config, File, FileFormat, Source};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

/// First part of every environment variable that is a configuration key.
pub const PREFIX: &str = "SPARKFLEET__";

/// Loads the configuration of `service` from `file` and the process's environment, in which `neighbours` may have variables, too: names of services, the own one or not.
///
/// # Errors
/// The file cannot be read or is not TOML, a key is unknown, or a value has the wrong type; see [`ConfigError`].
pub fn load<T>(service: &str, neighbours: &[&str], file: Option<&Path>) -> Result<T, ConfigError>
where
    T: DeserializeOwned + Default + Serialize,
{
    load_with(service, neighbours, file, std::env::vars_os())
}

/// Like [`load`], with the environment as an argument.
///
/// # Errors
/// As [`load`].
pub fn load_with<T, V>(
    service: &str,
    neighbours: &[&str],
    file: Option<&Path>,
    environment: V,
) -> Result<T, ConfigError>
where
    T: DeserializeOwned + Default + Serialize,
    V: IntoIterator<Item = (OsString, OsString)>,
{
    let defaults = Tree::of(&T::default())?;
    let mut builder = Config::builder().add_source(layer::defaults(&defaults));
    if let Some(path) = file {
        builder = builder.add_source(layer::checked(&defaults, read(path)?)?);
    }
    for values in layer::from_environment(&defaults, service, neighbours, environment)? {
        builder = builder.add_source(layer::checked(&defaults, values)?);
    }
    let merged = builder.build().map_err(|error| ConfigError::from_merge(&error))?;
    let values = merged.cache.clone();
    merged.try_deserialize().map_err(|error| ConfigError::from_type(&error, &values, unknown_choice::<T>(&values)))
}

/// If the first problem of the values is an unknown variant of an enum: which ones there are, which the `config` crate's own deserialiser does not say. The value itself is left out.
fn unknown_choice<T: DeserializeOwned>(values: &config::Value) -> Option<String> {
    let json: serde_json::Value = values.clone().try_deserialize().ok()?;
    let message = serde_json::from_value::<T>(json).err()?.to_string();
    let known = message.strip_prefix("unknown variant ")?.rsplit_once("`, expected ")?.1;
    Some(format!("it must be {known}"))
}

fn read(path: &Path) -> Result<layer::Values, ConfigError> {
    let unreadable = |source| ConfigError::Unreadable { path: path.to_owned(), source };
    let text = fs::read_to_string(path).map_err(unreadable)?;
    let parsed = File::from_str(&text, FileFormat::Toml).collect();
    let values =
        parsed.map_err(|error| ConfigError::Syntax { path: path.to_owned(), reason: error::toml_reason(&error) })?;
    Ok(layer::Values { table: values, origin: path.display().to_string() })
}

#[cfg(test)]
mod tests;
