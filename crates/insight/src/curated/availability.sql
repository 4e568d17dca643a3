-- Node availability: one node's entry in Apollo, Table 1, row 9 (the list is over all nodes).
-- Unit: none; 1 or 0. Meaning: 1 while this node is observed: whoever reads 1 with a recent
-- look knows that the node was alive then.
-- The list is the system table `nodes` (SELECT node FROM nodes WHERE state = 'live' ORDER BY node): while each
-- observer sees its own node, that is one row; other nodes join it as they are read.
-- Decision: every node has memory, so memory.total.bytes stands for the node.
-- Inputs: memory.total.bytes
CREATE INSIGHT availability
HELP '1 while this node is observed, else 0.'
AS SELECT count(*) > 0 AS value FROM memory_total_bytes
