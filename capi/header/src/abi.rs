//! The list of what programs may depend on: functions with their types, values, structures.

use std::fmt::Write as _;

use anyhow::{Context, Result, bail};

/// The list for a header: the version of the interface, then one line each, sorted.
pub(crate) fn list(header: &str) -> Result<String> {
    let bare = without_comments(header);
    let version = define(&bare, "DIALSM_ABI_VERSION").context("no DIALSM_ABI_VERSION")?;
    let mut lines: Vec<String> = bare
        .lines()
        .filter_map(|line| line.strip_prefix("#define DIALSM_"))
        .filter(|line| !line.contains('(') && line.contains(' ') && !line.starts_with("ABI_VERSION"))
        .map(|line| format!("#define DIALSM_{}", words(line)))
        .collect();
    let code: String = bare
        .lines()
        .filter(|line| !line.starts_with('#') && !line.contains("extern \"C\""))
        .collect::<Vec<_>>()
        .join("\n");
    for item in items(&code) {
        match item.split_once('{') {
            Some((head, body)) if head.trim_start().starts_with("enum") => {
                let body = body.split('}').next().unwrap_or_default();
                lines.extend(body.split(',').map(words).filter(|value| !value.is_empty()));
            }
            _ => lines.push(words(&item)),
        }
    }
    lines.retain(|line| !line.is_empty());
    lines.sort();
    let mut out = format!("version {version}\n");
    lines.iter().for_each(|line| {
        let _ = writeln!(out, "{line}");
    });
    Ok(out)
}

/// Refuses a list in which something of the older one is gone or other, under the same version.
///
/// # Errors
/// So it is; the lines are named.
pub(crate) fn check_change(before: &str, now: &str) -> Result<()> {
    let first = |list: &str| list.lines().next().map(str::to_owned);
    if first(before) != first(now) {
        return Ok(());
    }
    let gone: Vec<&str> = before.lines().filter(|line| !now.lines().any(|other| other == *line)).collect();
    if !gone.is_empty() {
        bail!("the C interface has changed; count DIALSM_ABI_VERSION up. Gone:\n{}", gone.join("\n"));
    }
    Ok(())
}

fn define(bare: &str, name: &str) -> Option<String> {
    let line = bare.lines().find(|line| line.starts_with(&format!("#define {name} ")))?;
    line.split_whitespace().nth(2).map(str::to_owned)
}

fn without_comments(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("/*") {
        out.push_str(&rest[..at]);
        let Some(end) = rest[at..].find("*/") else { return out };
        rest = &rest[at + end + 2..];
    }
    out.push_str(rest);
    out
}

/// What ends with a semicolon outside of braces.
fn items(code: &str) -> Vec<String> {
    let mut items = vec![String::new()];
    let mut depth = 0;
    for c in code.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ';' if depth == 0 => {
                items.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(item) = items.last_mut() {
            item.push(c);
        }
    }
    items
}

/// With single spaces, and none inside brackets.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace("( ", "(")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "#define DIALSM_ABI_VERSION 3\n#define DIALSM_MAX 7\n/* fn(void); */\n\
        enum code_t {\n  A = 0,\n  /* so */\n  B = 1,\n};\ntypedef uint32_t code_t;\n\
        typedef struct s_t {\n  size_t size;\n  int a;\n} s_t;\nint f(int a,\n      int b);\n";

    #[test]
    fn everything_a_program_sees_is_a_line() {
        let list = list(HEADER).unwrap();
        let want = "version 3\n#define DIALSM_MAX 7\nA = 0\nB = 1\nint f(int a, int b)\n\
            typedef struct s_t { size_t size; int a; } s_t\ntypedef uint32_t code_t\n";
        assert_eq!(list, want);
    }

    #[test]
    fn what_changes_without_the_version_is_refused() {
        let before = list(HEADER).unwrap();
        for (from, to) in [("B = 1", "B = 2"), ("int b", "long b"), ("int a;\n}", "}"), ("int f(", "int g(")]
        {
            let now = list(&HEADER.replace(from, to)).unwrap();
            assert!(check_change(&before, &now).is_err(), "{from} to {to}");
            let counted = now.replace("version 3", "version 4");
            assert!(check_change(&before, &counted).is_ok());
        }
        let more = list(&HEADER.replace("  B = 1,", "  B = 1,\n  C = 2,")).unwrap();
        assert!(check_change(&before, &more).is_ok(), "more is allowed");
    }
}
