//! `sparkfleet audit ...`: whether the record of writes is as it was written.

use anyhow::{Context as _, anyhow};
use serde_json::json;
use service_runtime::exit;
use service_runtime::record::chain::{self, Verified};

use crate::arguments::access::AuditCommand;
use crate::output;

/// Carries out an audit command.
///
/// # Errors
/// With [`exit::CONFIG`] if the file cannot be read, [`exit::REFUSED`] if it does not hold together.
pub fn run(command: AuditCommand) -> anyhow::Result<()> {
    let AuditCommand::Verify { file, after, printing } = command;
    let bytes = std::fs::read(&file)
        .with_context(|| format!("cannot read {}", file.display()))
        .map_err(|error| exit::with_code(exit::CONFIG, error))?;
    let refused = |error: anyhow::Error| exit::with_code(exit::REFUSED, error.context(file.display().to_string()));
    let verified = chain::verify(&bytes).map_err(|fault| refused(fault.into()))?;
    if after.as_ref().is_some_and(|after| *after != verified.begins_after) {
        return Err(refused(anyhow!("begins after {}, not after what --after says", verified.begins_after)));
    }
    let Verified { unchained, records, begins_after, end } = verified;
    let value = json!({ "records": records, "unchained": unchained, "begins_after": begins_after, "number": end.number, "head": end.head });
    let lines = || {
        let mut lines = vec![format!("{records} records hold together; the last has number {}", end.number)];
        lines.extend((unchained > 0).then(|| format!("{unchained} lines before them are not chained")));
        lines.push(format!("begins after  {begins_after}"));
        lines.push(format!("head          {}", end.head));
        lines
    };
    output::print(printing.output, lines, &value)
}
