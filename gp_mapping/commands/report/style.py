"""Style sheet of the run report, for a screen and for paper."""

__all__ = ["STYLE"]

STYLE = """\
:root { color-scheme: light; }
body { margin: 0 auto; max-width: 66em; padding: 0 1.2em 2em; color: #1d2733; background: #fff;
  font: 16px/1.5 system-ui, "DejaVu Sans", sans-serif; }
header { border-bottom: 3px solid #1f5fa8; margin-bottom: .6em; }
h1 { margin: .8em 0 .1em; font-size: 1.7em; overflow-wrap: anywhere; }
h2 { margin: 1.6em 0 .4em; font-size: 1.25em; }
nav ul { list-style: none; display: flex; flex-wrap: wrap; gap: .2em 1.2em; margin: 0; padding: 0; }
a { color: #1f5fa8; }
figure { margin: .6em 0; }
img { max-width: 100%; height: auto; }
figcaption, footer { color: #5b6875; font-size: .9em; }
table { border-collapse: collapse; margin: .6em 0; font-variant-numeric: tabular-nums; }
th, td { padding: .25em .8em; border-bottom: 1px solid #d6dce2; text-align: right; vertical-align: top; }
thead th { border-bottom: 2px solid #5b6875; }
th:first-child, .words th, .words td { text-align: left; }
th[scope="row"] { font-weight: normal; }
.words { overflow-wrap: anywhere; }
summary { cursor: pointer; color: #1f5fa8; }
footer { border-top: 1px solid #d6dce2; margin-top: 2em; overflow-wrap: anywhere; }
@media print { nav { display: none; } section { break-inside: avoid; } }
"""
