"use strict";
// Adds a search field and sorting to each table of explorer_table. Without it the tables are complete, worst rows first.
for (const table of document.querySelectorAll("table[data-explorer]")) {
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const texts = rows.map(row => row.textContent.toLowerCase());
  const tools = document.createElement("div");
  const label = document.createElement("label");
  const input = document.createElement("input");
  const count = document.createElement("span");
  tools.className = "tools";
  input.type = "search";
  input.placeholder = "words, a speaker, an id";
  label.append("Search ", input);
  count.setAttribute("role", "status");
  tools.append(label, count);
  table.closest(".scrolls").before(tools);

  const search = () => {
    const wanted = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    rows.forEach((row, index) => {
      row.hidden = !wanted.every(word => texts[index].includes(word));
      shown += row.hidden ? 0 : 1;
    });
    count.textContent = shown.toLocaleString("en") + " of " + rows.length.toLocaleString("en") + " rows";
  };
  input.addEventListener("input", search);
  search();

  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    const numeric = head.classList.contains("number");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    const value = row => {
      const text = row.cells[column].textContent.trim();
      return numeric ? parseFloat(text.replace("−", "-").replace(/[^0-9.+-]/g, "")) : text;
    };
    button.addEventListener("click", () => {
      const ascending = head.getAttribute("aria-sort") !== (numeric ? "descending" : "ascending") ? !numeric : numeric;
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      const order = rows.map((row, index) => [value(row), index]);
      order.sort(([one, first], [two, second]) => {
        if (numeric && (isNaN(one) || isNaN(two))) return isNaN(one) - isNaN(two) || first - second;
        const before = numeric ? one - two : one.localeCompare(two, undefined, { numeric: true });
        return (ascending ? before : -before) || first - second;
      });
      body.append(...order.map(([, index]) => rows[index]));
    });
  });
}
