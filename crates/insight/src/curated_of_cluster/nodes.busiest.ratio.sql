-- Busy ratio of the busiest device of all nodes: the greatest node.busiest.ratio.
-- Unit: ratio. Meaning: 1 if some device of some node always had I/O in flight.
-- Inputs: cluster.node.busiest.ratio
-- No value: until the disks have been polled twice; wait a second
CREATE INSIGHT nodes.busiest.ratio UNIT 'ratio'
HELP 'Busy ratio of the busiest device of all nodes of the cluster.'
AS SELECT max(value) AS value FROM cluster_node_busiest_ratio
