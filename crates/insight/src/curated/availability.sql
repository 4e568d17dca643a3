-- Whether this node is observed: its entry in the list of Apollo, Table 1, row 9, which is over all
-- nodes.
-- Unit: none; 1 or 0. Meaning: 1 while the agent observes this node. A recent sample of 1 shows
-- that the node was alive at that time. The list is the system table `nodes` (SELECT node FROM
-- nodes WHERE state = 'live' ORDER BY node). It has one row for as long as each agent observes only
-- its own node.
-- Decision: every node has memory, so memory.total.bytes stands for the node.
-- Inputs: memory.total.bytes
CREATE INSIGHT availability
HELP '1 while the agent observes this node, else 0 (Apollo, Table 1, row 9).'
AS SELECT count(*) > 0 AS value FROM memory_total_bytes
