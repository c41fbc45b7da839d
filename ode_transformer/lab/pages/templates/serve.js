// The page of a server: translations of what is typed, a look inside the models, and files.
(() => {
  const byId = (id) => document.getElementById(id);
  const text = byId("text"), state = byId("status"), results = byId("results"), inside = byId("inside");
  const DELAY = 500; // milliseconds without a key before what was typed is sent

  // The server's answer; an error is its line.
  async function send(address, body, type) {
    let answer;
    try {
      answer = await fetch(address, { method: "POST", body, headers: { "Content-Type": type } });
    } catch {
      throw new Error("the server does not answer");
    }
    if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).error ?? `status ${answer.status}`);
    return answer;
  }
  const ask = async (address, values) => (await send(address, JSON.stringify(values), "application/json")).json();

  const chosenModels = () => [...document.querySelectorAll("input[name=model]:checked")].map((box) => box.value);
  const number = (id) => Math.min(Math.max(Math.trunc(byId(id).valueAsNumber) || 1, 1), Number(byId(id).max));

  function request() {
    const beam = number("beam");
    return { lines: text.value.split("\n"), models: chosenModels(), beam, n_best: Math.min(number("n-best"), beam) };
  }

  // One request at a time; what changes meanwhile is sent after it.
  let busy = false, again = false, shown = "", timer = 0;
  async function translate() {
    clearTimeout(timer);
    if (busy) {
      again = true;
      return;
    }
    const values = request();
    const sent = JSON.stringify(values);
    if (!text.value.trim() || !values.models.length) {
      shown = "";
      results.replaceChildren();
      state.textContent = values.models.length ? "" : "Choose a model.";
      return;
    }
    if (sent === shown) return;
    busy = true;
    state.textContent = "Translating…";
    try {
      const { systems } = await ask("translate", values);
      shown = sent;
      showResults(values, systems);
      state.textContent = [...new Set(systems.map((system) => system.warning).filter(Boolean))].join(" ");
    } catch (error) {
      state.textContent = `Refused: ${error.message}`;
    }
    busy = false;
    if (again) {
      again = false;
      translate();
    }
  }

  function showResults(values, systems) {
    results.replaceChildren();
    byId("score-note").hidden = false;
    values.lines.forEach((line, index) => {
      if (!line.trim()) return;
      const article = make("article", undefined, results);
      article.className = "sentence";
      make("h3", line, article);
      const list = make("dl", undefined, article);
      systems.forEach((system) => {
        make("dt", system.model, list);
        const entry = make("dd", undefined, list), place = make("ol", undefined, entry);
        system.n_best[index].forEach((hypothesis) => {
          const item = make("li", hypothesis.text || "(empty)", place);
          make("span", ` ${hypothesis.score.toFixed(2)}`, item).className = "note";
        });
        const copy = make("button", "Copy", entry);
        copy.type = "button";
        copy.className = "copy";
        copy.title = "Copy the first";
        copyButton(copy, () => system.n_best[index][0].text);
      });
      const button = make("button", "Look inside", article);
      button.type = "button";
      button.addEventListener("click", () => look({ lines: [line], models: values.models, beam: values.beam }, button));
    });
  }

  async function look(values, button) {
    button.disabled = true;
    try {
      const { systems } = await ask("inspect", values);
      showInside(values.lines[0], systems);
    } catch (error) {
      state.textContent = `Refused: ${error.message}`;
    }
    button.disabled = false;
  }

  function showInside(line, systems) {
    byId("inside-line").textContent = line;
    const place = byId("inside-systems");
    place.replaceChildren();
    inside.hidden = false;
    systems.forEach((system) => {
      const tile = make("article", undefined, place);
      tile.className = "sentence";
      make("h3", `${system.model}: ${system.translation}`, tile);
      if (system.attention.length) showAttention(system, tile);
      else make("p", "No map of attention: the sentence is long, or the model has none to show.", tile).className = "note";
      showWeights(system, tile);
    });
    byId("inside-title").focus();
  }

  function showAttention(system, tile) {
    make("h4", "Attention", tile);
    const controls = make("div", undefined, tile);
    controls.className = "controls";
    const place = make("div", undefined, tile), note = make("p");
    place.className = "attention";
    note.className = "note";
    make("span", "", note);
    note.append(" 0 ");
    make("span", undefined, note).className = "scale";
    note.append(" ");
    make("span", "", note);
    attentionMaps(system.attention, { title: "Layer" }, controls, place, note, system.attention.at(-1).title);
  }

  function showWeights(system, tile) {
    make("h4", "Stage weights at each word", tile);
    if (!system.stage_weights.length) make("p", "The model's layers have no stages.", tile).className = "note";
    const list = make("div", undefined, tile);
    list.className = "tiles weights";
    system.stage_weights.forEach(({ block, tokens, weights }) => {
      const box = make("div", undefined, list);
      make("h4", block, box);
      const stages = weights.map((_, stage) => `stage ${stage + 1}`);
      const most = Math.max(1, ...weights.flat().map((weight) => Math.abs(weight ?? 0)));
      // A token has a row, so that the table is narrow.
      box.append(shadedTable(`Stage weights of ${block}`, tokens, stages, (token, stage) => weights[stage][token] ?? NaN, most, true));
    });
  }

  async function translateFile(event) {
    event.preventDefault();
    const [file] = byId("file").files, note = byId("file-status");
    const model = byId("file-model")?.value ?? document.querySelector("input[name=model]").value;
    note.textContent = "Translating…";
    try {
      const answer = await send(`translate-file?model=${encodeURIComponent(model)}`, file, "text/plain");
      const link = make("a");
      link.href = URL.createObjectURL(new Blob([await answer.text()], { type: "text/plain" }));
      const { source, target } = byId("file-form").dataset;
      const end = `.${source}`, stem = file.name.endsWith(end) ? file.name.slice(0, -end.length) : file.name;
      link.download = `${stem}.${target}`; // text.en becomes text.de
      link.textContent = link.download;
      note.replaceChildren("Done: ", link);
      link.focus();
    } catch (error) {
      note.textContent = `Refused: ${error.message}`;
    }
  }

  byId("form").addEventListener("submit", (event) => {
    event.preventDefault();
    shown = "";
    translate();
  });
  byId("form").addEventListener("input", () => {
    clearTimeout(timer);
    if (byId("live").checked) timer = setTimeout(translate, DELAY);
  });
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) byId("form").requestSubmit();
  });
  byId("file-form").addEventListener("submit", translateFile);
})();
