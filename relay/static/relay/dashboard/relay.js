// What scripts add to the dashboard. Every page works without them.
(() => {
  const look = document.documentElement.dataset;
  const all = (what) => [...document.querySelectorAll(what)];
  const one = (what) => document.querySelector(what);
  const on = (what, does) => document.addEventListener(what, does);
  const get = (key) => { try { return localStorage.getItem(`relay.${key}`); } catch { } };
  const set = (key, value) => { try { localStorage.setItem(`relay.${key}`, value); } catch { } };
  const since = (at) => Math.round((Date.now() - at) / 1000);
  let note, ahead, isGoing, asked = Date.now();

  // Before the body: no flash of the other theme.
  if (get("theme")) look.theme = get("theme");
  const turn = () => {
    const now = look.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "");
    set("theme", look.theme = now === "dark" ? "light" : "dark");
  };

  // Times in the viewer's zone, ages by the server's clock, spans as in words.py.
  const span = (s) => s < 60 ? `${s} s` : s < 3600 ? `${s / 60 | 0} min`
    : s < 86400 ? `${s / 3600 | 0} h ${s / 60 % 60 | 0} min` : `${s / 86400 | 0} d ${s / 3600 % 24 | 0} h`;
  const times = () => all("time:not([title])").forEach((each) => {
    const local = new Date(each.dateTime).toLocaleString("sv-SE");
    if (each.className) each.title = local;
    else [each.title, each.textContent] = [each.dateTime, local];
  });
  const ages = () => all("time.ago").forEach((each) => {
    const s = since(+new Date(each.dateTime) + ahead);
    const text = note.dataset[s < 0 ? "in" : "ago"].replace("%s", span(Math.abs(s)));
    if (each.textContent !== text) each.textContent = text;
  });

  // Live regions ask for themselves.
  const every = () => +(get("every") ?? note.dataset.every);
  const tick = () => {
    const isHeld = document.hidden || one("dialog:modal") || String(getSelection());
    const isOn = every() && !isHeld, seconds = since(asked);
    if (!isHeld) ages();
    if (isOn && seconds >= every()) {
      asked = Date.now();
      all("[data-live]").forEach((each) => each.dispatchEvent(new Event("relay:tick")));
    } else note.textContent = note.dataset[isOn ? "on" : "off"].replace("%s", seconds);
  };
  on("htmx:config:request", ({ detail: { ctx } }) => { ctx.request.headers["If-None-Match"] = ctx.sourceElement.dataset.tag; });
  on("htmx:before:response", ({ detail: { ctx } }) => { ctx.sourceElement.dataset.tag = ctx.response.headers.get("ETag"); });
  const setEvery = (seconds) => { set("every", seconds); renew(); };

  const count = () => {
    const boxes = all("input[name=job]"), whole = one("#tick-all");
    const ticked = boxes.filter((box) => box.checked).length;
    all("button[data-many]").forEach((button) => {
      button.disabled = !ticked;
      button.lastChild.textContent = ticked > 1 ? button.dataset.many.replace("%s", ticked) : button.dataset[ticked ? "one" : "none"];
    });
    if (whole) [whole.checked, whole.indeterminate] = [ticked && ticked === boxes.length, ticked % boxes.length];
  };
  const renew = () => { times(); all("[data-js]").forEach((each) => { each.hidden = false; }); one("#live-every").value = every(); count(); };

  on("keydown", (event) => {
    const { key, target, ctrlKey, metaKey, altKey } = event;
    if (ctrlKey || metaKey || altKey || get("keys") === "off" || target.closest("input:not([type=checkbox]), select, textarea, dialog")) return;
    const go = isGoing && all("a[data-go]").find((each) => each.dataset.go === key);
    isGoing = key === "g";
    const search = one("#search"), box = target.closest("tr")?.querySelector("input");
    if (go) go.click();
    else if (key === "/" && search) { event.preventDefault(); search.focus(); }
    else if (key === "x" && box) box.click();
    else if (key === "r") setEvery(every() ? 0 : note.dataset.every);
    else if (key === "t") turn();
    else if (key === "?") one("#keys").showModal();
  });
  on("change", ({ target }) => {
    if (target.id === "live-every") setEvery(target.value);
    if (target.id === "use-keys") set("keys", target.checked ? "on" : "off");
    if (target.id === "tick-all") all("input[name=job]").forEach((box) => { box.checked = target.checked; });
    count();
  });
  on("click", ({ target }) => {
    const button = target.closest("button"), copied = button?.dataset.copy;
    if (button?.id === "theme") turn();
    if (button?.id === "help") one("#keys").showModal();
    if (!copied) return;
    getSelection().selectAllChildren(one(`#${copied}`));
    navigator.clipboard?.writeText(String(getSelection())).then(() => { getSelection().empty(); button.dataset.copied = ""; });
  });
  on("htmx:after:swap", renew);
  on("DOMContentLoaded", () => {
    note = one("#live-note");
    ahead = asked - new Date(note.dataset.now);
    renew();
    setInterval(tick, 1000);
    one("#use-keys").checked = get("keys") !== "off";
    const question = one("dialog[data-modal]");
    question?.close();
    question?.showModal();
    question?.addEventListener("cancel", (event) => { event.preventDefault(); one("#back").click(); });
  });
})();
