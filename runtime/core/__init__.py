"""The pure core: facts in, facts out. It decides what follows in a run, and neither waits, reads nor stores."""
