// What the dashboard adds where JavaScript runs. Every page works without it.
(() => {
  "use strict";
  const root = document.documentElement;
  const all = (what, where = document) => [...where.querySelectorAll(what)];
  const one = (what) => document.querySelector(what);
  const kept = {
    get: (key) => { try { return localStorage.getItem(`relay.${key}`); } catch { return null; } },
    set: (key, value) => { try { localStorage.setItem(`relay.${key}`, value); } catch { /* private */ } },
  };

  // Before the body is drawn: no flash of the other theme.
  const theme = kept.get("theme");
  if (theme === "light" || theme === "dark") root.dataset.theme = theme;

  const turnTheme = () => {
    const isDark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
    kept.set("theme", root.dataset.theme);
  };

  // Times in the viewer's zone; as the server wrote them on hover.
  const localTimes = () => all("time[datetime]:not([data-shown])").forEach((each) => {
    const at = new Date(each.dateTime);
    if (isNaN(at)) return;
    const local = at.toLocaleString("sv-SE");
    if (each.classList.contains("ago")) each.title = local;
    else [each.title, each.textContent] = [each.dateTime, local];
    each.dataset.shown = "";
  });

  // Live regions: each asks for itself again when it hears relay:tick.
  let asked = Date.now();
  const every = () => Number(kept.get("every") ?? 5);
  const isHeld = () => document.hidden || one("dialog:modal") || String(getSelection());
  const tick = () => {
    const note = one("#live-note");
    const seconds = Math.round((Date.now() - asked) / 1000);
    if (every() && !isHeld() && seconds >= every()) refresh();
    else if (note) note.textContent = note.dataset[every() && !isHeld() ? "on" : "off"].replace("%s", seconds);
  };
  const refresh = () => {
    asked = Date.now();
    all("[data-live]").forEach((each) => each.dispatchEvent(new Event("relay:tick")));
  };
  const setEvery = (seconds) => {
    kept.set("every", seconds);
    const choice = one("#live-every");
    if (choice) choice.value = String(seconds);
  };

  // How many are ticked, and what the buttons would do to them.
  const count = () => all("form[data-acts]").forEach((form) => {
    const boxes = all(`input[name=job][form="${form.id}"]`);
    const ticked = boxes.filter((box) => box.checked).length;
    all("button[data-many]", form).forEach((button) => {
      button.disabled = !ticked;
      button.lastChild.textContent = ticked === 1 ? button.dataset.one
        : ticked ? button.dataset.many.replace("%s", ticked) : button.dataset.none;
    });
    const whole = one("#tick-all");
    if (whole) [whole.checked, whole.indeterminate] = [ticked && ticked === boxes.length, ticked && ticked < boxes.length];
  });

  const renew = () => { localTimes(); all("[data-js]").forEach((each) => { each.hidden = false; }); count(); };

  const isTyping = (target) => target.closest("input:not([type=checkbox]), select, textarea, dialog");
  let isGoing = false;
  const press = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || kept.get("keys") === "off" || isTyping(event.target)) return;
    const go = isGoing && one(`a[data-go="${event.key}"]`);
    isGoing = event.key === "g";
    const search = one("#search");
    const box = event.target.closest("tr")?.querySelector("input[type=checkbox]");
    if (go) go.click();
    else if (event.key === "/" && search) { event.preventDefault(); search.focus(); }
    else if (event.key === "x" && box) box.click();
    else if (event.key === "r") setEvery(every() ? 0 : 5);
    else if (event.key === "t") turnTheme();
    else if (event.key === "?") one("#keys").showModal();
  };

  document.addEventListener("DOMContentLoaded", () => {
    renew();
    setEvery(every());
    setInterval(tick, 1000);
    all("dialog[data-modal]").forEach((dialog) => {
      dialog.close();
      dialog.showModal();
      dialog.addEventListener("cancel", (event) => { event.preventDefault(); one("#back").click(); });
    });
    const keys = one("#use-keys");
    if (keys) {
      keys.checked = kept.get("keys") !== "off";
      keys.addEventListener("change", () => kept.set("keys", keys.checked ? "on" : "off"));
    }
    document.addEventListener("keydown", press);
    document.addEventListener("change", (event) => {
      if (event.target.id === "live-every") setEvery(Number(event.target.value));
      if (event.target.id === "tick-all") all("input[name=job]").forEach((box) => { box.checked = event.target.checked; });
      count();
    });
    document.addEventListener("click", (event) => {
      const button = event.target.closest("[data-copy], #theme, #help");
      if (button?.id === "theme") turnTheme();
      if (button?.id === "help") one("#keys").showModal();
      if (button?.dataset.copy) navigator.clipboard?.writeText(button.dataset.copy).then(() => { button.dataset.copied = ""; });
    });
    document.addEventListener("htmx:after:swap", renew);
  });
})();
