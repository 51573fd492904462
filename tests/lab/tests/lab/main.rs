//! Stories.
use e2e as _;
