"""Sort a folder of images into groups that look alike: what `capspoe sort` does.

reading.py features.py    from files to features; which features suit a folder
library.py                what is known about a folder's images, kept between runs
grouping.py tree.py       groups of a neighbour graph; groups of groups, and an order in which neighbours look alike
duplicates.py edits.py    images that are there twice; what a person has renamed and moved
outputs.py page.py        the table and the folders; the page
sorter.py                 all of it, in order
"""
