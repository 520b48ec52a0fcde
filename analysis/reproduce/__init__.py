"""A figure or table of a paper made again: what it consists of, what the paper says of it, and what ours says.

`declared/<name>.yaml` declares one (`declaration.py` reads it), and no list is edited to add one. `folder.py` reads
what was run, `claims.py` decides the paper's sentences from it, with what `measures.py` reads of curves and partitions.
`tables.py` sets the paper's numbers beside ours, `pictures.py` draws its figures, `page.py` writes the page and the CSV
files. `left_out.yaml` lists what cannot be made again.
"""
