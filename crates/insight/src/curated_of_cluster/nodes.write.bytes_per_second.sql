-- Bytes that all nodes of the cluster write to their devices per second.
-- Unit: bytes/s. Meaning: the sum of node.write.bytes_per_second.
-- Inputs: cluster.node.write.bytes_per_second
-- No value: until the disks have been polled twice; wait a second
CREATE INSIGHT nodes.write.bytes_per_second UNIT 'bytes/s'
HELP 'Bytes per second that are written to the physical devices of all nodes of the cluster.'
AS SELECT sum(value) AS value FROM cluster_node_write_bytes_per_second
