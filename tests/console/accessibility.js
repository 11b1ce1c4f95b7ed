// What a page must hold for people who do not see it, or who see it badly: names, contrast, order. Returns what is wrong.
(() => {
  const problems = [];
  const name = (e) => `${e.tagName.toLowerCase()}${e.id ? `#${e.id}` : ""}${e.className && typeof e.className === "string" ? `.${e.className.trim().split(/\s+/).join(".")}` : ""} "${(e.innerText ?? "").trim().slice(0, 40)}"`;
  const seen = (e) => {
    return e.getClientRects().length > 0 && !e.closest(".unseen, .skip") && e.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  };
  const all = (selector) => [...document.querySelectorAll(selector)];

  // Colours over their backgrounds, as WCAG 2 counts them.
  const channels = (text) => {
    const [r, g, b, a = 1] = text.match(/[\d.]+/g).map(Number);
    return { r, g, b, a };
  };
  const over = (top, below) => ({
    r: top.r * top.a + below.r * (1 - top.a), g: top.g * top.a + below.g * (1 - top.a), b: top.b * top.a + below.b * (1 - top.a), a: 1,
  });
  const backgroundOf = (e) => {
    const layers = [];
    for (let at = e; at; at = at.parentElement) {
      const colour = channels(getComputedStyle(at).backgroundColor);
      layers.push(colour);
      if (colour.a === 1) break;
    }
    return layers.reverse().reduce((below, top) => over(top, below), { r: 255, g: 255, b: 255, a: 1 });
  };
  const luminance = ({ r, g, b }) => {
    const linear = [r, g, b].map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const contrast = (a, b) => {
    const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
    return (high + 0.05) / (low + 0.05);
  };
  for (const e of all("body *")) {
    const text = [...e.childNodes].filter((n) => n.nodeType === Node.TEXT_NODE && n.data.trim()).length > 0;
    if (!text || !seen(e) || e.closest(":disabled")) continue;
    const style = getComputedStyle(e);
    const background = backgroundOf(e);
    const ratio = contrast(over(channels(style.color), background), background);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5)) problems.push(`contrast ${ratio.toFixed(2)} of ${name(e)}`);
  }
  for (const e of all("input, select, textarea")) {
    if (!seen(e) || ["checkbox", "radio", "file"].includes(e.type)) continue;
    const edge = contrast(channels(getComputedStyle(e).borderTopColor), backgroundOf(e.parentElement));
    if (edge < 3) problems.push(`edge ${edge.toFixed(2)} of ${name(e)}`);
  }

  // Every control has a name, every group and picture too.
  const labelOf = (e) => e.getAttribute("aria-label")?.trim() || all(`#${e.getAttribute("aria-labelledby") || "none"}`)[0]?.innerText?.trim()
    || [...(e.labels ?? [])].map((l) => l.innerText.trim()).join("") || (["BUTTON", "A", "SUMMARY"].includes(e.tagName) ? e.innerText.trim() : "");
  for (const e of all("a[href], button, input, select, textarea, summary, dialog, nav, [role=listbox], [role=img], [role=log], progress")) {
    if (!seen(e)) continue;
    if (!labelOf(e)) problems.push(`no name: ${name(e)}`);
  }
  for (const e of all("img")) if (!e.hasAttribute("alt")) problems.push(`no alt: ${name(e)}`);
  for (const e of all("[aria-describedby], [aria-labelledby], [aria-activedescendant]")) {
    for (const attribute of ["aria-describedby", "aria-labelledby", "aria-activedescendant"]) {
      const id = e.getAttribute(attribute);
      if (id && !document.getElementById(id)) problems.push(`${attribute} of ${name(e)} points to nothing`);
    }
  }
  for (const table of all("table")) {
    if (seen(table) && !table.querySelector("th, caption")) problems.push(`table without heads: ${name(table)}`);
  }

  // Structure.
  const ids = all("[id]").map((e) => e.id);
  for (const id of new Set(ids.filter((id, i) => ids.indexOf(id) !== i))) problems.push(`two elements have the id ${id}`);
  if (all("h1").length !== 1) problems.push(`${all("h1").length} elements h1`);
  if (!document.documentElement.lang) problems.push("no language");
  const levels = all("h1, h2, h3").filter((e) => e.getClientRects().length && !e.closest("dialog")).map((e) => Number(e.tagName[1]));
  levels.forEach((level, i) => i > 0 && level > levels[i - 1] + 1 && problems.push(`heading h${level} after h${levels[i - 1]}`));
  for (const e of all("[tabindex]")) if (e.tabIndex > 0) problems.push(`tabindex ${e.tabIndex}: ${name(e)}`);
  if (document.documentElement.scrollWidth > innerWidth + 1) problems.push(`the page is ${document.documentElement.scrollWidth} wide, the window ${innerWidth}`);
  for (const e of all("button, .chip")) {
    const box = e.getBoundingClientRect();
    if (seen(e) && (box.height < 24 || box.width < 24)) problems.push(`small target: ${name(e)}`);
  }
  return problems;
})()
