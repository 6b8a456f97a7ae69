-- Move due members of a sorted set to their queues.
-- KEYS[1] set                       zset   schedule or retry
-- KEYS[2] queues                    set    names of all queues
-- KEYS[3] dead                      zset   takes members that are not jobs
-- ARGV[1] prefix of a queue's key   the key of the target queue is built here: it stands in the payload
-- ARGV[2] most members to handle, at most 1,000
-- ARGV[3] members to pass over      due ones that cannot be moved, found by earlier calls
-- ARGV[4] "seconds" for a float enqueued_at, else whole milliseconds
-- ARGV[5] dead_timeout_in_seconds
-- ARGV[6] dead_max_jobs
-- ARGV[7] size cap in bytes         a larger member goes to dead undecoded
-- Returns {handled, stuck, key that blocks one of them or "", 1 if it stopped early because it has moved many bytes}. Stuck members stay: the key they must go
-- to has a wrong type.
-- Why a script: a member is removed and pushed in one step, so two schedulers never move the same job and a crash
-- leaves it in one place. The bytes stay as they are but for `enqueued_at`: Lua would change large numbers.
local now = now_seconds()
local stamp = ARGV[4] == 'seconds' and string.format('%.6f', now) or string.format('%.0f', math.floor(now * 1000))

local function is_queue_name(name)
    if type(name) ~= 'string' or name == '' then
        return false
    end
    local _, characters = string.gsub(name, '[^\128-\191]', '')
    return characters <= 200
        and not string.find(name, '[%c|]')
        and not string.find(name, '\194[\128-\159]')
        and not string.find(name, '\237[\160-\191]')
end

-- Where the value of the last top-level `enqueued_at` starts.
local function find_value(text)
    local pattern = '"enqueued_at"%s*:%s*()'
    local first = string.match(text, pattern)
    if first and not string.match(text, pattern, first) then
        return first
    end
    local depth, at, found = 0, 1, nil
    while true do
        local start, _, character = string.find(text, '([%[%]{}"])', at)
        if not start then
            return found
        end
        at = start + 1
        if character == '"' then
            if depth == 1 then
                found = string.match(text, '^' .. pattern, start) or found
            end
            repeat -- to the end of the string
                local stop, _, mark = string.find(text, '(["\\])', at)
                at = stop + (mark == '\\' and 2 or 1)
            until mark == '"'
        elseif character == '{' or character == '[' then
            depth = depth + 1
        else
            depth = depth - 1
        end
    end
end

local function stamped(text, job)
    if job['enqueued_at'] == nil then
        local rest = string.match(text, '^%s*{%s*()')
        local comma = string.sub(text, rest, rest) == '}' and '' or ','
        return '{"enqueued_at":' .. stamp .. comma .. string.sub(text, rest)
    end
    local start = find_value(text)
    local stop = start and (string.match(text, '^%-?[%d.eE+-]+()', start) or string.match(text, '^"[^"\\]*"()', start))
    if not stop then
        return text
    end
    return string.sub(text, 1, start - 1) .. stamp .. string.sub(text, stop)
end

local function decode(text)
    if not string.find(text, '^%s*{') then
        return nil
    end
    local ok, job = pcall(cjson.decode, text)
    return ok and type(job) == 'table' and job or nil
end

local SLICE, BYTES = 50, 4194304 -- what is read at a time, and what one call looks at: it must not hold Redis for long
local limit, cap = math.min(tonumber(ARGV[2]), 1000), tonumber(ARGV[7])
local handled, stuck, stuck_key, bytes = 0, 0, '', 0

local function move(member)
    local job = #member <= cap and decode(member)
    local name = job and job['queue']
    if name == nil or name == cjson.null then
        name = 'default'
    end
    if (not job or not is_queue_name(name)) and not can_bury(KEYS[3]) then
        stuck, stuck_key = stuck + 1, KEYS[3]
    elseif not job or not is_queue_name(name) then
        redis.call('ZREM', KEYS[1], member)
        bury(KEYS[3], member, tonumber(ARGV[5]), tonumber(ARGV[6]))
        handled = handled + 1
    else
        local key = ARGV[1] .. name
        local kind = redis.call('TYPE', key).ok
        if kind == 'list' or kind == 'none' then
            redis.call('ZREM', KEYS[1], member)
            redis.call('SADD', KEYS[2], name)
            redis.call('LPUSH', key, stamped(member, job))
            handled = handled + 1
        else
            stuck, stuck_key = stuck + 1, key
        end
    end
end

repeat
    local due = redis.call(
        'ZRANGE', KEYS[1], '-inf', now, 'BYSCORE',
        'LIMIT', tonumber(ARGV[3]) + stuck, math.min(SLICE, limit - handled - stuck)
    )
    for _, member in ipairs(due) do
        bytes = bytes + #member
        move(member)
        if bytes >= BYTES then
            break
        end
    end
until #due == 0 or handled + stuck >= limit or bytes >= BYTES
return {handled, stuck, stuck_key, bytes >= BYTES and 1 or 0}
