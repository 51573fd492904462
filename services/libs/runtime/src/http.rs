//! The HTTP server of services that people, browsers and git reach: which connections there are. What is served over them is a router's.
//!
//! | module | knows |
//! |---|---|
//! | [`server`] | connections: TLS, how many, how long |
//! | [`tls`] | the server's certificate, read again when its files change |

pub mod server;
pub mod tls;
