"""The cases, in the order in which `make bench` runs them. Each module has `TITLE` and `run(quick) -> Case`."""

ORDER = (
    "client_round",
    "server_phase",
    "methods",
    "unchanged",
    "client_passes",
    "two_cores",
    "start",
    "dry_run",
    "search",
    "reports",
    "pages",
    "scaling",
    "slots",
    "declared",
    "home",
    "memory",
    "clients",
)
#: What the page shows after these, if it was measured: `make bench-peers` and `make bench-gpu`.
OTHERS = ("peers", "pfllib", "gpu")
