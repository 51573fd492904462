//! The configuration file. No text makes the reader of a service's configuration, or its check, panic. No message repeats a value that could be a secret. Reading a file twice
//! gives the same configuration.
//!
//! Apart from the other targets, because tests of services include this file by its path.

use std::io::Write as _;

use serde::Serialize;
use serde::de::DeserializeOwned;
use service_runtime::config::load_with;

/// Name of the target and of its folder of seeds.
pub const NAME: &str = "configuration";

/// A value that no message may repeat, wherever it is written.
const SECRET: &str = "hunter2-hunter2";

/// A file of `service`; `check` judges what was read, and says what is wrong.
pub fn configuration<T>(service: &str, bytes: &[u8], check: impl Fn(&T) -> Result<(), String>)
where
    T: DeserializeOwned + Default + Serialize,
{
    // A key that names another file is of the operator; of the fuzzer it would read any.
    if bytes.contains(&b'\\') || bytes.windows(5).any(|window| window == b"_file") {
        return;
    }
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(bytes).expect("a temporary file");
    let load = || load_with::<T, _>(service, &[], Some(file.path()), std::iter::empty());
    let text = |result: Result<T, service_runtime::config::ConfigError>| match result {
        Ok(config) => {
            let _ = check(&config);
            Ok(serde_json::to_value(&config).expect("a configuration has a JSON form"))
        }
        Err(error) => Err(error.to_string()),
    };
    let (first, second) = (text(load()), text(load()));
    if let Err(message) = &first {
        // A key is repeated, a value is not.
        let file = String::from_utf8_lossy(bytes);
        let is_value = file.matches(SECRET).count() == file.matches(&format!("= \"{SECRET}\"\n")).count();
        assert!(!message.is_empty() && (!is_value || !message.contains(SECRET)), "{message}");
    }
    // Of several faults any may be the one that is named.
    assert_eq!(first.ok(), second.ok());
}
