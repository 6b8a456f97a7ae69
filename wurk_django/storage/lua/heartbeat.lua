#!lua flags=allow-oom
-- Say that a process is alive and what it is doing; take the signals that were sent to it.
-- KEYS[1] processes    set    identities
-- KEYS[2] identity     hash   info, concurrency, busy, beat, rtt_us, quiet, rss
-- KEYS[3] work         hash   thread id to JSON of the running job
-- KEYS[4] signals      list   newest left
-- KEYS[5] older work   hash   optional: the same as work, for readers of an older name
-- ARGV[1] identity
-- ARGV[2] time to live in milliseconds
-- ARGV[3] number of fields of the identity hash (names and values)
-- ARGV[…] the fields and values of the identity hash, then those of the work hash
-- Returns {1 when the hash was there before, else 0; signal names, oldest first, at most 10}.
-- Why a script: one step, and a beat must get through while Redis is full, or every living process looks dead.
local fields = tonumber(ARGV[3])
local existed = redis.call('EXISTS', KEYS[2])
for _, work in ipairs({KEYS[3], KEYS[5]}) do
    redis.call('UNLINK', work)
    for i = 4 + fields, #ARGV, 2 do
        redis.call('HSET', work, ARGV[i], ARGV[i + 1])
    end
    redis.call('PEXPIRE', work, ARGV[2])
end
redis.call('SADD', KEYS[1], ARGV[1])
for i = 4, 3 + fields, 2 do
    redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1])
end
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return {existed, redis.call('RPOP', KEYS[4], 10) or {}}
