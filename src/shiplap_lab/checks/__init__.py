"""Checks of a play: what observations tell the judge, and what a scenario's steps expect."""
