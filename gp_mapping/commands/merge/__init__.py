"""`gp-mapping merge`: one map of several, with what differed between them and what is settled."""
