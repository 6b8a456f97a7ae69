-- Acknowledge finished jobs and claim new ones, in one call.
-- KEYS[1]   dead             zset   takes payloads that are too large to be sent
-- KEYS[…]   for each ack     its private list, its recovery counter
-- KEYS[…]   for each queue   the public list, this process's private list; in the order of the pass
-- ARGV[1]   number of acks
-- ARGV[2]   number of jobs wanted, at most 100
-- ARGV[3]   size cap in bytes
-- ARGV[4]   dead_timeout_in_seconds
-- ARGV[5]   dead_max_jobs
-- ARGV[…]   for each queue   the most that this call may take from it
-- ARGV[…]   for each ack     the exact payload to acknowledge
-- Returns a flat list: 1-based number of the queue, payload, …, in claim order. A payload over the cap is moved to
-- dead, counts as taken and comes back as nil.
-- Why a script: an ack never waits for a second round trip, and RPOP before LPUSH moves jobs while Redis is full.
local acks = tonumber(ARGV[1])
local wanted = tonumber(ARGV[2])
local cap = tonumber(ARGV[3])
local first_queue = 2 + 2 * acks
local queues = (#KEYS - 1 - 2 * acks) / 2

if acks > 0 then
    local counters = {}
    for i = 1, acks do
        -- pcall: a key that is no list holds no job, and must not keep the acks of other queues from being applied
        redis.pcall('LREM', KEYS[2 * i], -1, ARGV[5 + queues + i])
        counters[i] = KEYS[2 * i + 1]
    end
    redis.call('DEL', unpack(counters))
end

local taken = {}
local count = 0
for queue = 1, queues do
    local public = KEYS[first_queue + 2 * (queue - 1)]
    local private = KEYS[first_queue + 2 * (queue - 1) + 1]
    local limit = math.min(tonumber(ARGV[5 + queue]), wanted - count)
    while limit > 0 do
        local payload = redis.call('RPOP', public)
        if not payload then
            break
        end
        if #payload > cap then
            if not can_bury(KEYS[1]) then
                redis.call('RPUSH', public, payload)
                return redis.error_reply('WRONGTYPE ' .. KEYS[1] .. ' is not a sorted set')
            end
            bury(KEYS[1], payload, tonumber(ARGV[4]), tonumber(ARGV[5]))
            payload = false -- nil in the reply; an empty string is a payload that somebody pushed
        else
            local pushed = redis.pcall('LPUSH', private, payload)
            if type(pushed) == 'table' and pushed.err then
                redis.call('RPUSH', public, payload)
                return pushed
            end
        end
        taken[#taken + 1] = queue
        taken[#taken + 1] = payload
        limit = limit - 1
        count = count + 1
    end
    if count >= wanted then
        break
    end
end
return taken
