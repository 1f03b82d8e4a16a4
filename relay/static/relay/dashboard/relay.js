// What scripts add to the dashboard. Every page works without them.
{
const look = document.documentElement.dataset;
const all = (what) => [...document.querySelectorAll(what)];
const one = (what) => document.querySelector(what);
const on = (what, does) => document.addEventListener(what, does);
const get = (key) => { try { return localStorage.getItem(`relay.${key}`); } catch { } };
const set = (key, value) => { try { localStorage.setItem(`relay.${key}`, value); } catch { } };
const since = (at) => Math.round((Date.now() - at) / 1000);
const say = (each, text) => { if (each.textContent !== text) each.textContent = text; };
let note, ahead, isGoing, asked = Date.now(), answered = asked;

// Before the body: no flash of the other theme.
if (get("theme")) look.theme = get("theme");
const turn = () => {
  const now = look.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches && "dark");
  set("theme", look.theme = now === "dark" ? "light" : "dark");
};

// Times in the viewer's zone, ages by the server's clock, like words.py.
const span = (s) => s < 60 ? `${s} s` : s < 3600 ? `${s / 60 | 0} min`
  : s < 86400 ? `${s / 3600 | 0} h ${s / 60 % 60 | 0} min` : `${s / 86400 | 0} d ${s / 3600 % 24 | 0} h`;
const times = () => all("time:not([title])").forEach((each) => {
  const local = new Date(each.dateTime).toLocaleString("sv-SE");
  if (each.className) each.title = local;
  else [each.title, each.textContent] = [each.dateTime, local];
});
const ages = () => all("time.ago").forEach((each) => {
  const s = since(+new Date(each.dateTime) + ahead);
  say(each, note.dataset[s < 0 ? "in" : "ago"].replace("%s", span(Math.abs(s))));
});

// Live regions ask for themselves.
const every = () => +(get("every") ?? note.dataset.every);
const tick = () => {
  const isFree = !document.hidden && !one("dialog:modal") && !String(getSelection());
  const isOn = isFree && every();
  if (isFree) ages();
  if (isOn && since(asked) >= every()) {
    asked = Date.now();
    all("[data-live]").forEach((each) => each.dispatchEvent(new Event("relay:tick")));
  }
  say(note, note.dataset[isOn ? "on" : "off"].replace("%s", since(answered)));
};
on("htmx:config:request", ({ detail: { ctx } }) => { ctx.request.headers["If-None-Match"] = ctx.sourceElement.dataset.tag; });
on("htmx:finally:request", ({ detail: { ctx } }) => {
  const each = ctx.sourceElement, isWell = ctx.text != null && ctx.response.status < 400;
  if (isWell) [each.dataset.tag, answered] = [ctx.response.headers.get("ETag"), Date.now()];
  say(each.previousSibling, isWell ? "" : note.dataset.failed);
});
const setEvery = (seconds) => { set("every", seconds); renew(); };

const count = () => {
  const boxes = all("input[name=job]"), whole = one("#tick-all");
  const ticked = boxes.filter((box) => box.checked).length;
  all("button[data-many]").forEach((button) => {
    button.disabled = !ticked;
    button.lastChild.textContent = button.dataset[ticked > 1 ? "many" : ticked ? "one" : "none"].replace("%s", ticked);
  });
  if (whole) [whole.checked, whole.indeterminate] = [ticked && ticked === boxes.length, ticked % boxes.length];
};
const renew = () => { times(); all("[data-js]").forEach((each) => each.hidden = false); one("#live-every").value = every(); count(); };

on("keydown", (event) => {
  const { key, target } = event;
  if (event.ctrlKey || event.metaKey || event.altKey || get("keys") === "off" || target.closest("input:not([type=checkbox]), select, textarea, dialog")) return;
  const go = isGoing && all("a[data-go]").find((each) => each.dataset.go === key);
  isGoing = key === "g";
  if (go) go.click();
  else if (key === "/" && one("#search")) { event.preventDefault(); one("#search").focus(); }
  else if (key === "x") target.closest("tr")?.querySelector("input")?.click();
  else if (key === "r") setEvery(every() ? 0 : note.dataset.every);
  else if (key === "t") turn();
  else if (key === "?") one("#keys").showModal();
});
on("change", ({ target: { id, value, checked } }) => {
  if (id === "live-every") setEvery(value);
  if (id === "use-keys") set("keys", checked ? "on" : "off");
  if (id === "tick-all") all("input[name=job]").forEach((box) => { box.checked = checked; });
  count();
});
on("click", ({ target }) => {
  const { id, dataset } = target.closest("button") ?? {};
  if (id === "theme") turn();
  if (id === "help") one("#keys").showModal();
  if (!dataset?.copy) return;
  getSelection().selectAllChildren(one(`#${dataset.copy}`));
  navigator.clipboard?.writeText(String(getSelection())).then(() => { getSelection().empty(); dataset.copied = ""; });
});
on("htmx:after:swap", renew);
on("DOMContentLoaded", () => {
  note = one("#live-note");
  ahead = asked - new Date(note.dataset.now);
  all("[data-live]").forEach((each) => each.insertAdjacentHTML("beforebegin", '<p class="stale" aria-live="polite">'));
  renew();
  setInterval(tick, 1000);
  one("#use-keys").checked = get("keys") !== "off";
  const question = one("dialog[data-modal]");
  if (!question) return;
  question.close();
  question.showModal();
  question.oncancel = () => { one("#back").click(); return false; };
});
}
