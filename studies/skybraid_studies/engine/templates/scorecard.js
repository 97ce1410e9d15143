"use strict";
{
  const table = document.querySelector(".rows");
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const filters = document.querySelector(".filters");
  const shown = document.querySelector(".shown");

  const filter = () => {
    const words = filters.elements.words.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      const fits = ["paper", "verdict", "type"].every((key) => !filters.elements[key].value || row.dataset[key] === filters.elements[key].value);
      row.hidden = !(fits && words.every((word) => text.includes(word)));
      count += !row.hidden;
    }
    shown.textContent = `${count} of ${rows.length}`;
  };

  const value = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.value === undefined ? cell.textContent.trim() : Number.parseFloat(cell.dataset.value);
  };

  const sort = (head) => {
    const column = head.cellIndex;
    const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
    rows.sort((one, other) => {
      const [a, b] = [value(one, column), value(other, column)];
      if (typeof a === "string") return sign * a.localeCompare(b, "en", { numeric: true });
      return (Number.isNaN(a) - Number.isNaN(b)) || sign * (a - b);
    });
    body.append(...rows);
  };

  // A drawing becomes part of the page when its row is unfolded for the first time.
  const draw = (details) => {
    const drawing = details.querySelector("script[type='image/svg+xml']");
    if (drawing) drawing.outerHTML = drawing.textContent;
  };

  for (const button of table.tHead.querySelectorAll("button")) button.addEventListener("click", () => sort(button.closest("th")));
  for (const details of table.querySelectorAll("details")) details.addEventListener("toggle", () => draw(details));
  filters.addEventListener("input", filter);
  filters.addEventListener("submit", (event) => event.preventDefault());
  filters.hidden = false;
  filter();

  const open = () => {
    const row = location.hash && document.getElementById(location.hash.slice(1));
    if (row) row.querySelector("details").open = true;
  };
  addEventListener("hashchange", open);
  open();
}
