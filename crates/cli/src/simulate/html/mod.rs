//! The laboratory's report as one web page that needs nothing else: no script, no font, no address.

mod head;
mod style;
mod tables;

use std::fmt::Write as _;

use sim::LabReport;

use super::plots::{self, Plot, View};
use crate::output::escaped;

/// The page.
pub(super) fn page(report: &LabReport) -> anyhow::Result<String> {
    let view = View::new(report);
    let plots = plots::all(&view)?;
    let scenario = escaped(&report.scenario);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>Slackline: policies on {scenario}</title><style>{}</style></head><body>\n",
        style::sheet(&view)
    );
    page += &head::text(&view);
    page += &tables::main(&view);
    page += &head::caveats(&view);
    page += &head::policies(&view);
    if !plots.is_empty() {
        page += "<h2>To look at</h2>\n";
    }
    for plot in &plots {
        page += &figure(plot);
    }
    page += &tables::searches(&view);
    page += &tables::other_loads(&view);
    page += &tables::decisions(&view);
    page += "</body></html>\n";
    Ok(page)
}

fn figure(plot: &Plot) -> String {
    let mut text = format!("<figure><h3>{}</h3><div class=\"plots\">", escaped(&plot.title));
    for svg in &plot.svgs {
        let _ = write!(text, "<div class=\"wide\">{svg}</div>");
    }
    text += "</div>";
    if !plot.keys.is_empty() {
        text += "<ul class=\"keys\">";
        for (symbol, name) in &plot.keys {
            let _ = write!(text, "<li>{symbol} {}</li>", escaped(name));
        }
        text += "</ul>";
    }
    let _ = writeln!(text, "<figcaption>{}</figcaption></figure>", escaped(&plot.caption));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::figures::made;

    /// The contents of every `attribute="..."` of `page`.
    fn attributes<'a>(page: &'a str, attribute: &str) -> Vec<&'a str> {
        let start = format!(" {attribute}=\"");
        page.split(&*start).skip(1).filter_map(|rest| rest.split('"').next()).collect()
    }

    fn is_drawable(page: &str) {
        for word in ["NaN", "inf", "-2147483648", "2147483647"] {
            for attribute in ["points", "cx", "cy", "x", "y", "x1", "x2", "y1", "y2", "d", "r"] {
                let bad = attributes(page, attribute).into_iter().find(|text| text.contains(word));
                assert_eq!(bad, None, "{word} in {attribute}");
            }
        }
        assert!(!page.contains("NaN"), "a figure is no number");
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
        assert_eq!(page.matches("<table").count(), page.matches("</table>").count());
    }

    #[test]
    fn every_plot_says_what_it_shows_in_which_unit_and_over_which_seeds() {
        let page = page(&made::report()).unwrap();
        is_drawable(&page);
        for said in [
            "Share of the requests that met their objective, against the offered load",
            "Goodput against the offered load",
            "Largest rate at which each policy keeps 90 % of the requests within their objective",
            "Time to first token (TTFT): share of the requests within it, at ",
            "Mean time between tokens (ITL): share of the requests within it, at ",
            "Attainment of each class of callers, at ",
            "How late the worst tenth of the requests were, at ",
            "How much of the prompts was found in prefix caches, at ",
            "Hot spots: how unevenly the work was spread, at ",
            "What a million output tokens cost that came in time, at ",
            "How busy each accelerator class was, at ",
            "Predicted against actual TTFT and ITL of slackline, at ",
            "What other fleets would cost, and how many requests they serve in time",
            "offered load, requests/s",
            "attainment, % of requests",
            "TTFT, milliseconds (logarithmic)",
            "mean ITL of a request, milliseconds (logarithmic)",
            "prefix hits, % of prompt tokens",
            "multiples of the objective",
            "time in which steps ran, %",
            "price of the fleet per hour, currency of the scenario",
            "3 seeds (1, 2, 3)",
            "whiskers from the least seed to the most",
        ] {
            assert!(page.contains(said), "no `{said}`");
        }
        assert!(!page.contains("TTFT and ITL of round-robin"), "it predicts nothing");
    }

    #[test]
    fn the_page_asks_for_nothing_from_elsewhere() {
        let page = page(&made::report()).unwrap();
        for word in ["<script", "<link", "<img", "src=", "href=", "url(", "@import", "@font-face"] {
            assert!(!page.contains(word), "{word}");
        }
    }

    #[test]
    fn a_policy_has_one_colour_over_the_whole_page_and_oracles_are_marked() {
        let report = made::report();
        let page = page(&report).unwrap();
        assert!(page.contains("clairvoyant (oracle)"));
        // Its line in the plots and in every legend.
        let dashed = page.matches("stroke=\"#555555\" stroke-width=\"2\" stroke-dasharray=\"8 5\"");
        assert!(dashed.count() >= 4, "the legends");
        let drawn = page.matches("stroke=\"#555555\" stroke-dasharray=\"16 10\"");
        assert!(drawn.count() >= 4, "the plots");
    }

    #[test]
    fn names_are_never_markup() {
        let mut report = made::report();
        let bad = "<b>&\"bad\"";
        for run in report.runs.iter_mut().filter(|run| run.policy == "slackline") {
            bad.clone_into(&mut run.policy);
            let class = run.by_class.remove("batch").unwrap();
            run.by_class.insert(bad.to_owned(), class);
            run.errors.insert(bad.to_owned(), 3);
            run.rungs.insert(bad.to_owned(), 3);
            run.utilization.insert(bad.to_owned(), 0.5);
        }
        for name in [
            &mut report.scenario,
            &mut report.about,
            &mut report.fleet,
            &mut report.workload,
            &mut report.caveats[0],
            &mut report.classes[0].name,
            &mut report.policies[0].name,
            &mut report.goodput[0].policy,
            &mut report.what_if[0].fleet,
        ] {
            bad.clone_into(name);
        }
        bad.clone_into(&mut report.policies[1].about);
        bad.clone_into(&mut report.what_if[1].policy);
        let page = page(&report).unwrap();
        is_drawable(&page);
        assert!(!page.contains("<b>"));
        assert!(page.contains("&lt;b&gt;&amp;&quot;bad&quot;"));
    }

    #[test]
    fn an_empty_report_is_a_page_that_says_so() {
        let page = page(&LabReport::default()).unwrap();
        is_drawable(&page);
        assert!(page.contains("Nothing ran."), "{page}");
    }

    #[test]
    fn one_policy_load_and_seed_make_a_page_without_plots_over_loads() {
        let page = page(&made::single()).unwrap();
        is_drawable(&page);
        assert!(page.contains("From one seed (1): how much another seed differs is not known."));
        assert!(!page.contains("against the offered load"));
        assert!(page.contains("Time to first token (TTFT)"));
    }

    #[test]
    fn a_search_without_runs_shows_what_it_found() {
        let mut report = made::report();
        report.runs.clear();
        let page = page(&report).unwrap();
        is_drawable(&page);
        assert!(page.contains("Largest rate at which each policy keeps"));
        assert!(!page.contains("Nothing ran."));
        assert!(!page.contains("no seed"));
    }

    #[test]
    fn twenty_policies_fit() {
        let page = page(&made::with_policies(20)).unwrap();
        is_drawable(&page);
        assert!(page.contains("policy-19 (oracle)"));
        assert!(page.len() < 4_000_000, "{} bytes", page.len());
    }

    #[test]
    fn figures_that_were_not_measured_are_a_dash() {
        let mut report = made::single();
        for run in &mut report.runs {
            run.requests = 0;
            run.ttft_ms = sim::Quantiles::default();
            run.cost_per_met_mtoken = None;
            run.worst_tenth_ratio = None;
            run.by_class.clear();
            run.ttft_cdf.clear();
            run.itl_cdf.clear();
            run.utilization.clear();
        }
        let page = page(&report).unwrap();
        is_drawable(&page);
        assert!(page.contains("<td>-</td>"));
    }
}
