-- Load of a node. Apollo, Table 1, row 13, over the nodes of the cluster instead of the devices of
-- one node.
-- Unit: ratio. Meaning: the share of the node `of_node` in the present I/O of all nodes. The shares
-- add up to 1, and are 0 while there is no I/O. A low share means that other nodes are more loaded.
-- Decision: rates in numerator and denominator, as in device.load.ratio.
-- Inputs: cluster.node.read.bytes_per_second, cluster.node.write.bytes_per_second, nodes.read.bytes_per_second, nodes.write.bytes_per_second
-- No value: until the disks have been polled twice; wait a second
CREATE INSIGHT nodes.load.ratio UNIT 'ratio'
HELP 'Share of a node in the present I/O of all nodes of the cluster (Apollo, Table 1, row 13, over nodes).'
AS SELECT r.node AS of_node,
  iif(nr.value + nw.value > 0, (r.value + w.value) * 1.0 / (nr.value + nw.value), 0.0) AS value
FROM cluster_node_read_bytes_per_second r JOIN cluster_node_write_bytes_per_second w USING (node)
CROSS JOIN nodes_read_bytes_per_second nr CROSS JOIN nodes_write_bytes_per_second nw
