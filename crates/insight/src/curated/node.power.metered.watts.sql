-- Power that the node draws, by meter.
-- Unit: watts. Meaning: with the label meter=bmc, the power of the whole node as its management
-- controller (BMC) measures it; with meter=node, the sum of the counters of processors and sensors,
-- which is less than the whole.
-- Inputs: bmc.draw.watts, power.node.watts
-- No value: while nothing measures this node's power; see what sources bmc and power lack with `baro doctor`
CREATE INSIGHT node.power.metered.watts UNIT 'watts'
HELP 'Power that the node draws, by meter: bmc (the whole node) or node (its own counters).'
AS SELECT 'bmc' AS meter, sum(value) AS value FROM bmc_draw_watts
UNION ALL SELECT 'node' AS meter, value FROM power_node_watts
