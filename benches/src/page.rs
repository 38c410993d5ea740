//! A report as one page that needs nothing beside it: charts inline, no script, nothing fetched.
//!
//! ```text
//!   Report ── origins, engines ── overview, sections and their tables, provenance ── report.html
//!   files of --json ── merge ──┘      words, drawings, figures
//! ```
//! The markup is XML as well as HTML, so that any parser can check it. Every drawing has its figures in a table, and
//! stands there twice where it would be too small to read on a telephone: once for wide and once for narrow windows.
//!
//! INVARIANT: a text of the record gets onto the page through `escape` only, and the page says itself (its
//! content security policy) that it loads nothing.

mod html;
mod merge;
mod overview;
mod provenance;
mod sections;
mod tables;
#[cfg(test)]
mod tests;

use crate::environment::Environment;
use crate::plot::{Theme, light_colours, patterns};
use crate::report::Figures;
use crate::result::Report;
use crate::stats::{engines, workloads};
use anyhow::{Context, Result};
use html::{Html, anchor};
use sections::Page;
use std::path::{Path, PathBuf};

const FILE: &str = "report.html";
const STYLE: &str = include_str!("page/style.css");

/// The colours in the light that are not the drawings'.
const LIGHT: &str = "--link:#0b5cad;--inset:#f3f5f7;";
/// All colours in the dark.
const DARK: &str = "--ink:#e7ebef;--muted:#a3adb7;--grid:#2d343c;--axis:#75808b;--ground:#14171b;--gap:#b9764a;\
    --series-0:#58b0ec;--series-1:#f08a4b;--series-2:#35c79a;--series-3:#dd9bcb;--series-4:#dcbb45;--series-5:#aeb8c2;\
    --heat-0:#20272f;--heat-1:#1f405c;--heat-2:#256590;--heat-3:#3f8fc6;--heat-4:#8cc7f2;--heat-5:#f08a4b;\
    --cause-0:#f08a4b;--cause-1:#b39ddb;--cause-2:#dcbb45;--cause-3:#aeb8c2;--link:#7cbcf5;--inset:#1e2329;";

/// Where a part of the report comes from.
pub(crate) struct Origin {
    /// The file, if it was read from one.
    pub(crate) file: Option<String>,
    pub(crate) command: Vec<String>,
    pub(crate) environment: Option<Environment>,
    pub(crate) generator_ops_per_sec: f64,
}

impl Origin {
    fn of(report: &Report, file: Option<String>) -> Origin {
        Origin {
            file,
            command: report.command.clone(),
            environment: report.environment.clone(),
            generator_ops_per_sec: report.generator_ops_per_sec,
        }
    }
}

/// Writes the page of a report into `dir`, which is made.
///
/// # Errors
/// A file cannot be written.
pub(crate) fn write(report: &Report, dir: &Path) -> Result<()> {
    write_page(report, &[Origin::of(report, None)], dir)
}

/// Writes the page of reports that were recorded in files.
///
/// # Errors
/// A file cannot be read or written, or is no report.
pub(crate) fn of_files(dir: &Path, files: &[PathBuf]) -> Result<()> {
    let read = |path: &PathBuf| {
        let text = std::fs::read(path).with_context(|| format!("{}", path.display()))?;
        let report: Report =
            serde_json::from_slice(&text).with_context(|| format!("{} is no report", path.display()))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok((name, report))
    };
    let (report, origins) = merge::merged(files.iter().map(read).collect::<Result<Vec<_>>>()?);
    write_page(&report, &origins, dir)
}

fn write_page(report: &Report, origins: &[Origin], dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("{}", dir.display()))?;
    let path = dir.join(FILE);
    std::fs::write(&path, page(report, origins)).with_context(|| format!("{}", path.display()))
}

/// The page.
fn page(report: &Report, origins: &[Origin]) -> String {
    let (engines, names) = (engines(&report.runs), workloads(&report.runs));
    let figures = Figures::new(report);
    let page = Page { figures: &figures, engines: &engines, workloads: &names, origins };
    let mut body = Html::default();
    let title = page.title();
    body.raw("<svg class=\"patterns\" aria-hidden=\"true\">");
    body.raw(&patterns(Theme::Page));
    body.raw("</svg>\n<header>\n");
    body.element("h1", &title);
    page.introduction(&mut body);
    if names.len() > 1 {
        contents(&mut body, &names);
    }
    body.raw("</header>\n<main>\n");
    page.overview(&mut body);
    for (at, workload) in names.iter().enumerate() {
        page.workload(&mut body, at, workload);
    }
    page.provenance(&mut body);
    body.raw("</main>\n");
    body.raw("<footer>\n");
    body.class("p", "muted", "Written by dialsm-bench. The page is one file and loads nothing.");
    body.raw("</footer>\n");
    let light = light_colours() + LIGHT;
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <meta name=\"color-scheme\" content=\"light dark\"/>\n<title>{}</title>\n<style>\n:root {{ {light} }}\n\
         @media (prefers-color-scheme: dark) {{ :root {{ {DARK} }} }}\n{STYLE}</style>\n</head>\n<body>\n{}</body>\n\
         </html>\n",
        crate::plot::escape(&title),
        body.text
    )
}

fn contents(body: &mut Html, names: &[String]) {
    body.raw("<nav aria-label=\"Contents\"><ul>\n");
    let entry =
        |to: &str, name: &str| format!("<li><a href=\"#{to}\">{}</a></li>\n", crate::plot::escape(name));
    body.raw(&entry("overview", "Comparison"));
    for (at, name) in names.iter().enumerate() {
        body.raw(&entry(&anchor(at), name));
    }
    body.raw(&entry("provenance", "How it was measured"));
    body.raw("</ul></nav>\n");
}
