-- System time. Apollo, Table 1, row 12: (NodeID, system time).
-- Unit: seconds. Meaning: the node's clock since the epoch when it was last looked at (column `ts`); `node` is NodeID
-- and `error` how far it can be from true time.
-- Inputs: clock.time.seconds
-- Decision: a time without its error cannot be used across nodes, so the error comes along: what the kernel knows of
-- it, infinite or large while the clock is not synchronised. clock.offset.seconds is the drift as last estimated.
-- No value: until the clock has been read; wait for the next look of source clock
CREATE INSIGHT node.time.seconds UNIT 'seconds'
HELP 'The node''s clock, with the most that it can be wrong as error (Apollo, Table 1, row 12).'
AS SELECT value FROM clock_time_seconds
