-- Network health of the cluster. Apollo, Table 1, row 6, over all pairs of nodes.
-- Unit: seconds. Meaning: the longest of the present round-trip times between two nodes, as each
-- node has measured them to its peers.
-- Decision: the longest one, because the purpose is to find a slow link; the pair is in
-- cluster_network_health_seconds (node, peer). A pair that does not reach each other has no value.
-- Inputs: cluster.network.health.seconds
-- No value: until two nodes have measured their round trip; wait some seconds
CREATE INSIGHT nodes.network.health.seconds UNIT 'seconds'
HELP 'Longest present round-trip time between two nodes of the cluster (Apollo, Table 1, row 6).'
AS SELECT max(value) AS value FROM cluster_network_health_seconds
