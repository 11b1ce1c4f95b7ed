// A list of any length of which only the rows on screen are elements: 1,000 jobs scroll like 20. It is one stop of the Tab
// key; arrow keys move the active row, Enter opens it.
import { h, setAttribute } from "./dom.js";

const OVERSCAN = 6;

// `makeRow()` returns {node, update(item)}; rows are used again for other items. `open(item)`: a row was chosen.
export class VirtualList {
  constructor({ label, rowHeight, keyOf, makeRow, open }) {
    Object.assign(this, { rowHeight, keyOf, makeRow, open, items: [], rows: [], free: [], shown: new Map() });
    this.space = h("div", { class: "list-space", role: "presentation" });
    this.node = h("div", {
      class: "list", role: "listbox", tabindex: "0", "aria-label": label,
      onkeydown: (event) => this.onKey(event),
    }, this.space);
    this.node.addEventListener("scroll", () => this.drawSoon(), { passive: true });
    this.space.addEventListener("click", (event) => {
      const row = event.target.closest("[role=option]");
      if (row) this.choose(Number(row.dataset.index));
    });
    this.resized = new ResizeObserver(() => this.drawSoon());
    this.resized.observe(this.node);
  }

  setItems(items) {
    this.items = items;
    this.space.style.height = `${items.length * this.rowHeight}px`;
    this.draw();
  }

  setSelected(key) {
    this.selected = key;
    this.draw();
  }

  drawSoon() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = undefined;
      this.draw();
    });
  }

  draw() {
    const top = this.node.scrollTop;
    const first = Math.max(0, Math.floor(top / this.rowHeight) - OVERSCAN);
    const last = Math.min(this.items.length, Math.ceil((top + this.node.clientHeight) / this.rowHeight) + OVERSCAN);
    for (const [index, row] of this.shown) {
      if (index >= first && index < last) continue;
      this.shown.delete(index);
      this.free.push(row);
    }
    for (let index = first; index < last; ++index) this.drawRow(index);
    for (const row of this.free) row.node.hidden = true;
    const active = this.shown.get(this.items.findIndex((item) => this.keyOf(item) === this.selected));
    setAttribute(this.node, "aria-activedescendant", active?.node.id);
  }

  drawRow(index) {
    let row = this.shown.get(index);
    if (!row) {
      row = this.free.pop() ?? this.newRow();
      this.shown.set(index, row);
      row.node.hidden = false;
      row.node.dataset.index = index;
      row.node.style.transform = `translateY(${index * this.rowHeight}px)`;
      row.node.setAttribute("aria-posinset", index + 1);
    }
    const item = this.items[index];
    setAttribute(row.node, "aria-setsize", this.items.length);
    setAttribute(row.node, "aria-selected", this.keyOf(item) === this.selected);
    row.update(item);
  }

  newRow() {
    const row = this.makeRow();
    row.node.classList.add("list-row");
    row.node.setAttribute("role", "option");
    row.node.id = `list-row-${this.rows.length}`;
    this.rows.push(row);
    this.space.append(row.node);
    return row;
  }

  choose(index) {
    if (index < 0 || index >= this.items.length) return;
    this.selected = this.keyOf(this.items[index]);
    const top = index * this.rowHeight;
    const height = this.node.clientHeight;
    if (top < this.node.scrollTop) this.node.scrollTop = top;
    else if (top + this.rowHeight > this.node.scrollTop + height) this.node.scrollTop = top + this.rowHeight - height;
    this.draw();
    this.open(this.items[index]);
  }

  onKey(event) {
    const page = Math.max(1, Math.floor(this.node.clientHeight / this.rowHeight) - 1);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (!(event.key in moves) || this.items.length === 0) return;
    event.preventDefault();
    const at = this.items.findIndex((item) => this.keyOf(item) === this.selected);  // -1: none, so that a step down is the first
    this.choose(Math.min(this.items.length - 1, Math.max(0, at + moves[event.key])));
  }

  remove() {
    this.resized.disconnect();
    cancelAnimationFrame(this.frame);
  }
}
