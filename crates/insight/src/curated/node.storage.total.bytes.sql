-- Size of the node's file systems.
-- Unit: bytes. Meaning: the sum of filesystem.total.bytes; a shared file system counts in full.
-- Decision: file systems in memory are not storage and are left out.
-- Inputs: filesystem.total.bytes
-- No value: while every file system is in memory; mount one that is not
CREATE INSIGHT node.storage.total.bytes UNIT 'bytes'
HELP 'Size of all file systems of the node, except those in memory.'
AS SELECT sum(value) AS value FROM filesystem_total_bytes
WHERE tier IS NULL OR tier <> 'memory'
