-- Bring jobs of a dead process back to the consuming end of their queue, and count how often each has come back.
-- KEYS[1] private list      list     of the dead process
-- KEYS[2] public list       list
-- KEYS[3] identity          hash     of the owner; with its field `info` it is alive
-- KEYS[…] recovery counter  string   for each payload; an empty name: this one is not counted
-- ARGV[1] check             1 when the owner's heartbeat decides, 0 when its death is proven otherwise
-- ARGV[2] limit             a job that has come back so often stays where it is
-- ARGV[3] seconds           that a counter lives after the last recovery
-- ARGV[…] payloads          at most 100, newest first, as read from the private list
-- Returns for each payload 0 (it was not there), 1 (moved) or 2 (over the limit, left); nothing at all when the owner
-- turned out to be alive: nothing is moved then.
-- Why a script: between the look and the move the owner may have come back; a job moves with the proof and with its
-- count, or not at all. The removal comes first, so that all of it works while Redis is full.
if ARGV[1] == '1' and redis.call('HEXISTS', KEYS[3], 'info') == 1 then
    return {}
end
local kind = redis.call('TYPE', KEYS[2]).ok
if kind ~= 'list' and kind ~= 'none' then
    return redis.error_reply('WRONGTYPE ' .. KEYS[2] .. ' is not a list; the jobs stay in the private list')
end
local limit = tonumber(ARGV[2])
local fates = {}
for i = 1, #ARGV - 3 do
    local payload, counter = ARGV[3 + i], KEYS[3 + i]
    local before = counter ~= '' and redis.pcall('GET', counter)
    before = type(before) == 'string' and tonumber(before) or 0
    fates[i] = 0
    if before >= limit then
        if redis.call('LPOS', KEYS[1], payload) then
            fates[i] = 2
        end
    elseif redis.call('LREM', KEYS[1], 1, payload) == 1 then
        redis.call('RPUSH', KEYS[2], payload)
        fates[i] = 1
        if counter ~= '' then
            -- pcall: what fails here must not keep the jobs behind this one from coming back
            redis.pcall('SET', counter, string.format('%d', before + 1), 'EX', ARGV[3])
        end
    end
end
return fates
