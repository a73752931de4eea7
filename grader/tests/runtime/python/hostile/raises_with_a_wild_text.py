"""Raises errors whose text no report can hold."""

class Shelf(Shelf):
    def usage(self):
        raise RuntimeError("\ud800\udfff\x00\x1b[2J<script>" * 1000)
