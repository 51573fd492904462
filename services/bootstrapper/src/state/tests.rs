//! The whole of a host's way in, without a host.
