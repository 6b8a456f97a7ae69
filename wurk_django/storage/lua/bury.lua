-- Move one running job from its private list to the dead set, and trim the set.
-- KEYS[1] private list              list
-- KEYS[2] dead                      zset     payload, scored by the time of death in epoch seconds (float)
-- KEYS[3] recovery counter          string
-- ARGV[1] payload                   the exact bytes that were claimed
-- ARGV[2] dead payload              what goes into the dead set
-- ARGV[3] dead_timeout_in_seconds
-- ARGV[4] dead_max_jobs
-- Returns 1, or 0 when the private list no longer holds the payload: nothing is written then.
-- Why a script: the job must never be in both places or in neither, also while Redis is full.
if not can_bury(KEYS[2]) then
    return redis.error_reply('WRONGTYPE ' .. KEYS[2] .. ' is not a sorted set; the job stays in its private list')
end
if redis.call('LREM', KEYS[1], 1, ARGV[1]) == 0 then
    return 0
end
bury(KEYS[2], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]))
redis.call('DEL', KEYS[3])
return 1
