-- Move members of a sorted set to the dead set, each only if it is still there.
-- KEYS[1] set                       zset   schedule, retry or dead
-- KEYS[2] dead                      zset   payload, scored now in epoch seconds (float)
-- ARGV[1] dead_timeout_in_seconds
-- ARGV[2] dead_max_jobs
-- ARGV[3] trim                      1 or 0
-- ARGV[…] members                   their exact bytes
-- Returns for each member 1, or 0 when it was gone: nothing is written then.
-- Why a script: the removal proves that nobody else has moved the member, and a crash leaves it in one place. Removed
-- first, so that it works while Redis is full.
if not can_bury(KEYS[2]) then
    return redis.error_reply('WRONGTYPE ' .. KEYS[2] .. ' is not a sorted set; the jobs stay where they are')
end
local now, moved = now_seconds(), {}
for at = 4, #ARGV do
    moved[at - 3] = redis.call('ZREM', KEYS[1], ARGV[at])
    if moved[at - 3] == 1 then
        redis.call('ZADD', KEYS[2], now, ARGV[at])
    end
end
if ARGV[3] == '1' then
    trim_dead(KEYS[2], now, tonumber(ARGV[1]), tonumber(ARGV[2]))
end
return moved
