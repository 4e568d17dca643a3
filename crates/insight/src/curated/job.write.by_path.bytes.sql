-- Bytes written by each job, by path: `local` (counted by the job's control group) or `lustre`
-- (counted by Lustre's servers or clients).
-- Unit: bytes. Meaning: bytes since the job began, as far as each path counts them.
-- Inputs: job.local.write.bytes, lustre.job.write.bytes
-- No value: while no job runs here or none has its I/O counted; see what sources job and lustre_jobs lack with `baro doctor`
CREATE INSIGHT job.write.by_path.bytes UNIT 'bytes'
HELP 'Bytes written by a job, by path: local (block devices of this node) or lustre.'
AS SELECT job, 'local' AS path, sum(value) AS value FROM job_local_write_bytes GROUP BY job
UNION ALL SELECT job, 'lustre' AS path, sum(value) AS value FROM lustre_job_write_bytes GROUP BY job
