-- Energy consumption per transfer. Apollo, Table 1, row 14, which repeats row 11.
-- Unit: J/op. Meaning: the same as node.energy.joules_per_transfer, which is its input.
-- Inputs: node.energy.joules_per_transfer
CREATE INSIGHT energy.per_transfer UNIT 'J/op'
HELP 'Energy per transfer: the same as node.energy.joules_per_transfer (Apollo, Table 1, row 14).'
AS SELECT value FROM node_energy_joules_per_transfer
