"""Sort a folder of images into groups that look alike: what `capspoe sort` does.

settings.py               what a person chooses, and where progress goes
reading.py features.py silhouette.py photos.py
                          from files to features; which features suit a folder
library.py update.py      what is known about a folder's images, kept between runs and brought up to date
grouping.py tree.py       groups of a neighbour graph; groups of groups, and an order in which neighbours look alike
membership.py             all images grouped, or new ones put among them
duplicates.py edits.py    images that are there twice; what a person has renamed and moved
outputs.py page.py        the table and the folders; the page
sorter.py                 all of it, in order
"""
