-- Energy consumption per transfer. Apollo, Table 1, rows 11 and 14: PowerPerSec / TransfersPerSec.
-- Unit: J/op. Meaning: energy that the node takes for each read or write, all that it does besides included.
-- Inputs: node.power.watts, node.transfers.ops_per_second
-- Decision: rows 11 and 14 are one formula under one name, so it is computed once; energy.per_transfer is its other
-- name. Watts over transfers per second are joules per transfer. Without transfers there is no value (x / 0):
-- an idle node does not take infinite energy for a transfer.
-- No value: while the node transfers nothing (x / 0); it comes with the next transfer
CREATE INSIGHT node.energy.joules_per_transfer UNIT 'J/op'
HELP 'Energy that the node takes per read or write (Apollo, Table 1, rows 11 and 14).'
AS SELECT p.value / t.value AS value FROM node_power_watts p CROSS JOIN node_transfers_ops_per_second t
