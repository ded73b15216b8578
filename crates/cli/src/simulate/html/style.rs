//! How the page looks: on a phone, on paper, on a light and on a dark screen.

use crate::simulate::plots::View;

const SHEET: &str = ":root{color-scheme:light dark;--ink:#1d2126;--soft:#5b636d;--page:#fff;--line:#d9dde2;--tint:#f4f6f8}\
    body{font:16px/1.5 system-ui,sans-serif;max-width:1060px;margin:1.5em auto;padding:0 1em;color:var(--ink);\
    background:var(--page)}\
    h1{font-size:1.6em;line-height:1.2;margin:.4em 0}h2{font-size:1.25em;margin:1.8em 0 .5em}\
    h3{font-size:1em;margin:0 0 .4em}\
    dl{display:grid;grid-template-columns:max-content 1fr;gap:.2em 1em}dt{color:var(--soft)}dd{margin:0}\
    .finding{font-size:1.1em}.note,figcaption,small{color:var(--soft)}figcaption{font-size:.9em}\
    .wide{overflow-x:auto}table{border-collapse:collapse;margin:.5em 0;font-variant-numeric:tabular-nums;font-size:.9em}\
    th,td{padding:.3em .6em;text-align:right;border-bottom:1px solid var(--line);vertical-align:top;white-space:nowrap}\
    th{font-weight:600;vertical-align:bottom;white-space:normal;min-width:4.5em}th small{font-weight:400}td small{display:block;font-size:.8em}\
    th small{display:block}\
    th:first-child,td:first-child{text-align:left;position:sticky;left:0;background:var(--page);white-space:normal;\
    min-width:7em;max-width:14em}td.text{text-align:left;white-space:normal}td.best{font-weight:700}td small{font-weight:400}\
    table.plain td:first-child{min-width:0}@media(min-width:700px){td:first-child{min-width:14em}}\
    tr.oracle td{color:var(--soft)}tr.holds td{background:var(--tint)}\
    figure{margin:2em 0;break-inside:avoid}.plots{display:flex;flex-wrap:wrap;gap:.5em}\
    .plots .wide{flex:1 1 400px;max-width:100%}.plots svg{display:block;width:100%;min-width:340px;max-width:760px;height:auto}\
    .plots .wide:not(:only-child) svg{min-width:300px;max-width:480px}\
    .keys{list-style:none;display:flex;flex-wrap:wrap;gap:.1em 1.2em;padding:0;margin:.3em 0;font-size:.9em}\
    .key{display:inline-block;vertical-align:middle}details{margin:1em 0}summary{cursor:pointer;font-weight:600}";

const PAPER: &str = "@media print{@page{size:landscape;margin:10mm}body{max-width:none;margin:0;font-size:11px}\
    .wide{overflow:visible}table{font-size:8px}th,td{padding:.15em .3em;min-width:0}td:first-child{min-width:9em}\
    tr{break-inside:avoid}.plots svg{min-width:0;max-width:620px}}";

/// The style sheet, with the colours of the policies of `view` for a dark screen.
pub(super) fn sheet(view: &View<'_>) -> String {
    format!(
        "{SHEET}@media screen and (prefers-color-scheme:dark){{:root{{--ink:#e4e7ea;--soft:#a2abb5;--page:#15181c;\
         --line:#343a41;--tint:#1e2329}}{}}}{PAPER}",
        view.inks.dark_rules()
    )
}
