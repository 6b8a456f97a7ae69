-- Put a payload into the dead set and trim the set.
-- KEYS[1] dead                      zset
-- ARGV[1] payload
-- ARGV[2] dead_timeout_in_seconds
-- ARGV[3] dead_max_jobs
-- ARGV[4] trim                      1 or 0
-- Returns how many members were new.
-- Why a script: both trims apply or neither, at one reading of Redis TIME.
local now = now_seconds()
local added = redis.call('ZADD', KEYS[1], now, ARGV[1])
if ARGV[4] == '1' then
    trim_dead(KEYS[1], now, tonumber(ARGV[2]), tonumber(ARGV[3]))
end
return added
