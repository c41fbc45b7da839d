"use strict";
// The attention map of the chosen layer and head, as a table. All text is set as text, never as HTML.
const make = (name, text, parent) => {
  const element = document.createElement(name);
  if (text !== undefined) element.textContent = text;
  if (parent) parent.append(element);
  return element;
};

// Let a button copy a text, where the browser allows it.
function copyButton(button, text) {
  button.hidden = !navigator.clipboard;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text());
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
}

// A frame that scrolls, with a table whose cells are shades of their values: rows × columns.
function shadedTable(label, rows, columns, value, most, numbers) {
  const frame = make("div");
  frame.className = "frame";
  frame.tabIndex = 0;
  frame.setAttribute("role", "region");
  frame.setAttribute("aria-label", label);
  const table = make("table", undefined, frame);
  table.className = "matrix";
  const top = make("tr", undefined, make("thead", undefined, table));
  make("td", undefined, top).className = "empty";
  columns.forEach((token) => {
    const cell = make("th", token, top);
    cell.scope = "col";
    if (!numbers) cell.className = "upright";
  });
  const body = make("tbody", undefined, table);
  rows.forEach((token, row) => {
    const line = make("tr", undefined, body);
    make("th", token, line).scope = "row";
    columns.forEach((column, index) => {
      const weight = value(row, index);
      const fraction = Math.min(Math.abs(weight) / most, 1);
      const cell = make("td", numbers ? weight.toFixed(2) : undefined, line);
      cell.style.setProperty("--w", fraction.toFixed(2));
      if (numbers && fraction > 0.6) cell.className = "strong";
      if (!numbers) cell.title = `${token} → ${column}: ${weight.toFixed(2)}`;
    });
  });
  return frame;
}

// keys: fields of a map that choose among them, with their labels; the last one is a map's title.
function attentionMaps(maps, keys, controls, place, note, title) {
  const select = (label) => {
    const list = make("select", undefined, make("label", label, controls));
    list.addEventListener("change", show);
    return list;
  };
  const fill = (list, values) => {
    const before = list.value;
    list.replaceChildren();
    values.forEach((value) => make("option", value, list));
    if (values.includes(before)) list.value = before;
    list.parentElement.hidden = values.length < 2;
  };
  const lists = Object.values(keys).map(select), heads = select("Head");

  function show() {
    let chosen = maps;
    Object.keys(keys).forEach((key, number) => {
      fill(lists[number], [...new Set(chosen.map((map) => String(map[key])))]);
      chosen = chosen.filter((map) => String(map[key]) === lists[number].value);
    });
    fill(heads, ["mean", ...Array.from({ length: chosen[0].heads }, (_, number) => String(number + 1))]);
    draw(chosen[0], heads.value);
  }

  function draw(map, head) {
    const bytes = Uint8Array.from(atob(map.weights), (letter) => letter.charCodeAt(0));
    const size = map.rows.length * map.columns.length;
    const numbers = head === "mean" ? Array.from({ length: map.heads }, (_, number) => number) : [Number(head) - 1];
    const weight = (row, column) => {
      const index = row * map.columns.length + column;
      return numbers.reduce((sum, number) => sum + bytes[number * size + index], 0) / numbers.length / 255;
    };
    const weights = map.rows.flatMap((_, row) => map.columns.map((_, column) => weight(row, column)));
    const most = Math.max(...weights, 1 / 255);
    const frame = shadedTable(map.title, map.rows, map.columns, weight, most, false);
    note.firstChild.textContent = `${map.title}, ${head === "mean" ? "mean of the heads" : `head ${head}`}.`;
    note.lastChild.textContent = most.toFixed(2);
    place.replaceChildren(frame, note);
  }

  show();
  lists.at(-1).value = title;
  show();
}
