//! Machines for stories: images of the recipe in `examples/host-image`, UEFI firmware, TPMs, power switches.
//!
//! | module | knows |
//! |---|---|
//! | [`image`] | what boots: tree of Debian packages, root with dm-verity, unified kernel image |
//! | [`tpm`] | software TPMs and the authority that vouches for them |
//! | [`machine`] | a QEMU machine: power, disk, console, commands by SSH |
//! | [`programs`] | programs that are run to their end |
//! | [`port`] | ports that no other process takes by accident |

pub mod image;
pub mod machine;
#[path = "../../../sparkplug/mqtt/tests/support/port.rs"]
pub mod port;
pub mod programs;
pub mod tpm;
