-- Read the members of a sorted set that follow a place in it, in the order of score and then of bytes.
-- KEYS[1] set         zset
-- ARGV[1] direction   up or down
-- ARGV[2] score       where to start: epoch seconds, -inf or inf
-- ARGV[3] most members to return, at most 1,000
-- ARGV[4] most bytes to return, which one member may exceed
-- ARGV[5] member      start behind this member of that score, which need not be there any more; without it at the score
-- Returns member, score, member, score, …
-- Why a script: the place is found in a logarithm, also among a million members of one score, and whatever came and
-- went meanwhile.
local set, up, member = KEYS[1], ARGV[1] == 'up', ARGV[5]
local below = redis.call('ZCOUNT', set, '-inf', '(' .. ARGV[2]) -- the first rank of this score

local function precedes(left, right) -- by bytes: Lua itself compares by locale
    for at = 1, math.min(#left, #right) do
        local a, b = string.byte(left, at), string.byte(right, at)
        if a ~= b then
            return a < b
        end
    end
    return #left < #right
end

-- The rank of the member, and whether it is there; else that of the first one after it.
local function find()
    local score = redis.call('ZSCORE', set, member)
    if score and tonumber(score) == tonumber(ARGV[2]) then
        return redis.call('ZRANK', set, member), true
    end
    local low, high = below, redis.call('ZCOUNT', set, '-inf', ARGV[2])
    while low < high do
        local middle = math.floor((low + high) / 2)
        if precedes(redis.call('ZRANGE', set, middle, middle)[1], member) then
            low = middle + 1
        else
            high = middle
        end
    end
    return low, false
end

local rank
if member then
    local place, there = find()
    rank = up and place + (there and 1 or 0) or place - 1
else
    rank = up and below or redis.call('ZCOUNT', set, '-inf', ARGV[2]) - 1
end

local SLICE = 50 -- what is read at a time
local wanted, room, page = math.min(tonumber(ARGV[3]), 1000), tonumber(ARGV[4]), {}
while wanted > 0 and room > 0 and rank >= 0 do
    local count = math.min(SLICE, wanted)
    local first = up and rank or math.max(rank - count + 1, 0)
    local found = redis.call('ZRANGE', set, first, up and rank + count - 1 or rank, 'WITHSCORES')
    if #found == 0 then
        break
    end
    for index = 1, #found, 2 do
        local at = up and index or #found - index
        page[#page + 1] = found[at]
        page[#page + 1] = found[at + 1]
        room = room - #found[at]
        if room <= 0 then
            break
        end
    end
    wanted = wanted - #found / 2
    rank = up and rank + count or first - 1
end
return page
