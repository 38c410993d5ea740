//! Elements of the page around its drawings, closed and escaped.

use crate::plot::escape;
use std::fmt::Write;

/// A part of the page that is being written.
#[derive(Default)]
pub(super) struct Html {
    pub(super) text: String,
}

/// The name by which the section of a workload is linked to.
pub(super) fn anchor(at: usize) -> String {
    format!("workload-{at}")
}

/// The text with units bound to what is before them, so that no line begins with one.
fn glued(text: &str) -> String {
    const UNITS: [&str; 8] = ["%", "s", "ms", "µs", "MB", "k", "M", "GiB"];
    let mut glued = String::with_capacity(text.len());
    for (at, word) in text.split(' ').enumerate() {
        let unit = word.trim_end_matches(['.', ',', ';', ')']);
        if at > 0 {
            glued.push(if UNITS.contains(&unit) { '\u{a0}' } else { ' ' });
        }
        glued.push_str(word);
    }
    glued
}

/// A table's cell.
pub(super) enum Cell {
    Figure(String),
    /// Words, which may wrap.
    Words(String),
}

impl Html {
    /// Markup as it is.
    pub(super) fn raw(&mut self, markup: &str) {
        self.text.push_str(markup);
    }

    pub(super) fn element(&mut self, name: &str, text: &str) {
        let _ = writeln!(self.text, "<{name}>{}</{name}>", escape(&glued(text)));
    }

    pub(super) fn class(&mut self, name: &str, class: &str, text: &str) {
        let _ = writeln!(self.text, "<{name} class=\"{class}\">{}</{name}>", escape(&glued(text)));
    }

    pub(super) fn heading(&mut self, name: &str, id: &str, text: &str) {
        let _ = writeln!(self.text, "<{name} id=\"{id}\">{}</{name}>", escape(text));
    }

    /// A command, whose words are not broken at their dashes.
    pub(super) fn command(&mut self, words: &[String]) {
        let span = |word: &String| format!("<span>{}</span>", escape(word));
        let words: Vec<String> = words.iter().map(span).collect();
        let _ = writeln!(self.text, "<pre>{}</pre>", words.join(" "));
    }

    pub(super) fn literal(&mut self, text: &str) {
        let _ = writeln!(self.text, "<pre>{}</pre>", escape(text));
    }

    pub(super) fn paragraph(&mut self, text: &str) {
        if !text.is_empty() {
            self.element("p", text);
        }
    }

    pub(super) fn list(&mut self, class: &str, items: &[String]) {
        if items.is_empty() {
            return;
        }
        let _ = writeln!(self.text, "<ul class=\"{class}\">");
        items.iter().for_each(|item| self.element("li", item));
        self.raw("</ul>\n");
    }

    /// A table that scrolls in itself where it is too wide.
    pub(super) fn table(&mut self, name: &str, headings: &[String], rows: &[(String, Vec<Cell>)]) {
        let name = escape(name);
        let _ = write!(
            self.text,
            "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{name}\"><table>\n<thead><tr>"
        );
        for (at, heading) in headings.iter().enumerate() {
            // A heading lies as what it heads does.
            let cells = at.checked_sub(1).and_then(|at| rows.first()?.1.get(at));
            let class = if matches!(cells, Some(Cell::Words(_))) { " class=\"text\"" } else { "" };
            let _ = write!(self.text, "<th scope=\"col\"{class}>{}</th>", escape(&glued(heading)));
        }
        self.raw("</tr></thead>\n<tbody>\n");
        for (first, cells) in rows {
            let _ = write!(self.text, "<tr><th scope=\"row\">{}</th>", escape(first));
            for cell in cells {
                let _ = match cell {
                    Cell::Figure(text) => write!(self.text, "<td>{}</td>", escape(text)),
                    Cell::Words(text) => write!(self.text, "<td class=\"text\">{}</td>", escape(text)),
                };
            }
            self.raw("</tr>\n");
        }
        self.raw("</tbody></table></div>\n");
    }

    /// What is there for who asks for it.
    pub(super) fn details(&mut self, summary: &str, inside: impl FnOnce(&mut Html)) {
        let _ = writeln!(self.text, "<details><summary>{}</summary>", escape(summary));
        inside(self);
        self.raw("</details>\n");
    }
}
