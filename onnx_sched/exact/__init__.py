"""The level function that leaves the fewest launches, with a proof where time allows.

Running batch after batch, it never hurts to let a batch take along every ready op of its signature: an
op that has run can only make others ready.  So a plan is a word of signatures, and what is left to do
depends only on the set of ops that have run.  Three facts make the optimum near at hand on real graphs:

- Ops of one signature on one path are in different batches: the longest such chain of each signature
  is a lower bound, at the start and after every batch.
- Where all earlier ops of a signature precede all later ones, the two sides never share a batch: they
  are told apart.  What is then alone costs its weight wherever it stands.
- Let ops depend on each other both ways if they have one signature.  Strongly connected components of
  that graph share no batch and do not wait for each other in a circle: each is a problem of its own.

`parts` finds the components.  `search` goes through one batch by batch with the chain bound, keeping a
limited number of sets; if none was dropped, the search is a proof.  What stays open goes to CP-SAT
(`solver`), which looks for anything cheaper than the best found: that leaves each op few batches that it
can be in.  `optimum` puts the answers together.  Nothing here knows what a model is.
"""
