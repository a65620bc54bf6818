"""The web page: shows what `parley explain` and `parley get` show, kept up to date while it is open.

`informers` has the caches, `snapshots` makes of them a `Snapshot` to explain from, `details` and `timeline` add
what only the page shows, `views` makes HTML of it, `pages` chooses among these by address, `streams` pushes
changes to open pages, and `server` serves all of it over HTTP, read-only. No decisions are made here.
"""
