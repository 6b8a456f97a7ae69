-- Give up a lock, if it is still ours.
-- KEYS[1] lock    string   who owns it
-- ARGV[1] owner
-- Returns 1 when the lock was removed, 0 when somebody else has it or nobody.
-- Why a script: GET, then DEL could remove the lock of whoever took it in between.
if redis.call('GET', KEYS[1]) == ARGV[1] then
    return redis.call('DEL', KEYS[1])
end
return 0
