//! Statistics and verification.

use std::io::Write;

use super::Streams;
use crate::exit::{Failure, Outcome};
use crate::progress::Progress;
use crate::store::{StatsForm, Store, Verified};

pub(super) fn stats(
    store: &dyn Store,
    property: Option<&str>,
    form: StatsForm,
    streams: &mut Streams<'_>,
) -> Outcome {
    let Some(name) = property else {
        writeln!(streams.stdout, "{}", store.stats(form)?.trim_end())?;
        return Ok(());
    };
    let value = store.property(name)?.ok_or(Failure::Absent)?;
    if form == StatsForm::Json {
        writeln!(streams.stdout, "{}", serde_json::json!({ name: value }))?;
    } else {
        writeln!(streams.stdout, "{}", value.trim_end())?;
    }
    Ok(())
}

/// Checks everything and prints what was looked at.
pub(super) fn verify(store: &dyn Store, json: bool, progress: bool, streams: &mut Streams<'_>) -> Outcome {
    let terminal: Option<&mut dyn Write> = if progress { Some(&mut *streams.stderr) } else { None };
    let mut line = Progress::new(terminal, "verified");
    let verified = store.verify(&mut |done, total| line.share(done, total));
    line.finish();
    let Verified { tables, entries, bytes } = verified?;
    if json {
        writeln!(streams.stdout, "{{\"tables\":{tables},\"entries\":{entries},\"bytes\":{bytes}}}")?;
    } else {
        writeln!(streams.stdout, "{tables} tables, {entries} entries, {bytes} bytes: all as written")?;
    }
    Ok(())
}
