//! Prints which requirements of the Sparkplug specification are covered.

use std::io::{self, Write};

fn main() -> io::Result<()> {
    let report = tck::Report::new(&tck::citations(&tck::root())?);
    writeln!(io::stdout(), "{report}")
}
