"""The dashboard: a local web page (Streamlit) that shows what the results folder holds, and changes nothing there.

serve.py    `rawls dashboard`: starts Streamlit, bound to this machine
app.py      what Streamlit runs: the pages and their navigation
papers.py, target.py, compare.py, curves.py, privacy.py, runs.py    one page each: `show(here)`
stored.py   saved results, read once for each state of the results folder
live.py     what trains now, from the signs of life of its processes
choose_runs.py  which runs a page is about: sweep, dataset, budget, configurations
grids.py    tables as HTML, for eyes and screen readers; charts.py: charts, in the house's colours
parts.py    what every page says: the state of the store, what is stamped, what to do next
"""
