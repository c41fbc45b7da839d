document.querySelectorAll("button.copy").forEach((button) => copyButton(button, () => button.parentElement.nextElementSibling.textContent));

// The attention map of the chosen sentence and system.
(() => {
  const data = document.getElementById("attention-data");
  if (!data) return;
  const place = document.getElementById("attention-map");
  const keys = { sentence: "Sentence", system: "System", title: "Layer" };
  const controls = document.getElementById("attention-controls");
  attentionMaps(JSON.parse(data.textContent), keys, controls, place, place.querySelector("p.note"), place.dataset.title);
})();
