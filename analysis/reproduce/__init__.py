"""A figure or table of a paper made again: what it consists of, what the paper says of it, and what ours says.

`declared/<name>.yaml` declares one (`declaration.py` reads it), and no list is edited to add one. `made.py` reads the
folder of what was run, `claims.py` decides the paper's sentences, `beside.py` sets its numbers beside ours, `page.py`
writes the page and the CSV files.
"""
