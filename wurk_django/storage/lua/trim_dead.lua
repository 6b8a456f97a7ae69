-- Trim the dead set.
-- KEYS[1] dead                      zset
-- ARGV[1] dead_timeout_in_seconds
-- ARGV[2] dead_max_jobs
-- Returns how many members are left. Removes at most 1,000; a caller with a backlog calls again.
-- Why a script: both limits apply or neither, at one reading of Redis TIME.
trim_dead(KEYS[1], now_seconds(), tonumber(ARGV[1]), tonumber(ARGV[2]))
return redis.call('ZCARD', KEYS[1])
