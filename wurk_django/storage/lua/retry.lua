-- Move one running job from its private list to the retry set.
-- KEYS[1] private list       list
-- KEYS[2] retry              zset     payload, scored by epoch seconds (float)
-- KEYS[3] recovery counter   string
-- ARGV[1] payload            the exact bytes that were claimed
-- ARGV[2] retry payload      what goes into the retry set
-- ARGV[3] delay              seconds from now, by Redis TIME
-- Returns 1, or 0 when the private list no longer holds the payload: nothing is written then.
-- Why a script: the job must never be in both places or in neither, also while Redis is full.
local kind = redis.call('TYPE', KEYS[2]).ok
if kind ~= 'zset' and kind ~= 'none' then
    return redis.error_reply('WRONGTYPE ' .. KEYS[2] .. ' is not a sorted set; the job stays in its private list')
end
if redis.call('LREM', KEYS[1], 1, ARGV[1]) == 0 then
    return 0
end
local time = redis.call('TIME')
redis.call('ZADD', KEYS[2], tonumber(time[1]) + tonumber(time[2]) / 1000000 + tonumber(ARGV[3]), ARGV[2])
redis.call('DEL', KEYS[3])
return 1
