-- Network health. Apollo, Table 1, row 6: (timestamp, nodeID-1, nodeID-2, ping time).
-- Unit: seconds. Meaning: the present round-trip time from this node to the peer. The column `node`
-- is this node, and the column `ts` the timestamp.
-- Inputs: peer.round_trip.seconds
-- Decision: if a peer is asked in several ways, the fastest answer counts, because it is the
-- closest to the round-trip time of the network itself. A peer that does not answer has no value;
-- peer.reachable.flag shows such peers.
-- No value: while no peer is configured or none answers; name peers under sources.peer
CREATE INSIGHT network.health.seconds UNIT 'seconds'
HELP 'Round-trip time to a peer, by the fastest of the ways in which it is asked (Apollo, Table 1, row 6).'
AS SELECT peer, min(value) AS value FROM peer_round_trip_seconds GROUP BY peer
