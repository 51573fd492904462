//! Where the console meets the world.

pub mod alertmanager;
pub mod answers;
pub mod assets;
pub mod history;
pub mod http;
pub mod hub;
pub mod replay;
pub mod sessions;
pub mod sparkplug;
pub mod stream;
