-- Bytes that all nodes of the cluster read from their devices per second.
-- Unit: bytes/s. Meaning: the sum of node.read.bytes_per_second.
-- Inputs: cluster.node.read.bytes_per_second
-- No value: until the disks have been polled twice; wait a second
CREATE INSIGHT nodes.read.bytes_per_second UNIT 'bytes/s'
HELP 'Bytes per second that are read from the physical devices of all nodes of the cluster.'
AS SELECT sum(value) AS value FROM cluster_node_read_bytes_per_second
