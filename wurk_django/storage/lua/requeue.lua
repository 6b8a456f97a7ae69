-- Give a claimed job back to the consuming end of its queue.
-- KEYS[1] private list   list
-- KEYS[2] public list    list   the job is next to be claimed
-- ARGV[1] payload        the exact bytes that were claimed
-- Returns 1, or 0 when the private list no longer holds the payload: nothing is written then.
-- Why a script: the removal proves that the job is still ours, so a race with its ack or the reaper is harmless.
local kind = redis.call('TYPE', KEYS[2]).ok
if kind ~= 'list' and kind ~= 'none' then
    return redis.error_reply('WRONGTYPE ' .. KEYS[2] .. ' is not a list; the job stays in its private list')
end
if redis.call('LREM', KEYS[1], 1, ARGV[1]) == 0 then
    return 0
end
redis.call('RPUSH', KEYS[2], ARGV[1])
return 1
