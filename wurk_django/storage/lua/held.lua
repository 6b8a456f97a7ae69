-- What a private list of this process holds.
-- KEYS[1] dead                      zset   takes payloads that are too large to be sent
-- KEYS[2] private list              list
-- ARGV[1] size cap in bytes
-- ARGV[2] dead_timeout_in_seconds
-- ARGV[3] dead_max_jobs
-- Returns the payloads, newest first, at most 1,000; one over the cap is moved to dead instead.
-- Why a script: a payload over the cap must never travel to the worker.
local payloads = {}
for _, payload in ipairs(redis.call('LRANGE', KEYS[2], 0, 999)) do
    if #payload > tonumber(ARGV[1]) and can_bury(KEYS[1]) then
        redis.call('LREM', KEYS[2], 1, payload)
        bury(KEYS[1], payload, tonumber(ARGV[2]), tonumber(ARGV[3]))
    elseif #payload <= tonumber(ARGV[1]) then
        payloads[#payloads + 1] = payload
    end
end
return payloads
