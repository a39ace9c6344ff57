"""The explorer, a local web page to play with the capsules of a run: `capspoe explore RUN`.

server.py binds, serves and stops; security.py decides which requests are served; api.py is the
table of routes; session.py answers them from the run; scheduler.py is the queue in front of the
model; preprocessing.py makes drawings look like the run's images; live_metrics.py reads the
training curves. static/ is the page: app.js lists the views.
"""
