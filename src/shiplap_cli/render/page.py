"""A page of its own: one file with everything in it, which asks no network for anything and runs no script but ours."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256

from shiplap.drawing.markup import text
from shiplap.drawing.style import style_sheet

SCRIPT = """
(() => {
  "use strict";
  const all = (what, where) => [...(where || document).querySelectorAll(what)];
  document.documentElement.classList.add("js");
  const rove = () => all(".sl .nodes").forEach(list =>
    all(".b", list).forEach((box, place) => { box.tabIndex = place ? -1 : 0; }));
  document.addEventListener("keydown", event => {
    const box = event.target;
    if (!(box instanceof Element) || !box.matches(".sl .b")) return;
    if (event.key === "Escape") { box.blur(); return; }
    const step = { ArrowRight: 1, ArrowLeft: -1, Home: -1e9, End: 1e9 }[event.key];
    if (!step) return;
    const boxes = all(".b", box.closest(".map"));
    const next = boxes[Math.min(Math.max(boxes.indexOf(box) + step, 0), boxes.length - 1)];
    event.preventDefault();
    next.tabIndex = 0;
    next.focus();
  });
  rove();
  const told = document.getElementById("moments");
  if (!told) return;
  const moments = JSON.parse(told.textContent);
  const pieces = document.getElementById("pieces").content.children;
  const piece = number => pieces[number].cloneNode(true);
  const slider = document.getElementById("moment");
  const map = document.getElementById("map");
  const named = map.dataset.list;
  const show = () => {
    const [part, when, totals, waiting, pools] = moments[slider.value];
    document.documentElement.style.setProperty("--at", part);
    document.getElementById("when").textContent = when;
    slider.setAttribute("aria-valuetext", when);
    document.getElementById("totals").replaceChildren(piece(totals));
    document.getElementById("waiting").replaceChildren(piece(waiting));
    const none = document.createElement("p");
    none.className = "empty";
    none.textContent = "No nodes.";
    map.replaceChildren(...(pools.length ? [] : [none]), ...pools.map(([kind, heading, boxes]) => {
      const section = document.createElement("section");
      section.className = "pool " + kind;
      const list = document.createElement("ul");
      list.className = named;
      list.replaceChildren(...boxes.map(piece));
      section.replaceChildren(piece(heading), list);
      return section;
    }));
    rove();
  };
  slider.addEventListener("input", show);
  show();
})();
"""

_FRAME = """
body{margin:0;background:var(--sl-page)}
.sl{max-width:1400px;margin:0 auto;padding:20px 16px 48px}
"""


def page(title: str, lead: str, body: str) -> str:
    """A whole document. `title` and `lead` are plain text, `body` is markup that was made by this package."""
    digest = b64encode(sha256(SCRIPT.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return (
        "<!doctype html>\n"
        '<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        f"<title>{text(title)}</title><style>{style_sheet()}{_FRAME}</style></head>"
        f"<body><main class=sl><h1>{text(title)}</h1><p class=lead>{text(lead)}</p>{body}</main>"
        f"<script>{SCRIPT}</script></body></html>\n"
    )
