"""The style of all pictures. Every rule is below `.sl`, so that a picture leaves the page around it alone.

Colours have a light and a dark theme. The colours of pools were searched for so that any two of them stay apart (a
distance of at least 0.1 in OKLab) also for people who cannot tell red from green, and so that each has a contrast of at
least 3 to what lies below it; a test holds both. Colour is never all there is to tell things apart: pools stand under
their names, tiers have patterns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

POOLS_LIGHT = ("#4d5cd9", "#1ea4ad", "#ac396d", "#648f00", "#fd5a71", "#753101", "#542e77")
POOLS_DARK = ("#586af0", "#2ad9c5", "#c93b95", "#dccf3c", "#ff9075", "#927b2a", "#a7b1ff")

NEUTRAL = len(POOLS_LIGHT)
"""The number of the colour of foreign nodes, and of pools beyond those that have one of their own."""

_LIGHT = {
    "page": "#f5f6f8",
    "card": "#ffffff",
    "ink": "#1a1f29",
    "soft": "#566072",
    "line": "#d5d9e0",
    "room": "#e9ecf1",
    "accent": "#1d5fc4",
    "bad": "#b3261e",
    "good": "#1a7f37",
    f"p{NEUTRAL}": "#6f7787",
} | {f"p{place}": colour for place, colour in enumerate(POOLS_LIGHT)}

_DARK = {
    "page": "#0f1217",
    "card": "#171b22",
    "ink": "#e8ebf0",
    "soft": "#9aa4b5",
    "line": "#333b48",
    "room": "#262d38",
    "accent": "#7db0ff",
    "bad": "#ff8a80",
    "good": "#62d27f",
    f"p{NEUTRAL}": "#8891a1",
} | {f"p{place}": colour for place, colour in enumerate(POOLS_DARK)}


def variables(theme: str) -> str:
    """CSS custom properties of a theme, `light` or `dark`."""
    chosen = _DARK if theme == "dark" else _LIGHT
    return ";".join(f"--sl-{name}:{colour}" for name, colour in chosen.items())


def colour_numbers(pools: Iterable[str]) -> Mapping[str, int]:
    """The number of each pool's colour; by name, so that a pool keeps its colour from picture to picture."""
    named = sorted({pool for pool in pools if pool})
    return {pool: min(place, NEUTRAL) for place, pool in enumerate(named)} | {"": NEUTRAL}


_POOLS = "".join(f".sl .p{place}{{--c:var(--sl-p{place})}}" for place in range(NEUTRAL + 1))

