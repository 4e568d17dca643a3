-- What each job reads, by the way it took: local (its control group) and lustre (as the servers or clients count it).
-- Unit: bytes. Meaning: bytes since the job began, as far as each way counts them.
-- Inputs: job.local.read.bytes, lustre.job.read.bytes
-- No value: while no job runs here or none has its I/O counted; see what sources job and lustre_jobs lack with `baro doctor`
CREATE INSIGHT job.read.by_path.bytes UNIT 'bytes'
HELP 'Bytes read by a job, by the way they took.'
AS SELECT job, 'local' AS path, sum(value) AS value FROM job_local_read_bytes GROUP BY job
UNION ALL SELECT job, 'lustre' AS path, sum(value) AS value FROM lustre_job_read_bytes GROUP BY job
