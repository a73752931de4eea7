"""Imports modules that run a program when they are imported."""

def never():
    import asyncio.__main__
    import json.tool
    import timeit
    import unittest.__main__