_RULES = """
.sl{color:var(--sl-ink);font:14px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;overflow-wrap:anywhere}
.sl *{box-sizing:border-box}
.sl h1{font-size:22px;line-height:1.25;margin:0 0 2px}
.sl h2{font-size:17px;margin:28px 0 8px}
.sl h3{font-size:14px;margin:18px 0 8px;display:flex;flex-wrap:wrap;align-items:baseline;gap:2px 8px}
.sl small{color:var(--sl-soft);font-weight:400;font-size:13px}
.sl p{margin:6px 0}
.sl .lead{color:var(--sl-soft);margin:0 0 14px}
.sl .empty{color:var(--sl-soft);padding:24px 0}
.sl .bad{color:var(--sl-bad)}.sl .good{color:var(--sl-good)}
.sl .unseen{margin:10px 0;padding:8px 12px;border-left:4px solid var(--sl-bad);background:var(--sl-card)}
.sl .defs{position:absolute}
.sl ul{list-style:none;margin:0;padding:0}
.sl .totals{display:flex;flex-wrap:wrap;gap:1px;margin:12px 0;
background:var(--sl-line);border:1px solid var(--sl-line);border-radius:8px;overflow:hidden}
.sl .totals div{flex:1 1 112px;background:var(--sl-card);padding:8px 12px}
.sl .totals dt{color:var(--sl-soft);font-size:12px}
.sl .totals dd{margin:0;font-size:19px;font-weight:600;font-variant-numeric:tabular-nums}
.sl .totals dd small{display:block;font-size:12px}
.sl .legend{display:flex;flex-wrap:wrap;gap:6px 18px;color:var(--sl-soft);font-size:13px;--c:var(--sl-accent)}
.sl .legend li{display:flex;align-items:center;gap:7px}.sl .legend svg{flex:none}
.sl .swatch{flex:none;width:11px;height:11px;border-radius:3px;background:var(--c);display:inline-block}
.sl .nodes{display:flex;flex-wrap:wrap;align-items:flex-end;gap:6px}
.sl .nodes.named{gap:10px 14px}
.sl .n{position:relative}
.sl .b{display:block;line-height:0;border-radius:3px;cursor:pointer}
.sl .b svg,.sl .legend svg{display:block;overflow:visible}
.sl .b:focus{outline:3px solid var(--sl-accent);outline-offset:2px}
.sl .l{font-size:11px;line-height:1.3;color:var(--sl-soft);margin-top:3px;min-width:76px}
.sl .room{fill:var(--sl-room)}
.sl .pod,.sl .fresh{fill:var(--c);stroke:var(--sl-card);stroke-width:.7}
.sl .rest{fill:var(--c);fill-opacity:.72}
.sl .planning .pod,.sl .planning .rest{fill-opacity:.38}
.sl .pod:hover,.sl .fresh:hover,.sl .rest:hover{stroke:var(--sl-ink);stroke-width:1.5}
.sl .stripe{fill:var(--sl-card);fill-opacity:.62}
.sl .tier{pointer-events:none}
.sl .frame{fill:none;stroke:var(--c,var(--sl-soft));stroke-width:1;pointer-events:none}
.sl .planned .frame{stroke:var(--sl-good);stroke-width:2.5}
.sl .starting .frame{stroke-dasharray:4 3;stroke-width:1.6}
.sl .notready .frame{stroke:var(--sl-bad);stroke-width:2;stroke-dasharray:2 2}
.sl .leaving .frame{stroke:var(--sl-bad);stroke-width:1.6}
.sl .leaving .pod,.sl .leaving .rest{fill-opacity:.45}
.sl .cross{stroke:var(--sl-bad);stroke-width:1.6;fill:none;pointer-events:none}
.sl .k{display:none;font-size:13px}
.sl .b:focus~.k{display:block;position:fixed;z-index:9;left:12px;bottom:12px;width:min(440px,calc(100vw - 24px));
max-height:60vh;overflow:auto;background:var(--sl-card);border:1px solid var(--sl-line);border-radius:10px;
padding:12px 14px;box-shadow:0 8px 30px rgba(0,0,0,.28)}
.sl .k ul{margin-top:8px;border-top:1px solid var(--sl-line);padding-top:6px}
.sl .k li{display:flex;justify-content:space-between;gap:12px}.sl .k span{color:var(--sl-soft);white-space:nowrap}
.sl .k .new::before{content:"+";color:var(--sl-good);font-weight:700;margin-right:-8px}
.sl .wide{overflow-x:auto;border:1px solid var(--sl-line);border-radius:8px;background:var(--sl-card)}
.sl table{border-collapse:collapse;width:100%;font-size:13px}
.sl th,.sl td{text-align:left;vertical-align:top;padding:6px 10px;border-top:1px solid var(--sl-line);min-width:48px}
.sl td{overflow-wrap:break-word;max-width:46ch}
.sl thead th{border-top:0;color:var(--sl-soft);font-weight:500;white-space:nowrap}
.sl .num{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.sl details{margin:20px 0}.sl summary{cursor:pointer;color:var(--sl-accent)}
.sl summary:focus-visible,.sl a:focus-visible,.sl input:focus-visible{
outline:3px solid var(--sl-accent);outline-offset:2px}
.sl .sides{display:grid;grid-template-columns:1fr;gap:8px 28px}
.sl .sides>*{min-width:0}
@media (min-width:1000px){.sl .sides{grid-template-columns:1fr 1fr}}
.sl .charts{--gut:124px}
.sl .charts{margin:12px 0;padding:12px 14px;background:var(--sl-card);border:1px solid var(--sl-line);border-radius:8px}
.sl figure{margin:0 0 14px}
.sl figcaption{font-weight:600;font-size:13px;display:flex;flex-wrap:wrap;gap:2px 16px;margin-bottom:4px}
.sl .key{display:flex;flex-wrap:wrap;gap:2px 14px;font-weight:400;color:var(--sl-soft)}
.sl .key li{display:flex;align-items:center;gap:6px}
.sl .plot{display:flex;height:120px}
.sl .scale{flex:none;width:var(--gut);display:flex;flex-direction:column;justify-content:space-between;text-align:right;
padding-right:8px;color:var(--sl-soft);font-size:11px;line-height:1;font-variant-numeric:tabular-nums}
.sl .field{position:relative;flex:1;min-width:0}
.sl .field svg{display:block;width:100%;height:100%}
.sl .grid{stroke:var(--sl-line);fill:none;vector-effect:non-scaling-stroke}
.sl .area{fill:var(--c);fill-opacity:.85;stroke:none}
.sl .line{fill:none;stroke:var(--c);stroke-width:2;vector-effect:non-scaling-stroke;stroke-linejoin:round}
.sl .dashed{stroke-dasharray:6 4}
.sl .waits{--c:var(--sl-bad)}.sl .paid{--c:var(--sl-accent)}.sl .listed{--c:var(--sl-soft)}
.sl .bound{--c:var(--sl-good)}
.sl .hit{fill:transparent}.sl .hit:hover{fill:var(--sl-ink);fill-opacity:.1}
.sl .events .row{display:flex;align-items:center;height:18px}
.sl .events .row>span{flex:none;width:var(--gut);font-size:12px;color:var(--sl-soft);white-space:nowrap;
overflow:hidden;text-overflow:ellipsis;padding-right:8px}
.sl .events .field{height:16px}
.sl .events rect{fill:var(--sl-accent)}.sl .events .bad rect{fill:var(--sl-bad)}
.sl .axis{position:relative;height:16px;margin-left:var(--gut);font-size:11px;color:var(--sl-soft)}
.sl .axis span{position:absolute;white-space:nowrap}
.sl .cursor{display:none}
.sl .moment{display:none;position:sticky;top:0;z-index:5;background:var(--sl-page);padding:10px 0;gap:12px;
align-items:center;flex-wrap:wrap}
.sl .moment input{flex:1;min-width:180px;accent-color:var(--sl-accent)}
.sl .moment output{font-variant-numeric:tabular-nums;font-weight:600;min-width:86px}
.js .sl .moment{display:flex}
.js .sl .plot .cursor{display:block;position:absolute;top:0;bottom:0;width:2px;margin-left:-1px;
background:var(--sl-ink);left:calc(var(--at,1)*100%);pointer-events:none}
@media (max-width:560px){.sl .axis span:nth-child(even){display:none}.sl .totals dd{font-size:17px}
.sl .stack thead{display:none}
.sl .stack td{display:flex;gap:10px;border:0;padding:3px 12px;max-width:none;text-align:left;white-space:normal}
.sl .stack td::before{content:attr(data-of);flex:none;width:84px;color:var(--sl-soft)}
.sl .stack tr{display:block;border-top:1px solid var(--sl-line);padding:6px 0}
.sl .stack tbody tr:first-child{border-top:0}
.sl .stack td:empty{display:none}
.sl .charts{--gut:52px;padding:10px 8px}
.sl .events .row{display:block;height:auto;margin-bottom:3px}.sl .events .row>span{display:block;width:auto}
.sl .events .field{margin-left:var(--gut)}}
@media (prefers-reduced-motion:no-preference){.sl .pod{transition:fill-opacity .15s}}
.sl.inset h2{margin:10px 0 4px}.sl.inset p{margin:4px 0}
@media print{.sl .n{break-inside:avoid}}
"""


def style_sheet(theme: str = "") -> str:
    """The style sheet for one theme, `light` or `dark`; without, the reader's own choice."""
    if theme:
        return f".sl{{{variables(theme)}}}{_POOLS}{_RULES}"
    dark = f"@media (prefers-color-scheme:dark){{:root{{{variables('dark')};color-scheme:dark}}}}"
    return f":root{{{variables('light')};color-scheme:light}}{dark}{_POOLS}{_RULES}"
