-- Number of nodes that are available: the length of the list of Apollo, Table 1, row 9, as this node
-- sees it.
-- Unit: count. Meaning: this node, and all that are connected to it. The list itself is the table
-- `peers`, and the streams fabric.connected.flag by peer.
-- Inputs: fabric.connected.count
-- No value: until this node has joined its cluster; `baro cluster status` says what is missing
CREATE INSIGHT nodes.available.count UNIT 'count'
HELP 'Nodes of the cluster that are available: this one, and those that are connected to it (Apollo, Table 1, row 9).'
AS SELECT value + 1 AS value FROM fabric_connected_count
