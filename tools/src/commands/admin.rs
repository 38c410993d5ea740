//! Statistics and verification.

use dialsm_core::Error;

use super::Streams;
use crate::exit::Failure;
use crate::store::Store;

pub(super) fn stats(
    store: &dyn Store,
    property: Option<&str>,
    json: bool,
    streams: &mut Streams<'_>,
) -> Result<(), Failure> {
    let Some(name) = property else {
        writeln!(streams.stdout, "{}", store.stats(json)?.trim_end())?;
        return Ok(());
    };
    let value = store.property(name)?.ok_or(Failure::Absent)?;
    if json {
        writeln!(streams.stdout, "{}", serde_json::json!({ name: value }))?;
    } else {
        writeln!(streams.stdout, "{}", value.trim_end())?;
    }
    Ok(())
}

/// Prints what was checked and what is wrong; anything wrong is a failure of kind `Corruption`.
pub(super) fn verify(store: &dyn Store, json: bool, streams: &mut Streams<'_>) -> Result<(), Failure> {
    let verified = store.verify()?;
    if json {
        let counts: serde_json::Map<String, serde_json::Value> =
            verified.counts.iter().map(|(name, count)| (name.clone(), (*count).into())).collect();
        let report = serde_json::json!({ "counts": counts, "problems": verified.problems });
        writeln!(streams.stdout, "{report}")?;
    } else {
        for (name, count) in &verified.counts {
            writeln!(streams.stdout, "{name:<24}{count:>20}")?;
        }
        for problem in &verified.problems {
            writeln!(streams.stdout, "problem: {problem}")?;
        }
    }
    match verified.problems.len() {
        0 => Ok(()),
        count => {
            streams.stdout.flush()?;
            Err(Error::corruption(format!("verification found {count} problem(s)")).into())
        }
    }
}
