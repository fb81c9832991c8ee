"""The rules that our source must keep, as functions of a source tree, and the tests of each."""
