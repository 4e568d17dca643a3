-- Energy consumption per transfer. Apollo, Table 1, row 14, which is row 11 again.
-- Unit: J/op. Meaning: as node.energy.joules_per_transfer, which it reads.
-- Inputs: node.energy.joules_per_transfer
CREATE INSIGHT energy.per_transfer UNIT 'J/op'
HELP 'The same as node.energy.joules_per_transfer (Apollo, Table 1, row 14).'
AS SELECT value FROM node_energy_joules_per_transfer
