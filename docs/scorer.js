/* How the search ranks pages: Sphinx's scores, plus the share of the query's words that
   the title has; the changelog and what records and papers tell come after the guides. */
var Scorer = {
  score: ([docname, title, anchor, description, score]) => {
    const query = new URLSearchParams(window.location.search).get("q") || "";
    const words = query.toLowerCase().split(/[\s-]+/).filter((w) => w.length > 1);
    const heading = title.toLowerCase();
    const named = words.filter((w) => heading.includes(w.replace(/s$/, "")));
    const share = words.length ? named.length / words.length : 0;
    const last = /^(changelog|architecture)$/.test(docname);
    const later = /^(auto_examples|benchmark|paper|generated)/.test(docname);
    return score + 20 * share * share - (last ? 10 : later ? 4 : 0);
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
