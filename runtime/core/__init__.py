"""The pure core: facts in, facts out. It decides what happens next in a run; it never waits, reads or stores."""
