-- Take one job of a dead process out of its private list for good: into the dead set, or nowhere.
-- KEYS[1] private list              list     of the dead process
-- KEYS[2] dead                      zset     payload, scored by the time of death in epoch seconds (float)
-- KEYS[3] recovery counter          string
-- KEYS[4] identity                  hash     of the owner; with its field `info` it is alive
-- ARGV[1] check                     1 when the owner's heartbeat decides, 0 when its death is proven otherwise
-- ARGV[2] keep                      1: into the dead set; 0: the job wants no place there
-- ARGV[3] payload                   the exact bytes
-- ARGV[4] dead_timeout_in_seconds
-- ARGV[5] dead_max_jobs
-- Returns its score in the dead set as text, "" when it was not kept, nil when the owner is alive or the list no longer
-- holds the payload: nothing is written then.
-- Why a script: the job must never be in both places or in neither, and never taken from a process that lives.
if ARGV[1] == '1' and redis.call('HEXISTS', KEYS[4], 'info') == 1 then
    return false
end
if ARGV[2] == '1' and not can_bury(KEYS[2]) then
    return redis.error_reply('WRONGTYPE ' .. KEYS[2] .. ' is not a sorted set; the job stays in its private list')
end
if redis.call('LREM', KEYS[1], 1, ARGV[3]) == 0 then
    return false
end
local score = ''
if ARGV[2] == '1' then
    bury(KEYS[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]))
    score = redis.call('ZSCORE', KEYS[2], ARGV[3]) or ''
end
redis.call('DEL', KEYS[3])
return score
