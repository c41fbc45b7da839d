"use strict";
// The attention map of the chosen sentence, system, layer and head, as a table. All text is set as text, never as HTML.
(() => {
  const data = document.getElementById("attention-data");
  if (!data) return;
  const maps = JSON.parse(data.textContent);
  const controls = document.getElementById("attention-controls");
  const place = document.getElementById("attention-map");
  const note = place.querySelector("p.note");

  const make = (name, text, parent) => {
    const element = document.createElement(name);
    if (text !== undefined) element.textContent = text;
    if (parent) parent.append(element);
    return element;
  };
  const select = (label) => {
    const box = make("label", label, controls);
    const list = make("select", undefined, box);
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
  const distinct = (items, key) => [...new Set(items.map((item) => String(item[key])))];

  const sentences = select("Sentence"), systems = select("System"), layers = select("Layer"), heads = select("Head");

  function show() {
    fill(sentences, distinct(maps, "sentence"));
    let chosen = maps.filter((map) => String(map.sentence) === sentences.value);
    fill(systems, distinct(chosen, "system"));
    chosen = chosen.filter((map) => map.system === systems.value);
    fill(layers, distinct(chosen, "title"));
    const map = chosen.find((item) => item.title === layers.value);
    fill(heads, ["mean", ...Array.from({ length: map.heads }, (_, number) => String(number + 1))]);
    draw(map, heads.value);
  }

  function draw(map, head) {
    const bytes = Uint8Array.from(atob(map.weights), (letter) => letter.charCodeAt(0));
    const size = map.rows.length * map.columns.length;
    const numbers = head === "mean" ? Array.from({ length: map.heads }, (_, number) => number) : [Number(head) - 1];
    const weight = (index) => numbers.reduce((sum, number) => sum + bytes[number * size + index], 0) / numbers.length / 255;

    const weights = Array.from({ length: size }, (_, index) => weight(index));
    const most = Math.max(...weights, 1 / 255);

    const frame = make("div");
    frame.className = "frame";
    frame.tabIndex = 0;
    frame.setAttribute("role", "region");
    frame.setAttribute("aria-label", map.title);
    const table = make("table", undefined, frame);
    table.className = "matrix";
    const top = make("tr", undefined, make("thead", undefined, table));
    make("td", undefined, top).className = "empty";
    map.columns.forEach((token) => {
      const cell = make("th", token, top);
      cell.scope = "col";
      cell.className = "upright";
    });
    const body = make("tbody", undefined, table);
    map.rows.forEach((token, row) => {
      const line = make("tr", undefined, body);
      make("th", token, line).scope = "row";
      map.columns.forEach((_, column) => {
        const value = weights[row * map.columns.length + column];
        const cell = make("td", undefined, line);
        cell.style.setProperty("--w", (value / most).toFixed(2));
        cell.title = `${token} → ${map.columns[column]}: ${value.toFixed(2)}`;
      });
    });
    note.firstChild.textContent = `${map.title}, ${head === "mean" ? "mean of the heads" : `head ${head}`}.`;
    note.lastChild.textContent = most.toFixed(2);
    place.replaceChildren(frame, note);
  }

  show();
  layers.value = place.dataset.title;
  show();
})();
