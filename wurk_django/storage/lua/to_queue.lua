-- Move members of a sorted set to queues, each only if it is still there.
-- KEYS[1] set       zset   schedule, retry or dead
-- KEYS[2] queues    set    names of all queues
-- KEYS[…] targets   list   the public list for each member
-- ARGV[…] for each member: its exact bytes, the name of its queue, the payload to push
-- Returns for each member 1, or 0 when it was gone, or -1 when its target is no list: nothing is written then.
-- Why a script: the removal proves that nobody else has moved the member, and a crash leaves it in one place. Removed
-- first, so that it works while Redis is full.
local kind = redis.call('TYPE', KEYS[2]).ok
if kind ~= 'set' and kind ~= 'none' then
    return redis.error_reply('WRONGTYPE ' .. KEYS[2] .. ' is not a set; the jobs stay where they are')
end
local moved, kinds, named = {}, {}, {}
for at = 1, #KEYS - 2 do
    local target, name = KEYS[at + 2], ARGV[3 * at - 1]
    kinds[target] = kinds[target] or redis.call('TYPE', target).ok
    if kinds[target] ~= 'list' and kinds[target] ~= 'none' then
        moved[at] = -1
    elseif redis.call('ZREM', KEYS[1], ARGV[3 * at - 2]) == 0 then
        moved[at] = 0
    else
        if not named[name] then
            named[name] = redis.call('SADD', KEYS[2], name)
        end
        redis.call('LPUSH', target, ARGV[3 * at])
        moved[at] = 1
    end
end
return moved
