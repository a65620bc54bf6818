"""A page that tells what `parley explain` and `parley get` tell, and keeps telling it while somebody looks.

`watching` has the caches, `worlds` makes of them a `World` to explain in, `facts` and `timeline` add what only
the page shows, `views` makes HTML of it, `pages` chooses among these by address, `streams` tells open pages of
changes, and `server` is the door: HTTP, read-only. Nothing is judged here.
"""
