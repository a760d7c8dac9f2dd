//! Frame of a drawing: its title, its SVG with a description, and notes below.

use crate::text::escape;

/// Width of a drawing, in the units of its SVG.
pub(crate) const WIDTH: f64 = 480.0;

/// A `figure` around the elements `drawn` of an SVG that `words` describe. `below` is HTML.
pub(crate) fn figure(title: &str, words: &str, height: f64, drawn: &str, below: &str) -> String {
    let (title, words) = (escape(title), escape(words));
    format!(
        "<figure>\n<figcaption>{title}</figcaption>\n\
         <svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{words}\"><title>{title}</title>\n\
         {drawn}</svg>\n{below}</figure>\n"
    )
}

/// The same without a drawing, for a reason.
pub(crate) fn empty_figure(title: &str, reason: &str) -> String {
    format!(
        "<figure>\n<figcaption>{}</figcaption>\n{}</figure>\n",
        escape(title),
        note(reason)
    )
}

/// A sentence below a drawing.
pub(crate) fn note(text: &str) -> String {
    format!("<p class=\"quiet\">{}</p>\n", escape(text))
}
