"""A local web page on which a person holds a capsule: `capspoe explore RUN`.

server.py     the application and its life: bind, serve, stop
security.py   who may talk to it, and what a browser may do with the page
turns.py      one thread for the model, clients take turns
api.py        the JSON endpoints; schema.py says what they take, openapi.py documents them
loaded.py     the newest checkpoint, the run's images, and what they say of the capsules
studio.py     the run as the page sees it: paint, strips, gallery, recognise, blend
ink.py        pictures from outside, brought to the form of the run's own images
following.py  a run that is still training
"""
