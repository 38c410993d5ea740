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
        let _ = writeln!(self.text, "<{name}>{}</{name}>", escape(text));
    }

    pub(super) fn class(&mut self, name: &str, class: &str, text: &str) {
        let _ = writeln!(self.text, "<{name} class=\"{class}\">{}</{name}>", escape(text));
    }

    pub(super) fn heading(&mut self, name: &str, id: &str, text: &str) {
        let _ = writeln!(self.text, "<{name} id=\"{id}\">{}</{name}>", escape(text));
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
        for heading in headings {
            let _ = write!(self.text, "<th scope=\"col\">{}</th>", escape(heading));
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
