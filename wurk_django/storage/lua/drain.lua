-- Bring jobs of a dead process back to the consuming end of their queue.
-- KEYS[1] private list   list   of the dead process
-- KEYS[2] public list    list
-- KEYS[3] identity       hash   of the owner; with its field `info` it is alive
-- ARGV[1] check          1 when the owner's heartbeat decides, 0 when its death is proven otherwise
-- ARGV[…] payloads       at most 100, newest first, as read from the private list
-- Returns how many were moved, or -1 when the owner turned out to be alive: nothing is moved then.
-- Why a script: between the look and the move the owner may have come back; a job moves with the proof or not at all.
if ARGV[1] == '1' and redis.call('HEXISTS', KEYS[3], 'info') == 1 then
    return -1
end
local kind = redis.call('TYPE', KEYS[2]).ok
if kind ~= 'list' and kind ~= 'none' then
    return redis.error_reply('WRONGTYPE ' .. KEYS[2] .. ' is not a list; the jobs stay in the private list')
end
local moved = 0
for i = 2, #ARGV do
    if redis.call('LREM', KEYS[1], 1, ARGV[i]) == 1 then
        redis.call('RPUSH', KEYS[2], ARGV[i])
        moved = moved + 1
    end
end
return moved
