-- Energy consumption per transfer. Apollo, Table 1, rows 11 and 14: PowerPerSec / TransfersPerSec.
-- Unit: J/op. Meaning: energy that the node uses for each read or write. It is the energy of the
-- whole node, whatever else the node does.
-- Inputs: node.power.watts, node.transfers.ops_per_second
-- Decision: rows 11 and 14 are the same formula, so it is computed once, and energy.per_transfer is
-- its second name. Watts divided by transfers per second are joules per transfer. An idle node has
-- no value, because of the division by 0.
-- No value: while the node transfers nothing (x / 0); it comes with the next transfer
CREATE INSIGHT node.energy.joules_per_transfer UNIT 'J/op'
HELP 'Energy that the node uses for each read or write (Apollo, Table 1, rows 11 and 14).'
AS SELECT p.value / t.value AS value FROM node_power_watts p CROSS JOIN node_transfers_ops_per_second t
