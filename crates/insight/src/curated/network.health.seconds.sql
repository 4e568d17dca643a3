-- Network health. Apollo, Table 1, row 6: (timestamp, nodeID-1, nodeID-2, ping time).
-- Unit: seconds. Meaning: the round trip from this node (column `node`) to the peer, now (column `ts`).
-- Inputs: peer.round_trip.seconds
-- Decision: where a peer is asked in several ways, the quickest answer is the nearest to the network's own time.
-- A peer that does not answer has no value; peer.reachable.flag says so.
-- No value: while no peer is configured or none answers; name peers under sources.peer
CREATE INSIGHT network.health.seconds UNIT 'seconds'
HELP 'Round trip to a peer, by the quickest of the ways it is asked (Apollo, Table 1, row 6).'
AS SELECT peer, min(value) AS value FROM peer_round_trip_seconds GROUP BY peer
