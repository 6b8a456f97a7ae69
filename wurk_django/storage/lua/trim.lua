-- Functions for scripts that put jobs into the dead set.
-- can_bury is asked before a job is removed elsewhere: a removal is not undone when a later command fails.
-- trim_dead keeps the newest `max` - 1 members and none older than `timeout` seconds, and removes at most 1,000 a call:
-- both limits cut from the low end, so one removal by rank serves them. Wire: ranks 0 to -max as Sidekiq removes them.
local function now_seconds()
    local time = redis.call('TIME')
    return tonumber(time[1]) + tonumber(time[2]) / 1000000
end

local function trim_dead(dead, now, timeout, max)
    local aged = redis.call('ZCOUNT', dead, '-inf', '(' .. string.format('%.6f', now - timeout))
    local excess = redis.call('ZCARD', dead) - max + 1
    local surplus = math.min(math.max(aged, excess), 1000)
    if surplus > 0 then
        redis.call('ZREMRANGEBYRANK', dead, 0, surplus - 1)
    end
end

local function can_bury(dead)
    local kind = redis.call('TYPE', dead).ok
    return kind == 'zset' or kind == 'none'
end

local function bury(dead, payload, timeout, max)
    local now = now_seconds()
    redis.call('ZADD', dead, now, payload)
    trim_dead(dead, now, timeout, max)
end
