-- What is not used of the node's file systems.
-- Unit: bytes. Meaning: the sum of filesystem.free.bytes; a shared file system counts in full.
-- Decision: file systems in memory are not storage and are left out.
-- Inputs: filesystem.free.bytes
-- No value: while every file system is in memory; mount one that is not
CREATE INSIGHT node.storage.free.bytes UNIT 'bytes'
HELP 'Bytes not in use on all file systems of the node, those in memory apart.'
AS SELECT sum(value) AS value FROM filesystem_free_bytes
WHERE tier IS NULL OR tier <> 'memory'
