for (const choice of document.querySelectorAll(".choice")) {
  const [across, up] = choice.querySelectorAll("select");
  const show = () => {
    for (const pair of document.querySelectorAll(".pair"))
      pair.hidden = pair.dataset.x !== across.value || pair.dataset.y !== up.value;
    document.querySelector(".same").hidden = across.value !== up.value;
  };
  across.addEventListener("change", show);
  up.addEventListener("change", show);
  choice.hidden = false;
  show();
}
