//! The header: what cbindgen makes of the sources, under headings of our own.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow};

/// Files with exported functions, in the header's order.
const EXPORTED: [&str; 15] = [
    "version",
    "status",
    "options",
    "options_typed",
    "callback",
    "event",
    "calls",
    "database",
    "keyspace",
    "write",
    "batch",
    "read",
    "iterator",
    "scan",
    "upkeep",
];
const LAST: &str = "figures";

/// Files with the types that they speak of.
const TYPES: [&str; 11] = [
    "code", "status", "options", "callback", "event", "database", "batch", "pinned", "iterator", "entries",
    "names",
];

pub(crate) fn make(root: &Path) -> Result<String> {
    let config = cbindgen::Config::from_file(root.join("capi/cbindgen.toml"))
        .map_err(|reason| anyhow!("capi/cbindgen.toml: {reason}"))?;
    let mut builder = cbindgen::Builder::new().with_config(config);
    for name in TYPES.iter().chain(&["figures"]) {
        builder = builder.with_src(root.join(format!("capi/logic/src/{name}.rs")));
    }
    let exported: Vec<&str> = EXPORTED.iter().copied().chain([LAST]).collect();
    for name in &exported {
        builder = builder.with_src(root.join(format!("capi/src/{name}.rs")));
    }
    let mut made = Vec::new();
    builder.generate().context("cbindgen")?.write(&mut made);
    let mut header = String::from_utf8(made)?;
    for name in &exported {
        let source = fs::read_to_string(root.join(format!("capi/src/{name}.rs")))?;
        header = with_heading(&header, &source).with_context(|| format!("capi/src/{name}.rs"))?;
    }
    Ok(header)
}

/// Puts the first lines of a source (`//! ...`) above the first function of it.
fn with_heading(header: &str, source: &str) -> Result<String> {
    let heading: Vec<&str> =
        source.lines().map_while(|line| line.strip_prefix("//!")).map(|line| line.trim_start()).collect();
    let (title, rest) = heading.split_first().context("no heading")?;
    let first = source
        .split("extern \"C\" fn ")
        .nth(1)
        .and_then(|rest| rest.split('(').next())
        .context("no exported function")?;
    let call = format!("{first}(");
    let declared = header
        .match_indices(&call)
        .map(|(at, _)| at)
        .find(|at| !is_in_comment(&header[..*at]))
        .with_context(|| format!("{first} is not in the header"))?;
    let above = header[..declared].rfind("\n/**").context("a function without a comment")? + 1;
    let mut block = format!("/*\n * {}\n", title.to_uppercase());
    for line in rest {
        block.push_str(format!(" * {line}").trim_end());
        block.push('\n');
    }
    block.push_str(" */\n\n");
    Ok(format!("{}{block}{}", &header[..above], &header[above..]))
}

fn is_in_comment(before: &str) -> bool {
    before.rfind("/*") > before.rfind("*/")
}
