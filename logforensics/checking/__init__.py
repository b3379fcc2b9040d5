"""Checks the diagnosis against fixtures whose truth is known: did it regress, and how good is it?

``compare`` says where one analysis differs from one truth; the rest finds fixtures, counts and reports.
"""
