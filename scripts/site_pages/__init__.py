"""The pages of the documentation site that are made from declarations; `scripts/site_hooks.py` hands them to mkdocs.

Every module gives `pages() -> {path in the site: Markdown}`.
"""
